"""The YAML of --extra_llm_api_options is found where it is written, and judged by the release's own options."""

from pathlib import Path

import pytest

from check_cases import found
from trtllm_check.flows.options import check_options, looks_like_options
from trtllm_check.lint import check_commands
from trtllm_check.lint.finding import Draft, Platform
from trtllm_check.lint.reading import read_document
from trtllm_check.lint.rules.llm_options import check
from trtllm_check.releases import load_release

OLD = "pytorch_backend_config:\n  use_cuda_graph: true\nkv_cache_config:\n  free_gpu_memory_fraction: 0.9\n"
SERVE = "trtllm-serve m --extra_llm_api_options options.yml\n"


def test_a_file_that_a_command_names(tmp_path: Path) -> None:
    (tmp_path / "options.yml").write_text("enable_nonsense: true\n")
    (tmp_path / "serve.sh").write_text(SERVE)
    assert found(check, tmp_path, "1.2.1") == ["1 llm-option-refused error"]
    (tmp_path / "serve.sh").write_text(SERVE.replace("options.yml", "other.yml"))
    assert found(check, tmp_path, "1.2.1") == []


def test_a_file_of_nothing_but_options() -> None:
    assert looks_like_options(OLD) and not looks_like_options("replicas: 2\nimage: x\n")
    assert [one.rule for one in check_yaml(OLD)] == ["llm-option-refused"]
    assert read_document(OLD, "yaml").is_understood


@pytest.mark.parametrize(
    ("name", "instead"),
    [("padding_enabled", "enable_padding"), ("cuda_graph_batch_sizes", "batch_sizes"), ("nonsense", "")],
)
def test_an_option_below_another_is_named_as_it_is_there(name: str, instead: str) -> None:
    (problem,) = check_options(f"cuda_graph_config:\n  {name}: [1]\n", "1.0.0")
    assert problem.nearest == (instead and f"cuda_graph_config.{instead}")


def test_one_option_is_a_file_of_options_where_it_has_its_own() -> None:
    assert looks_like_options("cuda_graph_config:\n  anything: true\n")
    assert not looks_like_options("cuda_graph_config: null\n") and not looks_like_options("model: m\n")


@pytest.mark.parametrize(("release", "severity"), [("0.21.0", "warning"), ("1.2.1", "error"), ("1.3.0rc22", "warning")])
def test_what_was_not_read_in_a_release_is_no_error(release: str, severity: str) -> None:
    text = f"cat > options.yml <<EOF\nenable_nonsense: true\nEOF\n{SERVE}"
    assert found(check, text, release) == [f"2 llm-option-refused {severity}"]


def test_the_engines_own_options_are_another_class() -> None:
    text = f"cat > options.yml <<EOF\nenable_nonsense: true\nEOF\n{SERVE.strip()} --backend tensorrt\n"
    assert found(check, text, "1.0.0") == []


@pytest.mark.parametrize(("backend", "refused"), [("", True), (" --backend tensorrt", False)])
def test_a_file_that_echo_writes_is_judged_for_its_backend_too(backend: str, refused: bool) -> None:
    text = f'echo -e "enable_nonsense: true" > options.yml\n{SERVE.strip()}{backend}\n'
    assert ("llm-option-refused" in {one.rule for one in check_commands(text, "1.0.0")}) == refused


def test_the_arguments_of_the_class_are_options_too() -> None:
    code = "from tensorrt_llm import LLM\nllm = LLM(\n    model='m',\n    use_cuda_graph=True,\n)\n"
    platform = Platform(load_release("1.2.1"))
    assert [(one.place.line, one.severity) for one in check(read_document(code, "python"), platform)] == [
        (4, "warning")
    ]
    engine = code.replace("from tensorrt_llm ", "from tensorrt_llm._tensorrt_engine ")
    assert list(check(read_document(engine, "python"), platform)) == []


def check_yaml(text: str) -> list[Draft]:

    return list(check(read_document(text, "yaml"), Platform(load_release("1.2.1"))))
