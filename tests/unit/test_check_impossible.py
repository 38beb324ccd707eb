"""Where a text names no release: what no release runs is an error; what one of them runs is less."""

from each import each
from trtllm_check.lint import check_commands, target
from trtllm_check.lint.evidence import fitting
from trtllm_check.lint.reading import read_document

BUILD = "trtllm-build --checkpoint_dir ./ckpt --output_dir ./engine --max_batch_size 8"
CONVERT = "python3 convert_checkpoint.py --model_dir ./{model} --output_dir ./ckpt --dtype bfloat16\n"
BUILDER = "python3 examples/llama/build.py --model_dir m --use_gemm_plugin float16 --output_dir ./old\n"


def severities(text: str) -> dict[str, str]:
    document = read_document(text)
    return {one.rule: one.severity for one in check_commands(document, target(document)) if one.severity != "info"}


@each(
    ("text", "severity"),
    [
        (f"{CONVERT.format(model='Qwen3-8B')}{BUILD} --max_output_len 512\n", "error"),  # gone before the model came
        (f"# an engine of Gemma 3 4B\n{BUILD} --max_output_len 512\n", "error"),
        (f"{CONVERT.format(model='Llama-2-7b-hf')}{BUILD} --max_output_len 512\n", "warning"),  # of 0.8 to 0.11
        (f"# Qwen3-8B and Llama-2-7b\n{BUILD} --max_output_len 512\n", "warning"),
        (f"{BUILD} --max_output_len 512 --kv_cache_type paged\n", "error"),  # never together
        (f"{BUILD} --max_output_len 512 --use_custom_all_reduce disable\n", "warning"),
    ],
)
def test_a_flag_that_goes_with_nothing_else_of_the_text_is_an_error(text: str, severity: str) -> None:
    assert severities(text).get("flag-removed", "") == severity


def test_models_bound_the_releases() -> None:
    assert fitting(read_document(f"{CONVERT.format(model='Qwen3-8B')}{BUILD}\n"))[0] == "1.0.0"
    assert fitting(read_document(f"{CONVERT.format(model='Llama-3.1-8B')}{BUILD}\n"))[0] == "0.12.0"
    assert fitting(read_document(f"# for Qwen3-8B, Llama-2-7b\n{BUILD}\n"))[0] == "0.8.0"


def test_an_option_of_the_builders_is_none_of_ones_own_edition() -> None:
    convert = CONVERT.format(model="Mixtral-8x7B-v0.1").rstrip()
    assert severities(f"{convert} --world_size 2\n")["unknown-flag"] == "warning"
    assert "unknown-flag" not in severities(f"{convert} --my_own_option 2\n")


def test_a_flag_that_came_after_most_others_went_is_an_error() -> None:
    old = "--max_output_len 200 --use_custom_all_reduce disable --strongly_typed"
    assert severities(f"{BUILD} {old} --kv_cache_type paged\n")["flag-too-new"] == "error"


@each(("options", "severity"), [("--kv_cache_type paged", "warning"), ("--gemm_plugin float16", "")])
def test_a_builder_beside_the_tool_that_came_for_it(options: str, severity: str) -> None:
    assert severities(f"{BUILDER}{BUILD} {options}\n").get("example-folder", "") == severity


@each(
    ("options", "severity"),
    [("--model_dir m --use_gemm_plugin float16 --output_dir e", "warning"), ("--target wheel", "")],
)
def test_a_release_that_is_told_has_no_builders(options: str, severity: str) -> None:
    text = f"pip install tensorrt_llm==0.10.0\npython3 build.py {options}\n"
    assert severities(text).get("example-folder", "") == severity
