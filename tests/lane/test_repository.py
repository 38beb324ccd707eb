import re
from pathlib import Path

import pytest
from google.protobuf import text_format
from tritonclient.grpc.model_config_pb2 import ModelConfig

from model_server.triton.repository import (
    RepositoryFinding,
    ServingOptions,
    check_config,
    check_repository,
    check_wiring,
    fill,
    fill_templates,
    refuse_unknown_variables,
    render_templates,
    write_repository,
)
from serving import build_tiny_engine, write_tiny_repository
from serving_base.errors import CheckFailed, UsageError
from tiny_llama import MODEL_DIR
from trtllm_check.releases.templates import release_templates, template_releases

MODELS = ["ensemble", "postprocessing", "preprocessing", "tensorrt_llm", "tensorrt_llm_bls"]
VALUES = ServingOptions(Path("engine"), Path("tokenizer")).values()


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_tiny_engine(tmp_path_factory.mktemp("engine") / "engine")


@pytest.fixture
def repository(tmp_path: Path, engine: Path) -> Path:
    return write_tiny_repository(tmp_path / "repository", engine)


def errors(findings: list[RepositoryFinding]) -> list[str]:
    return [str(finding) for finding in findings if finding.severity == "error"]


def edit(repository: Path, model: str, old: str, new: str) -> None:
    path = repository / model / "config.pbtxt"
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new, 1))


def as_triton_reads(text: str) -> ModelConfig:
    return text_format.Parse(text, ModelConfig())


def test_unknown_release_names_the_known_ones() -> None:
    with pytest.raises(UsageError, match=r"(?s)no Triton templates for TensorRT-LLM 0\.7\.1.*0\.12\.0"):
        release_templates("0.7.1")


@pytest.mark.parametrize("release", template_releases())
def test_every_template_parses_once_filled_and_keeps_no_placeholder(release: str) -> None:
    configs = fill_templates(release, VALUES)
    assert sorted(configs) == MODELS
    parsed = {}
    for name, text in configs.items():
        assert "${" not in text
        parsed[name], findings = check_config(name, text)
        assert not errors(findings)
    assert check_wiring(parsed) == []
    read = parsed["tensorrt_llm"]
    assert read is not None and read.text("backend") == "tensorrtllm"
    required = [tensor.name for tensor in as_triton_reads(configs["ensemble"]).input if not tensor.optional]
    assert required == ["text_input", "max_tokens"]


@pytest.mark.parametrize("release", template_releases())
def test_queues_are_filled_as_the_release_has_them(release: str) -> None:
    """From 0.12.0 on the queue has a limit; before, its template has no such field."""
    queue = release_templates(release).models["tensorrt_llm"].queue
    config = as_triton_reads(fill_templates(release, VALUES | {"max_queue_size": "7"})["tensorrt_llm"])
    assert list(config.dynamic_batching.preferred_batch_size) == [16]
    assert config.dynamic_batching.default_queue_policy.max_queue_size == (7 if queue == "limited" else 0)


@pytest.mark.parametrize("release", template_releases())
def test_unfilled_templates_stop_at_their_typed_fields_only(release: str) -> None:
    for name, text in render_templates(release).items():
        config, findings = check_config(name, text)
        assert config is None
        spec = release_templates(release).models[name]
        named = {
            variable for variable in spec.variables if any(f"{{{variable}}}" in found.message for found in findings)
        }
        assert named == set(spec.typed)


def test_what_releases_renamed_and_added() -> None:
    names = {
        release: {tensor.name for tensor in release_templates(release).models["tensorrt_llm"].inputs}
        for release in template_releases()
    }
    assert {"random_seed", "min_length"} <= names["0.19.0"]
    assert {"seed", "min_tokens"} <= names["1.2.1"]
    assert not {"random_seed", "min_length"} & names["1.2.1"]
    assert "exclude_input_in_output" not in names["0.12.0"]
    assert "return_kv_cache_reuse_stats" in names["0.16.0"]
    assert "return_perf_metrics" in names["0.19.0"]


def test_text_and_tensors_of_0_12() -> None:
    configs = {name: as_triton_reads(text) for name, text in fill_templates("0.12.0", VALUES).items()}
    inputs = {tensor.name: tensor for tensor in configs["tensorrt_llm"].input}
    assert len(inputs) == 38
    assert list(inputs["input_ids"].dims) == [-1]
    assert inputs["input_lengths"].HasField("reshape")
    assert list(inputs["stop_words_list"].dims) == [2, -1]
    assert inputs["stop_words_list"].allow_ragged_batch
    assert configs["postprocessing"].output[0].name == "OUTPUT"


def test_fill_leaves_what_it_has_no_value_for() -> None:
    assert fill("a: ${a} b: ${b}", {"a": "1"}) == "a: 1 b: ${b}"


def test_a_misspelt_variable_is_refused_with_the_right_name() -> None:
    with pytest.raises(UsageError, match="did you mean 'decoupled_mode'"):
        refuse_unknown_variables("0.12.0", {"decoupled_mod": "true"})


def test_a_variable_of_another_release_is_refused() -> None:
    with pytest.raises(UsageError, match="participant_ids"):
        fill_templates("0.12.0", {"participant_ids": "0"})


def test_written_repository_has_what_triton_loads(repository: Path) -> None:
    assert sorted(path.parent.name for path in repository.glob("*/config.pbtxt")) == MODELS
    for name in ("preprocessing", "postprocessing", "tensorrt_llm_bls"):
        assert (repository / name / "1" / "model.py").is_file()
    assert all((repository / name / "1").is_dir() for name in MODELS)
    assert errors(check_repository(repository)) == []


