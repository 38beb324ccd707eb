"""The family templates: fill_template.py, config.pbtxt files, and their reader."""

from pathlib import Path

import pytest

from check_cases import fixed, found, write_models
from model_server.triton.repository import ServingOptions, fill_templates, render_templates
from trtllm_check.lint.filling import needed_strings
from trtllm_check.lint.finding import Platform
from trtllm_check.lint.pbtxt import ConfigError, read_config, refusal
from trtllm_check.lint.reading import read_document
from trtllm_check.lint.rules.templates import check
from trtllm_check.releases import load_release
from trtllm_check.releases.templates import release_templates, template_releases

FILL = "python3 tools/fill_template.py -i repo"
ENGINE = f"{FILL}/tensorrt_llm/config.pbtxt triton_backend:tensorrtllm,triton_max_batch_size:4,decoupled_mode:true,"
ENGINE += "engine_dir:/engine,batching_strategy:inflight_fused_batching,max_queue_delay_microseconds:0,max_queue_size:0"
BUILD = "trtllm-build --checkpoint_dir ckpt --output_dir /engine"
PREPROCESSING = f"{FILL}/preprocessing/config.pbtxt triton_max_batch_size:4,preprocessing_instance_count:4,"
PREPROCESSING += "tokenizer_dir:/t"
BLS = f"{FILL}/tensorrt_llm_bls/config.pbtxt triton_max_batch_size:4,decoupled_mode:true,bls_instance_count:4"
QUANTIZE = "python3 quantize.py --model_dir m --qformat fp8 --kv_cache_dtype fp8 --output_dir ckpt"
PAGED = f"{BUILD} --use_paged_context_fmha enable"
FEATURES = ",encoder_input_features_data_type:TYPE_FP16"
LOGITS = ",logits_datatype:TYPE_FP32"
SED = "\nsed -i 's/[$]{max_queue_size}/0/' repo/tensorrt_llm/config.pbtxt"
OLD = ENGINE.replace("triton_backend:tensorrtllm,", "").replace(",max_queue_size:0", "")  # up to 0.9
STREAM = "curl localhost:8000/v2/models/ensemble/generate_stream -d "
STREAM += """'{"text_input": "<|begin_of_text|>Hi", "max_tokens": 5, "stream": true}'"""
SMALL = """name: "tensorrt_llm"
backend: "tensorrtllm"
max_batch_size: 4
input [ { name: "input_ids" data_type: TYPE_INT32 dims: [ -1 ] } ]
output [ { name: "output_ids" data_type: TYPE_INT32 dims: [ -1, -1 ] } ]
parameters { key: "gpt_model_path" value: { string_value: "/engine" } }
"""

