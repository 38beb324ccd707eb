"""The fill recipe on every release and profile: the release's templates, filled as its own fill_template.py would."""

import json
import re
import shutil
import subprocess
from itertools import product
from pathlib import Path
from string import Template

import pytest
import yaml

from each import each
from model_server.triton.repository import check_repository, render_templates
from playbook.profile import Profile, load_profile, profile_names
from serving import END_ID, PROMPTS, build_tiny_engine, serving
from serving_base.errors import NotInRelease, PlaybookError, UsageError
from serving_clients import triton as ask_triton
from trtllm_check.lint import check_commands
from trtllm_check.lint.reading import read_document
from trtllm_check.recipes import tool_arguments, triton
from trtllm_check.recipes.command import Command, Paths, llmapi_path, templates_path
from trtllm_check.releases import Release, check_arguments, load_release
from trtllm_check.releases.load import DATA_DIR, _content
from trtllm_check.releases.templates import (
    emptied_variables,
    llmapi_model,
    llmapi_releases,
    release_templates,
    template_releases,
)

PROFILES = [name for name in profile_names() if load_profile(name).lane == "tensorrt_llm"]
RELEASES = template_releases()
LLM_API_RELEASES = llmapi_releases()
MATRIX = list(product(PROFILES, RELEASES))

# Besides substituting, fill_template.py does this: tensorrtllm_backend tools/fill_template.py at each tag,
# from 0.20.0 on TensorRT-LLM triton_backend/tools/fill_template.py, read at 1.3.0rc3.
WITHOUT_ESCAPES = RELEASES[: RELEASES.index("0.16.0")]
REFUSING_UNKNOWN_KEYS = RELEASES[RELEASES.index("0.19.0") :]
DEFAULTS = {
    "max_queue_size": RELEASES[RELEASES.index("0.12.0") :],
    "participant_ids": ["0.15.0"],
    "max_queue_delay_microseconds": REFUSING_UNKNOWN_KEYS,
}


def setting(profile_name: str, release_name: str, **changes: object) -> tuple[Profile, Release]:
    return load_profile(profile_name, release_name).model_copy(update=changes), load_release(release_name)


def split(text: str, separator: str, release: str) -> list[str]:
    if release in WITHOUT_ESCAPES:
        return text.split(separator)
    parts = [""]
    characters = iter(text)
    for character in characters:
        if character == "\\":
            parts[-1] += next(characters)
        elif character == separator:
            parts.append("")
        else:
            parts[-1] += character
    return parts


def fill_template(path: Path, substitutions: str, release: str) -> None:
    text = path.read_text()
    values = {
        name: "" if name == "participant_ids" else "0" for name, releases in DEFAULTS.items() if release in releases
    }
    for substitution in split(substitutions, ",", release):
        key, value = split(substitution, ":", release)
        assert key in text or release not in REFUSING_UNKNOWN_KEYS, f"key '{key}' does not exist in the file {path}."
        values[key] = value
    path.write_text(Template(text).safe_substitute(values))


def write_templates(folder: Path, release: str, change: tuple[str, str] = ("", "")) -> None:
    for model, text in render_templates(release).items():
        (folder / model / "1").mkdir(parents=True)
        (folder / model / "config.pbtxt").write_text(text.replace(*change) if all(change) else text)


def execute(commands: list[Command], release: str) -> None:
    """mkdir, cp, sed and python3 are the real ones."""
    for command in commands:
        if command.tool == "fill_template.py":
            in_place, path, substitutions = tool_arguments(command)
            assert in_place == "--in_place"
            fill_template(Path(path), substitutions, release)
        else:
            subprocess.run(command.argv, check=True)


def filled(tmp_path: Path, profile: Profile, release: Release, **templates: tuple[str, str]) -> Path:
    paths = Paths.under(str(tmp_path), profile.name)
    write_templates(Path(templates_path(profile, release, paths)), release.name, **templates)
    execute(triton.fill(profile, release, paths), release.name)
    return Path(paths.repository)