def test_a_good_repository_notes_what_takes_its_default(tmp_path: Path, engine: Path) -> None:
    findings = write_repository(tmp_path, "0.12.0", ServingOptions(engine, MODEL_DIR).values())
    assert {finding.severity for finding in findings} == {"note"}
    assert any("decoding_mode" in finding.message for finding in findings)
    edit(
        tmp_path,
        "tensorrt_llm",
        'key: "decoding_mode"\n  value: { string_value: ""',
        'key: "decoding_mode"\n  value: { string_value: "${decoding_mode}"',
    )
    assert check_repository(tmp_path) == findings


def test_an_empty_path_is_an_error(repository: Path) -> None:
    path = repository / "tensorrt_llm" / "config.pbtxt"
    path.write_text(re.sub(r'(gpt_model_path"\s+value: { string_value: )"[^"]+"', r'\1""', path.read_text()))
    assert "parameter gpt_model_path is still ''" in "".join(errors(check_repository(repository)))


def test_missing_values_are_all_named_before_launch(tmp_path: Path, engine: Path) -> None:
    values = ServingOptions(engine, MODEL_DIR).values()
    del values["decoupled_mode"], values["triton_backend"], values["tokenizer_dir"]
    with pytest.raises(CheckFailed) as caught:
        write_repository(tmp_path, "0.12.0", values)
    message = str(caught.value)
    assert "error in tensorrt_llm: line 6 is not filled: decoupled: ${decoupled_mode}" in message
    assert "error in tensorrt_llm_bls" in message
    assert "parameter tokenizer_dir is still '${tokenizer_dir}'" in message


def test_unfilled_backend_name_is_found() -> None:
    text = fill(render_templates("0.12.0")["tensorrt_llm"], {**VALUES, "triton_backend": "${triton_backend}"})
    assert any("fill triton_backend" in error for error in errors(check_config("tensorrt_llm", text)[1]))


def test_missing_engine_is_found(tmp_path: Path) -> None:
    with pytest.raises(CheckFailed, match=r"holds no config\.json"):
        write_repository(tmp_path, "0.12.0", ServingOptions(tmp_path / "none", MODEL_DIR).values())


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("max_batch_size:", "max_batch_sise:", 'no field named "max_batch_sise"'),
        ("TYPE_INT32", "TYPE_INTEGER", "TYPE_INTEGER"),
        ("decoupled: true", "decoupled: maybe", "maybe"),
        ("max_batch_size: 16", "max_batch_size: 3000000000", "3000000000"),
        ("max_batch_size: 16", 'max_batch_size: "16"', "integer"),
        ('name: "tensorrt_llm"', 'name: "llm"', "its name is 'llm'"),
    ],
)
def test_what_protobuf_finds(repository: Path, old: str, new: str, message: str) -> None:
    edit(repository, "tensorrt_llm", old, new)
    found = errors(check_repository(repository))
    assert any(message in error for error in found), found


def test_a_missing_brace_is_found_at_the_end(repository: Path) -> None:
    path = repository / "ensemble" / "config.pbtxt"
    path.write_text(path.read_text().rstrip().removesuffix("}"))
    assert any("ensemble" in error and "line" in error for error in errors(check_repository(repository)))


@pytest.mark.parametrize(
    ("model", "old", "new", "message"),
    [
        ("ensemble", 'key: "input_lengths"', 'key: "input_lenghts"', "the model has no input input_lenghts"),
        ("ensemble", 'key: "input_lengths"', 'key: "input_lenghts"', "required input input_lengths is not mapped"),
        ("ensemble", 'value: "_INPUT_ID"', 'value: "_INPUT_IDS"', "reads _INPUT_ID, which no step gives"),
        ("ensemble", 'key: "OUTPUT" value: "text_output"', 'key: "OUTPUT" value: "text"', "text_output is given by no"),
        ("ensemble", 'key: "OUTPUT"', 'key: "OUTPT"', "the model has no output OUTPT"),
        (
            "ensemble",
            'model_name: "postprocessing"',
            'model_name: "detokenize"',
            "step detokenize: the repository has no such model",
        ),
        (
            "postprocessing",
            'name: "TOKENS_BATCH"\n    data_type: TYPE_INT32',
            'name: "TOKENS_BATCH"\n    data_type: TYPE_INT64',
            "TOKENS_BATCH is TYPE_INT64 and reads _TOKENS_BATCH, which is TYPE_INT32",
        ),
        ("tensorrt_llm", "decoupled: true", "decoupled: false", "decoupled is False in tensorrt_llm and True in"),
    ],
)
def test_what_only_the_wiring_shows(repository: Path, model: str, old: str, new: str, message: str) -> None:
    edit(repository, model, old, new)
    found = errors(check_repository(repository))
    assert any(message in error for error in found), found


def test_a_missing_version_folder_is_found(repository: Path) -> None:
    (repository / "ensemble" / "1").rmdir()
    assert any("version folder" in error for error in errors(check_repository(repository)))


def test_an_empty_folder_is_not_a_repository(tmp_path: Path) -> None:
    assert any("holds no model" in error for error in errors(check_repository(tmp_path)))


def test_only_a_model_that_is_not_there_is_called_missing(repository: Path) -> None:
    edit(repository, "postprocessing", "backend:", "backnd:")
    found = "".join(errors(check_repository(repository)))
    assert "backnd" in found and "no such model" not in found
    for name in MODELS[1:]:
        (repository / name / "config.pbtxt").unlink()
    assert "step preprocessing: the repository has no such model" in "".join(errors(check_repository(repository)))
