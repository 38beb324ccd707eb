"""`playbook commands`: the whole matrix of releases and profiles, as JSON, as text and as a script that runs."""

import json
import os
import re
import shlex
import shutil
import subprocess
from functools import cache
from itertools import product
from pathlib import Path

import pytest
from typer.testing import CliRunner

from each import Test, each
from playbook.cli.app import app
from playbook.profile import Profile, load_profile, profile_names
from trtllm_check.deployment import changed
from trtllm_check.recipes import STAGES, Road, road, tool_arguments
from trtllm_check.recipes.script import script
from trtllm_check.releases import Release, check_arguments, known_releases, load_release

PROFILES = [name for name in profile_names() if load_profile(name).lane == "tensorrt_llm"]
MATRIX = list(product(PROFILES, known_releases()))


def matrix(test: Test) -> Test:
    """An id per profile, the releases in a loop."""
    return pytest.mark.parametrize("profile", PROFILES)(each("release", known_releases())(test))


KEYS = ["stage", "tool", "argv", "where", "cwd", "env", "why"]


@cache
def whole_road(profile: str, release: str, runner: str = "docker") -> tuple[Profile, Road]:
    chosen = changed(load_profile(profile, release), runner=runner)
    return chosen, road(chosen, load_release(release))


def invoke(*words: str) -> tuple[int, str, str]:
    done = CliRunner().invoke(app, ["commands", *words])
    return done.exit_code, done.stdout, done.stderr


def test_the_matrix_is_whole() -> None:
    assert {"p5", "p5-8b", "p5-tp4pp2", "p5en", "g6"} <= set(PROFILES)
    assert len(known_releases()) >= 19


@matrix
@each("runner", ["docker", "inside", "native"])
def test_every_command_is_accepted_by_a_parser_built_from_the_facts(profile: str, release: str, runner: str) -> None:
    facts = load_release(release) if runner == "native" else load_release(release).in_container
    commands = whole_road(profile, release, runner)[1].commands
    used = set()
    for command in commands:
        assert all(isinstance(word, str) and word for word in command.argv)
        if command.tool in facts.tools:
            check_arguments(facts, command.tool, tool_arguments(command))
            used.add(command.tool)
    without = {"launch_triton_server.py"} if runner == "native" else set()  # Triton comes in its container only
    assert used == set(facts.tools) - without


def test_the_matrix_counts_thousands_of_commands() -> None:
    """The number of an issue's closing note; it must not shrink unseen."""
    count = sum(len(whole_road(*pair)[1].commands) for pair in MATRIX)
    print(f"{count} commands for {len(MATRIX)} pairs of profile and release")
    assert count > 20 * len(MATRIX)


@matrix
def test_every_stage_is_there_or_said_to_be_left_out(profile: str, release: str) -> None:
    way = whole_road(profile, release)[1]
    there = {command.stage for command in way.commands}
    left_out = {sentence.partition(":")[0] for sentence in way.left_out}
    assert there | left_out >= set(STAGES)
    assert {"install", "fetch", "quantize", "fill", "launch", "request", "lmi"} <= there


@pytest.mark.parametrize(("profile", "release"), [pair for pair in MATRIX if pair[0] == "p5" or pair[1] == "1.2.1"])
def test_the_script_is_clean_under_shellcheck(profile: str, release: str, tmp_path: Path) -> None:
    checker = shutil.which("shellcheck")
    if checker is None:
        pytest.skip("shellcheck is not on this machine (apt-get install shellcheck)")
    files = []
    for runner in ("docker", "inside", "native"):
        chosen, way = whole_road(profile, release, runner)
        files.append(tmp_path / f"{runner}.sh")
        files[-1].write_text(script(chosen, load_release(release), way.commands, way.left_out), encoding="utf-8")
    done = subprocess.run([checker, *map(str, files)], capture_output=True, text=True, check=False)
    assert not done.stdout
    assert done.returncode == 0


def test_the_script_asks_for_a_bucket_and_for_room_and_waits_no_longer_than_it_says() -> None:
    code, out, _ = invoke("--profile", "p5", "--release", "0.12.0", "--sh")
    assert code == 0
    assert "your-bucket" not in out and out.count("${S3_BUCKET:?") == 3
    assert "DISK_GB:-287" in out and "READY_SECONDS:-3600" in out
    (road,) = [line for line in out.split("\n") if line.startswith("stages=(")]
    assert not {"convert", "profile", "lmi"} & set(road.removeprefix("stages=(").rstrip(")").split())
    assert out.count("[ -d workspace/sources/") == out.count("git clone") == 2