CASES = [
    # fill_template.py
    ("0.12.0", ENGINE, []),
    ("0.8.0", ENGINE, ["1 unknown-variable info", "1 unknown-variable warning"]),  # triton_backend, max_queue_size
    ("0.19.0", ENGINE + FEATURES + LOGITS, []),
    ("0.20.0", ENGINE + FEATURES + LOGITS, []),  # uncertain: silent
    ("0.12.0", ENGINE.replace("engine_dir:/engine,", ""), ["1 unfilled-variable error"]),
    (
        "0.12.0",
        f"{FILL}/ensemble/config.pbtxt decoupled_mode:true",
        ["1 unfilled-variable error", "1 unknown-variable info"],
    ),
    (
        "0.12.0",
        f"{FILL}/ensemble/config.pbtxt decoupled_mode:true\n{FILL}/./ensemble/config.pbtxt triton_max_batch_size:4",
        ["1 unknown-variable info"],
    ),  # two commands on one file
    ("0.12.0", ENGINE.replace("max_queue_size:0", "x:0") + SED, ["1 unknown-variable warning"]),
    ("0.12.0", f"{FILL}/ensemble/config.pbtxt $SUBSTITUTIONS", []),
    ("0.12.0", f"for m in a b; do {FILL}/$m/config.pbtxt triton_max_batch_size:4; done", []),
    ("0.12.0", f"{FILL}/my_model/config.pbtxt triton_max_batch_size:4", []),
    ("1.3.0rc22", ENGINE, []),
    ("0.12.0", BLS, ["1 unfilled-variable warning"]),
    ("0.13.0", BLS, []),
    ("0.8.0", PREPROCESSING, ["1 unfilled-variable error"]),
    ("0.9.0", PREPROCESSING, []),
    # separators
    ("0.12.0", ENGINE + r",gpu_device_ids:0\,1", ["1 unescaped-separator error"]),
    ("0.16.0", ENGINE.replace("pbtxt ", "pbtxt '") + FEATURES + r",gpu_device_ids:0\,1'", []),
    ("0.12.0", ENGINE.replace("/engine,", "s3://bucket/engine,"), ["1 unescaped-separator error"]),
    # the engine behind them
    ("0.12.0", f"{BUILD}\n{ENGINE},enable_kv_cache_reuse:true", ["2 needs-paged-context-fmha error"]),
    ("0.12.0", f"{BUILD} --use_paged_context_fmha enable\n{ENGINE},enable_kv_cache_reuse:true", []),
    ("0.12.0", f"{ENGINE},enable_kv_cache_reuse:true", []),  # nobody knows how the engine is built
    (
        "0.19.0",
        f"{BUILD} --use_paged_context_fmha disable\n{ENGINE},enable_chunked_context:true{FEATURES}{LOGITS}",
        ["2 needs-paged-context-fmha error"],
    ),
    ("0.15.0", f"{QUANTIZE}\n{PAGED}\n{ENGINE}{FEATURES},enable_kv_cache_reuse:true", []),
    (
        "0.16.0",
        f"{QUANTIZE}\n{PAGED}\n{ENGINE}{FEATURES},enable_kv_cache_reuse:true",
        ["3 kv-reuse-wrong-answers error"],
    ),
    # instances
    ("0.12.0", PREPROCESSING, []),
    ("0.12.0", PREPROCESSING.replace("count:4", "count:1"), ["1 queue-instances info"]),
    ("0.12.0", PREPROCESSING.replace("count:4", "count:1").replace("size:4", "size:1"), []),
    # prompts and streams
    ("0.12.0", f"{ENGINE}\n{STREAM}", []),
    ("0.12.0", f"{ENGINE.replace('mode:true', 'mode:False')}\n{STREAM}", ["2 decoupled-needed error"]),
    ("0.12.0", f"{PREPROCESSING}\n{STREAM}", ["2 bos-twice warning"]),
    ("0.12.0", f"{PREPROCESSING},add_special_tokens:false\n{STREAM}", []),
    ("0.10.0", f"{PREPROCESSING}\n{STREAM}", []),  # off by default there
    ("0.10.0", f"{PREPROCESSING},add_special_tokens:true\n{STREAM}", ["2 bos-twice warning"]),
    ("0.12.0", STREAM, []),
    ("0.12.0", "python3 run.py --max_output_len 9 --input_text '<|begin_of_text|>Hi'", ["1 bos-twice warning"]),
    ("0.12.0", "python3 run.py --max_output_len 9 --no_add_special_tokens --input_text '<|begin_of_text|>Hi'", []),
    # config.pbtxt
    ("0.12.0", SMALL, []),
    ("0.12.0", SMALL.replace("4\n", "${triton_max_batch_size}\n", 1), ["3 unfilled-variable error"]),
    ("0.12.0", SMALL.replace("/engine", "${engine_dir}"), ["6 unfilled-variable error"]),
    ("0.12.0", SMALL.replace("/engine", ""), ["6 unfilled-variable error"]),
    ("0.12.0", SMALL.replace("tensorrtllm", "${triton_backend}"), ["2 unfilled-variable error"]),
    ("0.12.0", SMALL.replace("TYPE_INT32", "TYPE_INT23", 1), ["4 config-syntax error"]),
    ("0.12.0", SMALL.replace("dims: [ -1 ]", "dims: [ -1 "), ["4 config-syntax error"]),
    ("0.12.0", SMALL.replace("max_batch_size", "max_batchsize"), ["3 config-syntax error"]),
    ("0.12.0", SMALL + "instance_group [ { count: 2\n gpus: [ 0, 1 ] } ]", ["8 instance-group-on-gpus warning"]),
    ("0.12.0", SMALL + "instance_group [ { count: 1 kind: KIND_CPU } ]", []),
]


