"""A finding that rests on a guessed release is a hint; what every release that fits the text refuses is none."""

import json

import pytest

from each import each
from trtllm_check.lint import check_commands, target
from trtllm_check.lint.reading import read_document
from trtllm_check.lint.supposing import suppose, supposed, watched

GONE = "vllm serve Qwen/Qwen3-8B --swap-space 4\n"
MISSPELT = "vllm serve Qwen/Qwen3-8B --max-model-length 8192\n"


def severities(text: str) -> dict[str, str]:
    document = read_document(text)
    return {one.rule: one.severity for one in check_commands(document, target(document))}


@each(
    ("before", "severity"),
    [
        ("", "info"),
        ("pip install vllm\n", "warning"),
        ("pip install 'vllm>=0.6'\n", "warning"),
        ("pip install 'vllm<0.11'\n", "info"),
        ("docker pull vllm/vllm-openai:latest\n", "warning"),
        ("pip install vllm==0.6.3\npip install vllm==0.8.5\n", "info"),
        ("pip install vllm==0.33.0\n", "error"),
    ],
)
def test_what_only_some_releases_refuse_counts_where_the_text_tells_one(before: str, severity: str) -> None:
    assert severities(before + GONE)["vllm-option-gone"] == severity


@each(
    ("text", "severity"),
    [
        ("vllm serve Qwen/Qwen3.5-35B-A3B --disable-log-requests\n", "warning"),  # a model of later releases only
        ("vllm serve Qwen/Qwen3-8B --disable-log-requests\n", "info"),
        (
            "export VLLM_BUILD_URL=x VLLM_BUILD_COMMIT=y\nvllm serve Qwen/Qwen3-8B --disable-log-requests\n",
            "warning",
        ),  # variables
        ("export VLLM_USE_V1=1\nvllm serve Qwen/Qwen3-8B --disable-log-requests\n", "info"),
    ],
)
def test_models_and_variables_tell_which_releases_fit(text: str, severity: str) -> None:
    assert severities(text)["vllm-option-gone"] == severity


@each(
    ("more", "known"),
    [
        ("", {"clone-of-another-release": "warning"}),
        ("--pre ", {}),  # of the branch
        ("tensorrt_llm==1.0.0 ", {"clone-of-another-release": "warning"}),  # the clone's own finding
    ],
)
def test_the_newest_wheel_and_the_newest_sources_are_two_releases(more: str, known: dict[str, str]) -> None:
    wheel = "pip install tensorrt_llm -U" if "==" not in more else "pip install"
    text = f"{wheel} {more}--extra-index-url https://pypi.nvidia.com\ngit clone -b main https://github.com/NVIDIA/TensorRT-LLM\n"
    found = {rule: one for rule, one in severities(text).items() if one != "info"}
    assert found == known


def test_what_no_release_takes_is_no_guess() -> None:
    assert severities(MISSPELT) == {"vllm-option": "error"}


def test_flags_of_tensorrt_llm_leave_the_releases_open_that_have_them() -> None:
    build = "trtllm-build --checkpoint_dir c --output_dir e --max_input_len 4 --max_seq_len 2\n"
    assert "max-input-len-ignored" not in {rule for rule, one in severities(build).items() if one != "info"}
    assert severities("trtllm-build --checkpoint_dir c --max_batch_sizes 4\n")["unknown-flag"] != "info"


def test_a_notebook_fills_in_the_names_of_python() -> None:
    source = ['NAME = "mine"\n', "! export NAME={NAME} && echo $NAME\n", "!vllm serve Qwen/Qwen3-8B\n"]
    cell: dict[str, object] = {
        "cell_type": "code",
        "source": source,
        "outputs": [],
        "metadata": {},
        "execution_count": None,
    }
    notebook = json.dumps({"cells": [cell], "metadata": {}, "nbformat": 4, "nbformat_minor": 5}, indent=1)
    assert severities(notebook) == {}
    assert severities("NAME=mine\nexport OTHER={NAME} && echo $NAME\nvllm serve Qwen/Qwen3-8B\n")["dollar-missing"]


def test_what_is_supposed_holds_inside_and_is_watched() -> None:
    with watched() as asked, suppose("vllm", "0.8.5"):
        assert (supposed("vllm"), supposed("modelopt")) == ("0.8.5", "")
    assert asked == {"vllm", "modelopt"}
    assert supposed("vllm") == ""


@each(
    ("imported", "severity"),
    [("LLM, SamplingParams", "error"), ("LLM", "info")],  # SamplingParams stands there since 0.11
)
def test_python_names_leave_the_releases_open_that_have_them(imported: str, severity: str) -> None:
    text = f"from tensorrt_llm import {imported}\nllm = LLM('m')\nouts = llm.generate(['a'])\nprint(outs[0].text)\n"
    assert severities(text)["python-use"] == severity