def test_the_script_says_beside_a_stage_what_that_stage_does_not_take_from_its_head() -> None:
    """0.8.0's own endpoint serves 16 bits, under a head that says fp8; that of 0.12.0 serves what its head says."""
    texts = {}
    for release in ("0.8.0", "0.12.0"):
        chosen, way = whole_road("p5", release)
        texts[release] = script(chosen, load_release(release), way.commands, way.left_out).partition("set -euo")[0]
    assert re.search(r"THIS_FILE lmi .*\n# +but .* has no option for fp8: the model stays in bfloat16", texts["0.8.0"])
    assert re.search(r"THIS_FILE lmi ", texts["0.12.0"]) and " but " not in texts["0.12.0"]


def test_a_16_bit_profile_converts_without_being_asked() -> None:
    _, out, _ = invoke("--profile", "p5", "--release", "0.12.0", "--qformat", "full_prec", "--sh")
    (road,) = [line for line in out.split("\n") if line.startswith("stages=(")]
    assert "convert" in road.split()


def test_json_holds_exactly_what_is_executed() -> None:
    code, out, err = invoke("--profile", "p5", "--release", "0.12.0", "--stage", "build", "--json")
    assert (code, err) == (0, "")
    (build,) = json.loads(out)
    assert list(build) == KEYS
    assert build["argv"][0] == "trtllm-build"
    assert build["where"] == load_release("0.12.0").image
    assert build["stage"] == "build"


def test_json_of_the_whole_road_is_in_order() -> None:
    code, out, _ = invoke("--release", "0.9.0", "--json")
    stages = [command["stage"] for command in json.loads(out)]
    assert code == 0
    assert list(dict.fromkeys(stages)) == [stage for stage in STAGES if stage in stages]


def test_what_a_release_cannot_do_is_on_stderr_and_in_why() -> None:
    code, out, err = invoke("--release", "0.8.0", "--json")
    assert code == 0
    assert "left out: serve: " in err
    (build,) = [command for command in json.loads(out) if command["stage"] == "build"]
    said = [line.removeprefix("left out: build: ") for line in err.splitlines() if line.startswith("left out: build: ")]
    assert said
    assert all(sentence in build["why"] for sentence in said)


def test_a_stage_that_the_release_does_not_have_is_refused_when_asked_for() -> None:
    code, out, err = invoke("--release", "0.8.0", "--stage", "serve")
    assert (code, out) == (2, "")
    assert "serve" in err


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (["--profile", "local"], "has no GPU"),
        (["--release", "0.7.1"], "0.8.0"),
        (["--stage", "bild"], "no stage 'bild'"),
        (["--qformat", "fp7"], "qformat"),
        (["--json", "--sh"], "exclude"),
        (["--profile", "p6"], "p5-8b"),
    ],
)
def test_wrong_usage_is_refused_with_the_way_out(words: list[str], complaint: str) -> None:
    code, out, err = invoke(*words)
    assert (code, out) == (2, "")
    assert complaint in err
    assert "fix: " in err


def test_another_precision_changes_quantize_and_drops_the_fp8_cache() -> None:
    code, out, _ = invoke("--release", "0.12.0", "--stage", "quantize", "--qformat", "int4_awq", "--json")
    (quantize, *_) = json.loads(out)
    assert code == 0
    assert quantize["argv"][quantize["argv"].index("--qformat") + 1] == "int4_awq"
    assert "--kv_cache_dtype" not in quantize["argv"]


STAND_IN = """#!/bin/sh
name=${{0##*/}}
echo "$name $*" >> {calls}
{{ printf '%s\\036' "$name" "$@"; printf '\\035'; }} >> {words}
if [ "$name $1" = "docker inspect" ]; then echo true; fi
for word in "$@"; do if [ "$word" = "$FAIL_AT" ]; then exit 17; fi; done
"""
"""Writes down how it was called: a line for the reader, and the words, which separators of their own end."""


@pytest.fixture(params=["0.12.0", "1.2.1"])
def stand_ins(request: pytest.FixtureRequest, tmp_path: Path) -> dict[str, str]:
    """The environment of a machine whose docker, git, curl and aws write down how they were called.

    Nothing is downloaded: whatever room this machine has is enough.
    """
    programs = tmp_path / "bin"
    programs.mkdir()
    source = STAND_IN.format(calls=shlex.quote(str(tmp_path / "calls")), words=shlex.quote(str(tmp_path / "words")))
    for name in ("docker", "git", "curl", "aws", "tar", "nvidia-smi"):
        program = programs / name
        program.write_text(source, encoding="utf-8")
        program.chmod(0o755)
    path = f"{programs}{os.pathsep}{os.environ['PATH']}"
    given = {"PATH": path, "HF_TOKEN": "hf_secret", "RELEASE": request.param, "DISK_GB": "0", "FAIL_AT": "never"}
    return {**os.environ, **given}