@pytest.mark.parametrize(("release", "text", "expected"), CASES)
def test_what_is_found(release: str, text: str, expected: object) -> None:
    assert found(check, text, release) == expected


@pytest.mark.parametrize(
    ("release", "text", "fragment"),
    [
        ("0.12.0", f"{FILL}/ensemble/config.pbtxt decoupled_mode:true", "config.pbtxt triton_max_batch_size:64"),
        ("0.17.0", ENGINE, "max_queue_size:0,encoder_input_features_data_type:TYPE_FP16,logits_datatype:TYPE_FP32"),
        ("0.12.0", ENGINE.replace("max_queue_size", "max_queu_size"), "max_queue_size:0"),
        ("0.12.0", ENGINE + ",gpu_device_ids:0,1", "max_queue_size:0"),
        ("1.2.1", f"{FILL}/ensemble/config.pbtxt triton_max_batch_size:8,logits_datatype:TYPE_FP32,1", r"TYPE_FP32\,1"),
        ("0.12.0", f"{BUILD}\n{ENGINE},enable_kv_cache_reuse:true", "--use_paged_context_fmha enable"),
        ("0.9.0", f"{QUANTIZE}\n{BUILD}\n{OLD},enable_kv_cache_reuse:true", "enable_kv_cache_reuse:false"),
        ("0.12.0", f"{ENGINE.replace('mode:true', 'mode:false')}\n{STREAM}", "decoupled_mode:true"),
        ("0.12.0", f"{PREPROCESSING}\n{STREAM}", "tokenizer_dir:/t,add_special_tokens:false"),
    ],
)
def test_the_corrected_command(release: str, text: str, fragment: str) -> None:
    commands = {one.fix.text for one in fixed(check, text, release)}
    assert len(commands) == 1 and fragment in commands.pop()


@pytest.mark.parametrize("release", template_releases())
def test_filled_templates_are_clean_and_unfilled_ones_are_not(tmp_path: Path, release: str) -> None:
    values = ServingOptions(Path("/srv/engine"), Path("/srv/tokenizer")).values()
    (tmp_path / "filled").mkdir()
    assert found(check, write_models(tmp_path / "filled", fill_templates(release, values)), release) == []
    (tmp_path / "raw").mkdir()
    left = found(check, write_models(tmp_path / "raw", render_templates(release)), release)
    said = {line.split(maxsplit=1)[1] for line in left}
    fails_when_asked = any(entry.get("form") for entry in needed_strings("tensorrt_llm_bls", release))
    assert said == {"unfilled-variable error"} | ({"unfilled-variable warning"} if fails_when_asked else set())
    assert len(left) > sum(len(spec.typed) for spec in release_templates(release).models.values())


LENGTH = 'name: "REQUEST_INPUT_LEN"\n    data_type: '
WIRING = [
    ("ensemble", 'value: "_INPUT_ID"', 'value: "_INPUT_IDX"', "reads _INPUT_ID, which no step gives"),
    ("ensemble", 'key: "input_lengths"', 'key: "input_length"', "the model has no input input_length"),
    ("ensemble", 'key: "OUTPUT"', 'key: "OUTPUTS"', "the model has no output OUTPUTS"),
    ("ensemble", 'value: "text_output"', 'value: "text"', "output text_output is given by no step"),
    ("preprocessing", f"{LENGTH}TYPE_INT32", f"{LENGTH}TYPE_INT64", "which is TYPE_INT64"),
]


