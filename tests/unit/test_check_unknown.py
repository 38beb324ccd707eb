"""What a text leaves open is no error: its release, the model of a script, values that a shell fills in."""

import pytest

from trtllm_check.lint import ReleaseAsked, check_commands, target
from trtllm_check.lint.kinds import kind_of_text
from trtllm_check.lint.reading import read_document

MOVED = "python3 TensorRT-LLM/examples/llama/convert_checkpoint.py --model_dir m --output_dir c\n"


def severities(text: str, release: "str | ReleaseAsked") -> dict[str, str]:
    return {one.rule: one.severity for one in check_commands(read_document(text), release)}


def test_what_holds_in_one_release_only_is_a_warning_where_nobody_named_it() -> None:
    asked = target(read_document(MOVED))
    assert asked.guessed and severities(MOVED, asked)["moved-script"] == "info"
    text = "trtllm-build --checkpoint_dir c --output_dir e --max_output_len 8 --no_such_flag_at_all 1\n"
    assert severities(text, target(read_document(text)))["unknown-flag"] == "error"
    assert severities(MOVED, "1.2.1")["moved-script"] == "error"


def test_a_converter_that_nothing_calls_llamas_may_be_another_models() -> None:
    gemma = "python3 convert_checkpoint.py --ckpt-type torch --model-dir gemma-2b --output-model-dir c\n"
    assert "unknown-flag" not in severities(gemma, "0.12.0")  # all of them are those of Gemma's own
    assert severities(gemma.replace("--ckpt", "--check"), "0.12.0")["unknown-flag"] == "info"
    text = "python3 convert_checkpoint.py --check-type torch --model-dir x --output-model-dir c\n"
    assert severities(text, "0.12.0")["unknown-flag"] == "warning"
    assert severities(f"cd examples/llama\n{text}", "0.12.0")["unknown-flag"] == "error"


def test_values_that_a_shell_fills_in_are_unknown_to_the_options() -> None:
    text = "cat > o.yml <<EOF\ntensor_parallel_size: {}\nenable_attention_dp: true\nEOF\n"
    serve = "trtllm-serve m --extra_llm_api_options o.yml\n"
    assert "llm-option-refused" not in severities(text.format("${TP}") + serve, "1.2.1")
    assert severities(text.format("eight") + serve, "1.2.1")["llm-option-refused"] == "error"


def test_variables_of_a_container_as_json_and_a_makefile_are_seen_by_what_is_in_them() -> None:
    variables = '{"OPTION_ROLLING_BATCH": "trtllm", "OPTION_MAX_INPUT_LEN": "9", "OPTION_MAX_OUTPUT_LEN": "9"}'
    assert read_document(variables, "request").lmi_environment
    assert set(severities(variables, target(read_document(variables)))) == {"lmi-no-room"}
    makefile = "RUN = docker run --gpus all --ipc=host img\n.PHONY: t\nt:\n\t$(RUN) trtllm-run --engine_dir e\n"
    assert kind_of_text(makefile) == "makefile"
    assert severities(makefile, "1.2.1") == {"no-such-command": "error"}


@pytest.mark.parametrize(
    ("text", "rules"),
    [
        ("uv pip install -U tensorrt_llm\n", {"wheel-of-another-release"}),
        ("docker run --gpus all nvcr.io/nvidia/tensorrt-llm/release:latest trtllm-serve m\n", set()),
        ("ls trtllm-benchmarks/\ntrtllm-benchmarks/\n", set()),
        ("trtllm-refit --checkpoint_dir c\n", set()),
        ("trtllm-run --engine_dir e\n", {"no-such-command"}),
        ("trtllm-bench -m m prepare-dataset --output d --anything 1\n", set()),
        ("trtllm-build --output_dir a/E_1\npython3 run.py --engine_dir a/E2 --max_output_len 1\n", set()),
    ],
)  # fmt: skip
def test_names_that_exist_and_names_that_do_not(text: str, rules: set[str]) -> None:
    new = {"wheel-of-another-release", "no-such-command", "unknown-image", "misspelt-folder", "bench-option"}
    new |= {"bench-without-command", "container-of-another-release"}
    assert severities(text, "1.2.1").keys() & new == rules


def test_text_of_python_that_starts_a_build_is_read() -> None:
    text = 'import os\nPART = f"""\ntrtllm-build --checkpoint_dir c \\\n  --gemm_plugin bf --output_dir e\n"""\n'
    assert severities(text, "0.12.0")["bad-value"] == "error"


def test_a_script_of_a_common_name_may_be_anybodys() -> None:
    text = "python3 summarize.py --hf_model_location m --test_trt_llm\n"
    assert severities(text, target(read_document(text)))["unknown-flag"] == "info"
    assert severities(text, "0.12.0")["unknown-flag"] == "error"


def test_what_the_newest_release_no_longer_has_is_no_error_where_no_release_is_named() -> None:
    text = "trtllm-build\n"
    assert severities(text, target(read_document(text))).get("engine-flow-removed", "warning") == "warning"
    assert severities(text, "1.3.0rc22")["engine-flow-removed"] == "error"
    assert severities("trtllm-bench --version\n", "1.2.1") == {}


def test_a_correction_starts_no_two_thousand_processes_and_no_other_meaning() -> None:
    bls = "all_models/inflight_batcher_llm/tensorrt_llm_bls/config.pbtxt"
    text = f"python3 tools/fill_template.py -i {bls} triton_max_batch_size:2048,decoupled_mode:True\n"
    fixes = [one.fix.text for one in check_commands(read_document(text), "0.10.0")]
    assert any("bls_instance_count:64," in fix for fix in fixes) and "2048 " not in " ".join(fixes)
    properties = read_document("option.rolling_batch=trtllm\noption.max_batch_size=8\noption.quantization=fp8\n")
    fixes = [one.fix.text for one in check_commands(properties, "0.12.0")]
    assert fixes == ["did you mean option.max_rolling_batch_size?", "did you mean option.quantize?"]