def test_a_model_by_its_name_is_of_the_releases_that_take_one() -> None:
    text = "from tensorrt_llm import LLM\nllm = LLM(model='m')\nouts = llm.generate(['a'])\nprint(outs[0].text)\n"
    assert severities(text)["python-use"] == "error"


def test_a_value_of_another_type_is_told_without_a_release() -> None:
    body = '{"text_input": "a", "max_tokens": "20", "bad_words": ""}'
    request = f"curl localhost:8000/v2/models/ensemble/generate -d '{body}'\n"
    assert severities(request)["request-body"] == "error"


@pytest.mark.parametrize(
    ("name", "expected"), [("OPTION_ENABLE_STREAMING", []), ("OPTION_ENABLE_STREEMING", ["warning"])]
)
def test_a_key_of_some_image_is_fine_where_the_text_names_none(name: str, expected: list[str]) -> None:
    document = read_document(f"docker run -e HF_MODEL_ID=/opt/ml/model -e {name}=true lmi\n")
    found = check_commands(document, target(document))
    assert [one.severity for one in found if one.rule.startswith("lmi-key")] == expected


@each(
    ("commands", "found"),
    [
        ("cd TensorRT-LLM/examples/llama\n", True),
        ("cd TensorRT-LLM\npython3 examples/llama/convert_checkpoint.py --model_dir m --output_dir c\n", True),
        ("cd TensorRT-LLM\ngit checkout v0.12.0\ncd examples/llama\n", False),
        ("cd TensorRT-LLM/examples/models/core/llama\n", False),
        ("pip install tensorrt_llm==0.12.0\ncd TensorRT-LLM/examples/llama\n", False),  # the clone is what is wrong
    ],
)
def test_the_branch_that_is_cloned_has_its_folders_whatever_the_release(commands: str, found: bool) -> None:
    text = f"git clone https://github.com/NVIDIA/TensorRT-LLM.git\n{commands}"
    assert (severities(text).get("file-of-a-clone") == "warning") is found


OF_OWN = """name: "tensorrt_llm"
backend: "tensorrtllm"
max_batch_size: 8
input [
  { name: "input_ids" data_type: TYPE_INT32 dims: [ -1 ] },
  { name: "NAME" data_type: TYPE_FP16 dims: [ -1 ] }
]
output [ { name: "output_ids" data_type: TYPE_INT32 dims: [ -1, -1 ] } ]
"""


@each(("name", "severity"), [("pictures", "info"), ("top_k", "warning")])
def test_an_input_of_nobody_may_be_of_a_backend_of_ones_own(name: str, severity: str) -> None:
    document = read_document(OF_OWN.replace("NAME", name), "config.pbtxt")
    found = {one.line: one.severity for one in check_commands(document, target(document)) if f" {name}" in one.message}
    assert found == {6: severity}


def test_an_option_of_another_models_script_tells_the_script() -> None:
    run = "python3 run.py --max_output_len 8 --engine_dir e --hf_model_dir m --OPTION t5\n"
    assert severities(run.replace("OPTION", "model_name")).get("unknown-flag", "info") == "info"
    assert severities(run.replace("OPTION", "tokenizer_dirs"))["unknown-flag"] != "info"


FILLS = "python3 tools/fill_template.py -i all_models/inflight_batcher_llm/preprocessing/config.pbtxt "


def test_a_variable_that_a_guessed_release_lacks_may_be_of_another() -> None:
    fill = f"{FILLS}tokenizer_dir:t,tokenizer_type:sp,triton_max_batch_size:64,preprocessing_instance_count:1,extra:1\n"
    assert severities(fill).get("unknown-variable", "info") == "info"


def test_a_release_that_a_variable_holds_is_not_known() -> None:
    build = "trtllm-build --checkpoint_dir c --output_dir e --gemm_plugin float16 --tp_size 2\n"
    assert severities(build)["flag-removed"] == "warning"
    assert severities(f'git checkout "$trt_llm_version"\n{build}')["flag-removed"] == "info"


def test_a_line_below_the_head_of_a_script_that_is_a_comment_is_not_run() -> None:
    script = f"#!/bin/bash\n{'echo' + chr(10)}{'# words' + chr(10)}" + "echo more\n" * 40
    request = 'curl -X POST localhost:8000/v2/models/ensemble/infer -d \'{"text_input": "Hello"}\'\n'
    found = severities(script + request)
    assert found and severities(f"{script}# {request}").get("missing-input", "info") == "info"