@each(("profile_name", "release_name"), MATRIX)
def test_every_filled_repository_loads_and_the_checker_is_silent(
    tmp_path: Path, profile_name: str, release_name: str
) -> None:
    profile, release = setting(profile_name, release_name, runner="native")
    repository = filled(tmp_path, profile, release)
    texts = {path.parent.name: path.read_text() for path in repository.glob("*/config.pbtxt")}
    assert sorted(texts) == sorted(release_templates(release_name).models)
    assert not [name for name, text in texts.items() if "${" in text]
    assert [str(found) for found in check_repository(repository) if found.severity == "error"] == []
    values = triton.template_values(profile, release, Paths.under(str(tmp_path), profile.name))
    for model, spec in release_templates(release_name).models.items():
        for name, text in spec.parameters.items():
            expected = Template(text).substitute(values[model])
            assert re.search(rf'key: "{name}"\s+value: {{ string_value: "{re.escape(expected)}" }}', texts[model])
    assert len(read_document(repository).configs) >= 4
    assert check_commands(repository, release_name, profile.gpu, profile.gpu_count) == []


@pytest.mark.parametrize("release_name", [name for name in RELEASES if release_templates(name).confidence != "high"])
@pytest.mark.parametrize("type_in_template", ["${prompt_embedding_table_data_type}", "TYPE_FP16"])
def test_what_a_template_may_lack_is_filled_either_way(
    tmp_path: Path, release_name: str, type_in_template: str
) -> None:
    profile, release = setting("p5", release_name, runner="native")
    change = ("${prompt_embedding_table_data_type}", type_in_template)
    uncertain = "prompt_embedding_table_data_type" in release_templates(release_name).models["tensorrt_llm"].uncertain
    if not uncertain and type_in_template == "TYPE_FP16":
        with pytest.raises(AssertionError, match="does not exist in the file"):
            filled(tmp_path, profile, release, change=change)
        return
    repository = filled(tmp_path, profile, release, change=change)
    assert [found for found in check_repository(repository) if found.severity == "error"] == []
    (warning,) = {
        text for command in triton.fill(profile, release, Paths.default(profile)) for text in command.left_out
    }
    assert "medium confidence" in warning


@pytest.mark.parametrize("release_name", RELEASES)
def test_typed_variables_are_those_outside_strings(release_name: str) -> None:
    for model, text in render_templates(release_name).items():
        spec = release_templates(release_name).models[model]
        bare = set(re.findall(r"\$\{(\w+)\}", re.sub(r'"[^"]*"', "", text)))
        assert (bare, set(Template(text).get_identifiers())) == (set(spec.typed), set(spec.variables))


def test_every_variable_is_set_or_known_to_be_unset_when_empty() -> None:
    used = {
        name for release in RELEASES for spec in release_templates(release).models.values() for name in spec.variables
    }
    typed = {name for release in RELEASES for spec in release_templates(release).models.values() for name in spec.typed}
    assert set(emptied_variables()) <= used - typed
    assert used - typed - set(emptied_variables()) == {
        "triton_backend",
        "engine_dir",
        "tokenizer_dir",
        "tokenizer_type",
        "batching_strategy",
        "tensorrt_llm_model_name",
    }


def test_own_variables_override_and_unknown_ones_are_refused(tmp_path: Path) -> None:
    profile, release = setting("p5", "0.12.0", runner="native")
    paths = Paths.under(str(tmp_path), profile.name)
    own = {"max_queue_size": 7, "decoding_mode": "top_k", "skip_special_tokens": False}
    write_templates(Path(templates_path(profile, release, paths)), release.name)
    execute(triton.fill(profile, release, paths, variables=own), release.name)
    config = (Path(paths.repository) / "tensorrt_llm" / "config.pbtxt").read_text()
    assert "max_queue_size: 7" in config
    assert 'string_value: "top_k"' in config
    post = (Path(paths.repository) / "postprocessing" / "config.pbtxt").read_text()
    assert 'string_value: "false"' in post
    with pytest.raises(UsageError, match="has a variable logits_datatype"):
        triton.fill(profile, release, paths, variables={"logits_datatype": "TYPE_FP16"})


def test_what_the_course_sets_anyway_may_be_given_to_a_release_without_the_variable() -> None:
    profile, release = setting("p5", "0.8.0")
    paths = Paths.default(profile)
    assert triton.fill(profile, release, paths, variables={"add_special_tokens": False}) == triton.fill(
        profile, release, paths
    )
    with pytest.raises(UsageError, match="add_special_tokens"):
        triton.fill(profile, release, paths, variables={"add_special_tokens": True})