def accepted_calls(words: Path, release: Release) -> int:
    """How many of docker's calls ran a tool of the release, each with arguments that its parser takes."""
    calls = words.read_text(encoding="utf-8").split("\035")[:-1] if words.exists() else []
    number = 0
    for name, *argv in (call.split("\036")[:-1] for call in calls):
        places = [place for place, word in enumerate(argv) if Path(word).name in release.tools]
        if name == "docker" and places:
            check_arguments(release, Path(argv[places[0]]).name, argv[places[0] + 1 :])
            number += 1
    return number


def run_script(folder: Path, environment: dict[str, str], *stages: str) -> "subprocess.CompletedProcess[str]":
    release = load_release(environment["RELEASE"])
    chosen, way = whole_road("p5", environment["RELEASE"])
    text = script(chosen, release, way.commands, way.left_out)
    (folder / "p5.sh").write_text(text, encoding="utf-8")
    done = subprocess.run(
        ["bash", "p5.sh", *stages], cwd=folder, env=environment, capture_output=True, text=True, check=False
    )
    accepted_calls(folder / "words", release)
    return done


def test_the_script_walks_the_whole_road_in_order(tmp_path: Path, stand_ins: dict[str, str]) -> None:
    done = run_script(tmp_path, stand_ins)
    assert done.returncode == 0, done.stderr
    calls = (tmp_path / "calls").read_text(encoding="utf-8")
    order = ["docker pull", "quantize.py", "trtllm-build", "run.py", "fill_template.py", "launch_triton_server.py"]
    assert [calls.index(word) for word in order] == sorted(calls.index(word) for word in order)
    launched = calls.index("launch_triton_server.py")
    ready = calls.index("/v2/health/ready", launched)
    asked = calls.index("/generate", ready)
    assert asked < calls.index("docker rm --force playbook-server", asked)
    assert "hf_secret" not in done.stdout + calls
    assert accepted_calls(tmp_path / "words", load_release(stand_ins["RELEASE"])) >= 4


def test_the_script_stops_at_the_first_failure_and_removes_its_server(
    tmp_path: Path, stand_ins: dict[str, str]
) -> None:
    done = run_script(tmp_path, {**stand_ins, "FAIL_AT": "trtllm-build"})
    calls = (tmp_path / "calls").read_text(encoding="utf-8")
    assert done.returncode == 17
    assert "run.py" not in calls
    assert calls.rstrip().endswith("docker rm --force playbook-server")


def test_the_script_runs_one_stage_and_refuses_one_that_it_does_not_have(
    tmp_path: Path, stand_ins: dict[str, str]
) -> None:
    done = run_script(tmp_path, stand_ins, "build")
    assert done.returncode == 0
    calls = (tmp_path / "calls").read_text(encoding="utf-8").splitlines()
    assert [("trtllm-build" in call) for call in calls] == [True, False]  # and the server's removal
    done = run_script(tmp_path, stand_ins, "build", "bild")
    assert done.returncode == 2
    assert "no stage bild; there are: install" in done.stderr


def test_a_disk_too_small_is_refused_before_anything_is_fetched(tmp_path: Path, stand_ins: dict[str, str]) -> None:
    df = tmp_path / "bin" / "df"
    df.write_text("#!/bin/sh\nprintf 'Avail\\n  100\\n'\n", encoding="utf-8")
    df.chmod(0o755)
    del stand_ins["DISK_GB"]
    done = run_script(tmp_path, stand_ins)
    assert done.returncode == 1
    assert "100 GB are free here, model, checkpoint and engine need 287: go to a larger disk" in done.stderr
    calls = tmp_path / "calls"
    assert calls.read_text(encoding="utf-8") == "docker rm --force playbook-server\n"
    done = run_script(tmp_path, {**stand_ins, "DISK_GB": "100"}, "fetch")
    assert done.returncode == 0, done.stderr
    assert " download " in calls.read_text(encoding="utf-8")


def test_the_token_is_asked_for_before_the_download(tmp_path: Path, stand_ins: dict[str, str]) -> None:
    del stand_ins["HF_TOKEN"]
    done = run_script(tmp_path, stand_ins, "fetch")
    assert done.returncode != 0
    assert "export HF_TOKEN first" in done.stderr
