"""The checker has nothing to say about what the recipes write, for any release, profile and runner."""

import subprocess
from functools import cache
from pathlib import Path

import pytest
from typer.testing import CliRunner

from each import each
from playbook.cli.app import app
from playbook.profile import Profile, load_profile, profile_names
from trtllm_check.deployment import changed
from trtllm_check.lint import check_commands
from trtllm_check.lint.document import Document
from trtllm_check.lint.finding import Finding
from trtllm_check.lint.reading import read_document
from trtllm_check.recipes import Road, road
from trtllm_check.recipes.lmi import recommended_image
from trtllm_check.recipes.script import script
from trtllm_check.releases import known_releases, load_release

PROFILES = [name for name in profile_names() if load_profile(name).lane == "tensorrt_llm"]
OTHER_FORMATS = ("int8_sq", "int8_wo", "int4_awq", "w4a8_awq", "int4_gptq", "full_prec")
each_release = each("release", known_releases())
each_profile = pytest.mark.parametrize("profile", PROFILES)
RUNNERS = ("docker", "inside", "native")


@cache
def whole_road(name: str, release: str, runner: str = "docker", **changes: str) -> tuple[Profile, Road]:
    profile = changed(load_profile(name, release), runner=runner, **changes)
    return profile, road(profile, load_release(release))


def written_script(profile: Profile, way: Road) -> str:
    return script(profile, load_release(profile.release), way.commands, way.left_out)


def checked(text: str | Document, profile: Profile) -> list[Finding]:
    return check_commands(text, profile.release, profile.gpu, profile.gpu_count)


READ_IN_PART = {"mmlu.py"}
"""Only the flags that the course uses are known, so the checker leaves such a tool alone."""


@each_profile
@each(("number", "release"), enumerate(known_releases()))
def test_nothing_is_found_in_the_script(profile: str, release: str, number: int) -> None:
    """The runners take turns, so that every pair of profile, release and runner is there.

    A runner changes how a command is called, by what is the same for every profile of a release.
    """
    runner = RUNNERS[(number + PROFILES.index(profile)) % len(RUNNERS)]
    chosen, way = whole_road(profile, release, runner)
    document = read_document(written_script(chosen, way))
    read = {invocation.tool for invocation in document.invocations}
    asked = {command.tool for command in way.commands if command.tool in load_release(release).tools}
    assert read >= asked - READ_IN_PART
    assert checked(document, chosen) == []


def printed(profile: str, release: str) -> str:
    done = CliRunner().invoke(app, ["commands", "--profile", profile, "--release", release])
    assert done.exit_code == 0
    return done.stdout


@each(("number", "release"), enumerate(known_releases()))
def test_nothing_is_found_in_the_printed_commands(release: str, number: int) -> None:
    """The profiles take turns: what is printed is the script's commands, written apart."""
    profile = PROFILES[number % len(PROFILES)]
    assert checked(printed(profile, release), whole_road(profile, release)[0]) == []


@each_release
@pytest.mark.parametrize("qformat", OTHER_FORMATS)
def test_no_error_and_no_warning_in_the_script_of_another_format(qformat: str, release: str) -> None:
    """That FP8 weights alone leave the KV cache at 16 bit is advice."""
    chosen, way = whole_road("p5", release, qformat=qformat, kv_cache_dtype="auto")
    found = checked(written_script(chosen, way), chosen)
    assert [one for one in found if one.severity != "info"] == []


@each_release
def test_fp8_weights_with_a_16_bit_cache_are_advice(release: str) -> None:
    chosen, way = whole_road("p5", release, kv_cache_dtype="auto")
    found = checked(written_script(chosen, way), chosen)
    assert {one.rule for one in found} <= {"kv-cache-stays-16-bit"}
    assert {one.severity for one in found} <= {"info"}


@each_release
@each_profile
def test_nothing_is_found_in_the_serving_properties(profile: str, release: str, tmp_path: Path) -> None:
    chosen, way = whole_road(profile, release)
    files = [command.argv for command in way.commands if command.stage == "lmi" and "printf" in " ".join(command.argv)]
    assert files
    for number, argv in enumerate(files):
        folder = tmp_path / str(number)
        subprocess.run([*argv[:3], str(folder), *argv[4:]], check=True)
        file = folder / "serving.properties"
        assert read_document(file).properties
        assert check_commands(file, release, chosen.gpu, chosen.gpu_count) == []


@pytest.mark.parametrize(
    ("release", "old", "new", "rule"),
    [
        ("0.12.0", "--max_seq_len ", "--max_output_len ", "flag-removed"),
        ("1.2.1", "--max_seq_len ", "--max_output_len ", "flag-removed"),
        ("0.12.0", "--use_fp8_context_fmha enable", "--use_fp8_context_fmha true", "bad-value"),
        ("0.12.0", "--kv_cache_dtype fp8", "--kv_cache_dtype auto", "bad-value"),
        ("0.12.0", "/v2/models/ensemble/generate", "/generate", "wrong-model-path"),
        ("0.12.0", '"max_tokens"', '"max_new_tokens"', "missing-input"),
        ("1.2.1", "triton_max_batch_size:", "triton_max_batch:", "unfilled-variable"),
    ],
)
def test_one_wrong_word_in_a_script_is_found(release: str, old: str, new: str, rule: str) -> None:
    """The silence above is not the checker's deafness."""
    chosen, way = whole_road("p5", release)
    text = written_script(chosen, way)
    assert old in text
    assert rule in {one.rule for one in checked(text.replace(old, new), chosen)}


def test_another_releases_container_in_the_printed_commands_is_found() -> None:
    right, other = load_release("0.12.0").image, load_release("0.11.0").image
    text = printed("p5", "0.12.0").replace(right, other)
    found = {one.rule for one in checked(text, load_profile("p5", "0.12.0"))}
    assert found == {"container-of-another-release"}


def test_the_wrong_image_for_a_file_is_found() -> None:
    newest = known_releases()[-1]
    assert recommended_image(newest).engine_release == ""
    assert {one.rule for one in check_commands("engine=MPI\noption.rolling_batch=trtllm\n", newest)} == {
        "lmi-value-refused"
    }