@pytest.mark.parametrize(("model", "old", "new", "message"), WIRING)
def test_the_ensembles_wiring(tmp_path: Path, model: str, old: str, new: str, message: str) -> None:
    configs = fill_templates("0.12.0", ServingOptions(Path("/srv/engine"), Path("/srv/tokenizer")).values())
    assert old in configs[model]
    configs[model] = configs[model].replace(old, new, 1)
    write_models(tmp_path, configs)
    drafts = list(check(read_document(tmp_path), Platform(load_release("0.12.0"))))
    assert any(message in draft.message for draft in drafts), drafts
    assert {(draft.rule, draft.file) for draft in drafts} == {("ensemble-wiring", "ensemble/config.pbtxt")}


def test_a_parameter_with_a_number_is_told_its_one_form() -> None:
    (finding,) = fixed(check, SMALL.replace('string_value: "/engine"', "int_value: 4"), "0.12.0")
    assert "string_value" in finding.fix.text


def test_a_repository_without_a_model_and_one_of_another_name(tmp_path: Path) -> None:
    configs = fill_templates("0.12.0", ServingOptions(Path("/srv/engine"), Path("/srv/tokenizer")).values())
    configs["post"] = configs.pop("postprocessing")
    rules = [line.split(maxsplit=1)[1] for line in found(check, write_models(tmp_path, configs), "0.12.0")]
    assert sorted(rules) == ["config-syntax error", "ensemble-wiring error"]


def test_the_reader_takes_what_protobuf_takes() -> None:
    """Every text that loses one character: the reader may be the milder one, never the stricter."""
    text = SMALL + "# end\nversion_policy: { latest < num_versions: 1 > };\n"
    assert refusal(text) is None
    taken = 0
    for position in range(len(text)):
        shorter = text[:position] + text[position + 1 :]
        if refusal(shorter) is None:
            taken += 1
            read_config(shorter)
    assert taken > 20


@pytest.mark.parametrize(
    ("text", "line", "column"),
    [("a: {", 1, 5), ("a: 1\n  : 2", 2, 3), ("a [ 1 2 ]", 1, 7), ("a", 1, 2), ('a: "x\n', 1, 4), ("a: }", 1, 4)],
)
def test_where_the_reader_stops(text: str, line: int, column: int) -> None:
    with pytest.raises(ConfigError) as caught:
        read_config(text)
    assert (caught.value.line, caught.value.column) == (line, column)


def test_deep_nesting_is_no_crash() -> None:
    with pytest.raises(ConfigError):
        read_config("a {" * 5_000)


def test_the_last_of_two_values_holds_as_in_protobuf() -> None:
    assert read_config('backend: "python"\nbackend: "tensorrtllm"\n').text("backend") == "tensorrtllm"


STEPS = """name: "ensemble"
platform: "ensemble"
max_batch_size: 4
ensemble_scheduling {
  step [ {
    model_name: "tensorrt_llm"
    model_version: -1
    input_map { key: "input_ids" value: "_IDS" }
    input_map { key: "input_lengths" value: "_LENGTHS" }
    output_map { key: "output_ids" value: "_OUT" }
  } ]
}
"""


@pytest.mark.parametrize(("is_named", "expected"), [(True, {"config-refused", "ensemble-wiring"}), (False, set())])
def test_a_file_holds_all_that_the_server_reads_and_a_paste_may_not(is_named: bool, expected: set[str]) -> None:
    document = read_document(STEPS, "config.pbtxt", is_named=is_named)
    platform = Platform(load_release("0.12.0"))
    assert {one.rule for one in check(document, platform) if one.severity == "error"} == expected