def test_an_unknown_typed_variable_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """A new release's new variable must be given a value before its commands are printed."""
    templates = release_templates("1.2.1")
    odd = templates.models["ensemble"].model_copy(update={"decoupled": "${new_switch}"})
    changed = templates.model_copy(update={"models": {**templates.models, "ensemble": odd}})
    monkeypatch.setattr("trtllm_check.recipes.triton.release_templates", lambda _: changed)
    with pytest.raises(PlaybookError, match="no value for new_switch"):
        triton.fill(*setting("p5", "1.2.1"), Paths.under("/workspace", "p5"))


def test_the_templates_of_a_further_release(tmp_path: Path) -> None:
    """They are known once the place is named where they were read, and differ by the lines that say so."""
    shutil.copytree(DATA_DIR, tmp_path, dirs_exist_ok=True)
    releases, templates = tmp_path / "releases.yml", tmp_path / "triton" / "templates.yml"
    add(releases, "releases:", "  9.0.0: {source: {commit: abc}}", last=True)
    model = tmp_path / "triton" / "models" / "tensorrt_llm.yml"
    add(model, "parameters:", '  new_one: {since: 9.0.0, is: "${new_one}"}')
    assert "9.0.0" not in template_releases(tmp_path)
    with pytest.raises(UsageError, match=r"9\.0\.0"):
        release_templates("9.0.0", tmp_path)
    template_releases.cache_clear()
    _content.cache_clear()
    add(templates, "read:", "  - {until: 9.0.0, confidence: high, source: 'TensorRT-LLM@{commit}'}", last=True)
    assert template_releases(tmp_path)[-1] == "9.0.0"
    found, before = release_templates("9.0.0", tmp_path), release_templates("1.2.1", tmp_path)
    assert (found.source, found.token_histograms) == ("TensorRT-LLM@abc", True)
    assert set(found.models["tensorrt_llm"].free) - set(before.models["tensorrt_llm"].free) == {"new_one"}
    assert found.models["ensemble"] == before.models["ensemble"]


def add(path: Path, section: str, line: str, *, last: bool = False) -> None:
    """Put ``line`` into a section of the file, as its first line or its last one."""
    lines = path.read_text(encoding="utf-8").splitlines()
    place = lines.index(section) + 1
    while last and place < len(lines) and lines[place].startswith(" "):
        place += 1
    path.write_text("\n".join([*lines[:place], line, *lines[place:], ""]), encoding="utf-8")


@each(("profile_name", "release_name"), MATRIX)
def test_requests_have_the_fields_of_the_release(profile_name: str, release_name: str) -> None:
    profile, release = setting(profile_name, release_name)
    ensemble = {tensor.name: tensor for tensor in release_templates(release_name).models["ensemble"].inputs}
    whole, streamed = triton.request(profile, release, Paths.default(profile))
    for command, names in ((whole, set()), (streamed, {"stream"})):
        body = json.loads(command.argv[command.argv.index("--data") + 1])
        assert {"text_input", "max_tokens", "end_id", "pad_id"} | names < set(body) <= set(ensemble)
        assert {"seed", "random_seed"} & set(body) == {"seed", "random_seed"} & set(ensemble)


def test_one_answer_per_request_is_not_streamed() -> None:
    profile, release = setting("p5", "0.12.0")
    asked = triton.request(profile.model_copy(update={"decoupled": False}), release, Paths.default(profile))
    assert [command.argv[1].rpartition("/")[2] for command in asked] == ["generate"]


@pytest.mark.parametrize("release_name", ["0.12.0", "1.2.1"])
def test_a_cache_that_prompts_cannot_be_read_from_is_not_reused(release_name: str) -> None:
    profile, release = setting("p5", release_name)
    paths = Paths.default(profile)
    for cache, reused in (("fp8", "true"), ("int8", "false")):
        values = triton.template_values(profile.model_copy(update={"kv_cache_dtype": cache}), release, paths)
        assert values["tensorrt_llm"]["enable_kv_cache_reuse"] == reused
        assert values["tensorrt_llm"]["enable_chunked_context"] == reused


def test_a_request_with_a_field_of_another_release_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    old = release_templates("0.12.0").models["ensemble"]
    without_end = old.model_copy(update={"inputs": tuple(x for x in old.inputs if x.name != "end_id")})
    templates = release_templates("0.12.0")
    changed = templates.model_copy(update={"models": {**templates.models, "ensemble": without_end}})
    monkeypatch.setattr("trtllm_check.recipes.triton.release_templates", lambda _: changed)
    with pytest.raises(PlaybookError, match="does not fit ensemble"):
        triton.request(*setting("p5", "0.12.0"), Paths.under("/workspace", "p5"))


@pytest.mark.parametrize("release_name", ["0.8.0", "0.16.0", "1.2.1"])
def test_paths_with_separators_are_escaped_or_refused(tmp_path: Path, release_name: str) -> None:
    profile, release = setting("p5", release_name, runner="native")
    odd = tmp_path / "a,b:c"
    if not release.behaviour.fill_template_escapes.value:
        with pytest.raises(UsageError, match="cannot write"):
            filled(odd, profile, release)
        return
    repository = filled(odd, profile, release)
    assert f'"{odd}/p5/engine"' in (repository / "tensorrt_llm" / "config.pbtxt").read_text()


@pytest.mark.server
def test_an_old_and_a_late_release_are_served(tmp_path: Path) -> None:
    engine = build_tiny_engine(tmp_path / "engine")
    for release in ("0.8.0", "1.0.0"):
        with serving(tmp_path / release, engine, release) as server:
            answers = {
                ask_triton.generate(server.http_url, PROMPTS[0], 8, model=model, end_id=END_ID)
                for model in ("ensemble", "tensorrt_llm_bls")
            }
        assert len(answers) == 1
        assert answers.pop()


LLM_API_CONFIG = """name: "tensorrt_llm"
backend: "python"
max_batch_size: 0
"""


@pytest.mark.parametrize(("profile_name", "release_name"), list(product(["p5", "p5-8b"], LLM_API_RELEASES)))
def test_the_llm_api_model_is_configured(tmp_path: Path, profile_name: str, release_name: str) -> None:
    profile, release = setting(profile_name, release_name, runner="native")
    paths = Paths.under(str(tmp_path), profile.name)
    source = Path(llmapi_path(profile, release, paths)) / "tensorrt_llm"
    (source / "1").mkdir(parents=True)
    (source / "config.pbtxt").write_text(LLM_API_CONFIG)
    (source / "1" / "model.yaml").write_text("model: TinyLlama\n")
    execute(triton.llmapi_fill(profile, release, paths), release.name)
    model = Path(paths.repository) / "tensorrt_llm"
    settings = yaml.safe_load((model / "1" / "model.yaml").read_text())
    served = (paths.model, "fp8") if release.builds_engines else (paths.checkpoint, "auto")
    assert (settings["model"], settings["kv_cache_config"]["dtype"]) == served
    assert (settings["tensor_parallel_size"], settings["pipeline_parallel_size"]) == (profile.tp, profile.pp)
    assert settings["triton_config"] == {"max_batch_size": 0, "decoupled": True}
    assert "model_transaction_policy { decoupled: true }" in (model / "config.pbtxt").read_text()
    assert [found for found in check_repository(Path(paths.repository)) if found.severity == "error"] == []


@pytest.mark.parametrize("profile_name", PROFILES)
def test_the_pytorch_line_serves_the_llm_api_model(profile_name: str) -> None:
    profile, release = setting(profile_name, "1.3.0rc22")
    paths = Paths.default(profile)
    assert {command.where for command in triton.fill(profile, release, paths)} == {release.server_image}
    (start,) = triton.launch(profile, release, paths)
    check_arguments(release, start.tool, tool_arguments(start))
    assert ("--trtllm_llmapi_launch" in start.argv) == (profile.world_size > 1)
    assert (start.where, start.ready_url) == (release.server_image, "http://localhost:8000/v2/health/ready")
    assert "1.2.1" in start.left_out[0]
    for command in triton.request(profile, release, paths):
        body = json.loads(command.argv[command.argv.index("--data") + 1])
        assert {"text_input", "sampling_param_max_tokens"} <= set(body)
        assert set(body) <= {tensor.name for tensor in llmapi_model(release.name).inputs}


def test_a_release_without_llm_api_model_says_so() -> None:
    profile, release = setting("p5", "0.12.0")
    with pytest.raises(NotInRelease, match="LLM-API model"):
        triton.llmapi_fill(profile, release, Paths.default(profile))
    with pytest.raises(NotInRelease, match="LLM-API model"):
        llmapi_model("0.12.0")
