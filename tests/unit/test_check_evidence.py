"""The release that a text is for is told by what it names, and the report says by which."""

import json

import pytest

from trtllm_check.lint import check_commands, target
from trtllm_check.lint.evidence import evidence, facts_release
from trtllm_check.lint.reading import read_document
from trtllm_check.releases import known_releases

BUILD = "trtllm-build --checkpoint_dir c --max_batch_size 8\n"


@pytest.mark.parametrize(
    ("text", "release"),
    [
        ("pip install tensorrt_llm==0.12.0", "0.12.0"),
        ("pip install tensorrt-llm==0.17.0.post1", "0.17.0"),
        ("git clone -b v0.10.0 https://github.com/NVIDIA/TensorRT-LLM.git", "0.10.0"),
        ("git clone https://github.com/triton-inference-server/tensorrtllm_backend.git --branch v0.16.0", "0.16.0"),
        ("docker pull nvcr.io/nvidia/tritonserver:24.08-trtllm-python-py3", "0.12.0"),
        ("docker pull mirror.example/nvidia/tritonserver:24.08-trtllm-python-py3", "0.12.0"),
        ("docker pull nvcr.io/nvidia/tensorrt-llm/release:1.2.1", "1.2.1"),
        ("# djl-inference:0.32.0-tensorrtllm0.12.0-cu125", "0.12.0"),
        ("[TensorRT-LLM] TensorRT-LLM version: 0.11.0", "0.11.0"),
        ("see https://github.com/NVIDIA/TensorRT-LLM/tree/v0.9.0/examples", "0.9.0"),
    ],
)
def test_what_tells_a_release(text: str, release: str) -> None:
    found = target(read_document(f"{text}\n{BUILD}"))
    assert found.release == release
    assert "line 1" in found.how and not found.guessed


def test_variables_are_known_before_a_release_is_told() -> None:
    text = "TAG=v0.13.0\nREPO=https://github.com/NVIDIA/TensorRT-LLM.git\ngit clone -b $TAG $REPO\n"
    found = target(read_document(text + BUILD))
    assert (found.release, "line 3" in found.how) == ("0.13.0", True)


def test_what_is_installed_counts_more_than_a_link() -> None:
    text = "https://github.com/NVIDIA/TensorRT-LLM/blob/v0.9.0/x\npip install tensorrt_llm==0.13.0\n"
    assert [one.release for one in evidence(text)] == ["0.13.0", "0.9.0"]


def test_flags_tell_where_nothing_else_does() -> None:
    found = target(read_document(f"{BUILD.strip()} --max_output_len 5\n"))
    assert found.release == "0.11.0"
    assert "--max_output_len of trtllm-build" in found.how


def test_the_newest_is_taken_where_nothing_tells_and_that_is_said() -> None:
    found = target(read_document('{"text_input": "a"}', "request"))
    assert (found.release, found.guessed) == (known_releases()[-1], True)
    assert "the newest" in found.how


OLD_LOG = "\n```\n[TensorRT-LLM] TensorRT-LLM version: 0.9.0.dev2024020600\n```\n"
LATER = "```bash\ntrtllm-build --checkpoint_dir c{} --max_seq_len 3100 --output_dir e{}\n```\n"


@pytest.mark.parametrize(
    ("text", "release"),
    [
        (LATER.format(1, 1) + LATER.format(2, 2) + OLD_LOG, ""),  # old output beside commands of a later release
        (LATER.format(1, 1) + OLD_LOG, "0.9.0"),  # one command may be what went wrong
        (LATER.format(1, 1) + LATER.format(2, 2) + OLD_LOG + "unrecognized arguments: --max_seq_len\n", "0.9.0"),
    ],
)
def test_old_output_does_not_tell_the_release_of_newer_commands(text: str, release: str) -> None:
    found = target(read_document(text))
    assert found.release == release if release else found.release != "0.9.0"


@pytest.mark.parametrize(
    ("options", "severity"),
    [("--use_gemm_plugin float16", "warning"), ("--use_lookup_plugin float16 --gemm_plugin float16", "error")],
)
def test_options_of_the_first_build_may_be_of_its_release(options: str, severity: str) -> None:
    text = f"trtllm-build --checkpoint_dir c --output_dir e {options}\n"
    document = read_document(text)
    found = check_commands(document, target(document))
    assert {one.severity for one in found if one.rule == "unknown-flag"} == {severity}


def test_a_release_that_is_asked_for_stands_above_the_text() -> None:
    assert str(target(read_document("pip install tensorrt_llm==0.12.0\n"), "0.14.0")) == "0.14.0"


def test_a_build_that_is_asked_for_is_judged_as_its_release() -> None:
    found = target(read_document(BUILD), "0.12.0.dev2024073000")
    assert (found.release, "0.12.0.dev2024073000" in found.how) == ("0.12.0", True)
    assert target(read_document(BUILD), known_releases()[-1]).release == known_releases()[-1]
    assert target(read_document(BUILD), "9.0.0rc1").release == "9.0.0rc1"  # which is refused where it is read


@pytest.mark.parametrize(
    "text", ["pip install tensorrt_llm==0.7.1\n", "docker pull nvcr.io/nvidia/tritonserver:24.01-trtllm-python-py3\n"]
)
def test_of_a_release_before_the_first_only_what_holds_for_all_is_said(text: str) -> None:
    found = target(read_document(f"{text}{BUILD}"))
    assert (found.release, found.earlier) == (known_releases()[0], True)
    removed = f"{text}trtllm-build --checkpoint_dir c --output_dir e --use_gemm_plugin float16\n"  # of 0.7 itself
    assert check_commands(removed, target(read_document(removed))) == []
    assert target(read_document(BUILD), "0.7.1").earlier and not target(read_document(BUILD), "0.8.0").earlier


EARLY = "from tensorrt_llm.hlapi import LLM\nfrom tensorrt_llm.runtime import LoraManager, to_word_list_format\n"


@pytest.mark.parametrize(
    ("text", "release", "found"),
    [
        (f"# tensorrt_llm==0.7.1\n{EARLY}", "", [(2, "tensorrt_llm.hlapi")]),
        (EARLY, "0.7.1", [(1, "tensorrt_llm.hlapi")]),
        (EARLY, "0.5.0", [(1, "tensorrt_llm.hlapi"), (2, "tensorrt_llm.runtime.LoraManager")]),
        (f"# tensorrt_llm==0.9.0\n{EARLY}", "", [(3, "tensorrt_llm.runtime.LoraManager")]),
    ],
)
def test_names_of_python_are_known_before_the_first_release(
    text: str, release: str, found: list[tuple[int, str]]
) -> None:
    said = check_commands(text, target(read_document(text), release))
    assert [
        (one.line, one.severity, one.message.split()[-2 if one.message.endswith("yet") else -1]) for one in said
    ] == [(line, "error", name) for line, name in found]


def test_a_release_without_facts_is_read_by_the_nearest_ones() -> None:
    """What the neighbour's facts refuse is no more than a warning: the text's own release may take it."""
    text = f"pip install tensorrt_llm==9.0.0\n{BUILD.rstrip()} --wings 2\n"
    found = target(read_document(text))
    assert (found.release, found.near, "9.0.0" in found.how) == (known_releases()[-1], True, True)
    assert {one.severity for one in check_commands(text, found)} <= {"warning", "info"}
    assert "error" in {one.severity for one in check_commands(text, found.release)}


@pytest.mark.parametrize(
    ("written", "release"),
    [
        ("v0.12.0", "0.12.0"),
        ("0.12", "0.12.0"),
        ("0.18.1", "0.18.2"),
        ("1.2.0rc3", "1.2.0"),
        ("1.0.3", "1.0.0"),
        ("0.7.1", ""),
    ],
)
def test_builds_and_patches_share_the_facts_of_their_release(written: str, release: str) -> None:
    assert facts_release(written) == release


def test_a_notebooks_image_tells_it_too() -> None:
    source = ["image = 'djl-inference:0.32.0-tensorrtllm0.12.0-cu125'\n", "env = {'HF_MODEL_ID': 'm'}\n"]
    text = json.dumps({"nbformat": 4, "cells": [{"cell_type": "code", "source": source}]})
    assert target(read_document(text, "notebook")).release == "0.12.0"


@pytest.mark.parametrize(
    ("comment", "release"),
    [
        ("# engine options for TensorRT-LLM 1.0.0", "1.0.0"),
        ("# tested on 4 x A10G, TensorRT-LLM v0.12.0", "0.12.0"),
        ("# needs TensorRT-LLM 0.12.0 or newer", ""),
        ("# up to TensorRT-LLM 0.12.0", ""),
        ("# TensorRT-LLM 0.12.0\n# TensorRT-LLM 0.14.0", ""),
    ],
)
def test_a_comment_names_the_release_where_it_names_one(comment: str, release: str) -> None:
    found = target(read_document(f"{comment}\nmkdir -p engines\n{BUILD}"))
    assert (found.release if "TensorRT-LLM" in found.how else "") == release


def test_a_setting_that_was_commented_out_tells_nothing() -> None:
    text = 'IMAGE="/images/own.sqsh"\n' + BUILD
    of_another = "#IMAGE=nvcr.io/nvidia/tensorrt-llm/release:1.0.0\n"
    assert "1.0.0" not in str(target(read_document(of_another + text)))
    assert target(read_document(of_another + BUILD)).release == "1.0.0"  # nothing takes its place


def test_who_builds_engines_means_a_release_that_has_them() -> None:
    found = target(read_document(BUILD))
    assert (found.release, found.guessed) == ("1.2.1", True)
    assert "trtllm-build" in found.how


def test_a_wheel_without_a_version_is_the_newest_where_nobody_tells_another() -> None:
    install = "pip install -U tensorrt_llm\ntrtllm-serve model\n"
    for text, found in ((install, []), (f"{BUILD}{install}", ["wheel-of-another-release"])):
        document = read_document(text)
        assert [one.rule for one in check_commands(document, target(document)) if "wheel" in one.rule] == found


def test_a_value_that_another_release_takes_is_no_warning_where_nobody_tells_the_release() -> None:
    file = "cat > o.yml <<EOF\ncache_transceiver_config:\n  backend: {}\nEOF\n"
    text = f"{file}trtllm-serve m --extra_llm_api_options o.yml\n"
    said = {}
    for value in ("ucx", "nothing"):
        document = read_document(text.format(value))
        said[value] = [
            one.severity for one in check_commands(document, target(document)) if one.rule == "llm-option-refused"
        ]
    assert said == {"ucx": ["info"], "nothing": ["warning"]}


def test_the_container_that_tells_the_release_is_no_other_release() -> None:
    for image, severity in (("1.3.0rc15", "info"), ("1.0.0", None)):
        document = read_document(f"docker pull nvcr.io/nvidia/tensorrt-llm/release:{image}\n")
        found = [one.severity for one in check_commands(document, target(document)) if "container-of" in one.rule]
        assert found == ([severity] if severity else [])


def test_templates_that_nobody_fills_with_a_batch_size_are_of_an_earlier_release() -> None:
    fill = "python3 tools/fill_template.py -i r/{}/config.pbtxt tokenizer_dir:/t,tokenizer_type:llama{}\n"
    for last, severities in (("", {"info"}), (",triton_max_batch_size:8", {"warning"})):
        document = read_document(BUILD + fill.format("preprocessing", "") + fill.format("postprocessing", last))
        found = [one for one in check_commands(document, target(document)) if one.rule == "unfilled-variable"]
        assert {one.severity for one in found} == severities


CONVERTED = "python /opt/{path}tensorrtllm_backend/tensorrt_llm/examples/llama/convert_checkpoint.py --model_dir m\n"
TYPED = "trtllm-build --checkpoint_dir c --gemm_plugin float16 --max_batch_size 8 --strongly_typed\n"


def rules(text: str) -> set[str]:
    document = read_document(text)
    return {one.rule for one in check_commands(document, target(document)) if one.severity != "info"}


def test_a_path_tells_the_release_of_what_lies_in_it() -> None:
    assert target(read_document(CONVERTED.format(path="v0.8.0/") + TYPED)).release == "0.8.0"
    assert "flag-removed" not in rules(CONVERTED.format(path="v0.8.0/") + TYPED)
    assert "flag-removed" in rules(CONVERTED.format(path="") + TYPED)


def test_a_wheel_that_only_lends_its_libraries_tells_no_release() -> None:
    wheel = "https://pypi.nvidia.com/tensorrt-llm/tensorrt_llm-0.16.0-cp312-cp312-linux_x86_64.whl"
    assert [one.release for one in evidence(f"pip install {wheel}")] == ["0.16.0"]
    assert evidence(f"TRTLLM_PRECOMPILED_LOCATION={wheel} pip install -e .") == []


@pytest.mark.parametrize(("folder", "found"), [("build/", False), ("", True)])
def test_a_clone_needs_no_tag_where_its_own_build_tells_the_release(folder: str, found: bool) -> None:
    text = (
        "git clone https://github.com/NVIDIA/TensorRT-LLM.git\ncd TensorRT-LLM\npython3 scripts/build_wheel.py\n"
        f"pip install {folder}tensorrt_llm-1.2.0-cp312-cp312-linux_x86_64.whl\n"
    )
    assert ("clone-of-another-release" in rules(text)) == found


def test_a_variable_that_came_later_counts_more_than_one_that_is_left_over() -> None:
    fill = "python3 tools/fill_template.py -i all_models/inflight_batcher_llm/{}/config.pbtxt {}\n"
    old = fill.format("preprocessing", "tokenizer_dir:/m,tokenizer_type:auto,triton_max_batch_size:8")
    assert target(read_document(old)).release == "0.8.0"
    new = fill.format("tensorrt_llm", "triton_backend:tensorrtllm,triton_max_batch_size:8,engine_dir:/e")
    assert target(read_document(old + new)).release != "0.8.0"


@pytest.mark.parametrize(("month", "found"), [("23.10", False), ("24.08", True)])
def test_a_word_of_the_first_backend_is_right_for_it(month: str, found: bool) -> None:
    image = f"docker run --gpus all nvcr.io/nvidia/tritonserver:{month}-trtllm-python-py3 bash\n"
    fill = (
        "python3 tools/fill_template.py -i all_models/inflight_batcher_llm/tensorrt_llm/config.pbtxt "
        "decoupled_mode:true,engine_dir:/e,batch_scheduler_policy:guaranteed_completion\n"
    )
    assert ("parameter-value" in rules(image + fill)) == found


@pytest.mark.parametrize(
    ("call", "found"), [('retrieve(framework="djl-deepspeed", version="0.27.0")', False), ("x", True)]
)
def test_a_call_that_looks_an_image_up_tells_it(call: str, found: bool) -> None:
    settings = "engine=DeepSpeed\noption.model_id=org/model\noption.rolling_batch=deepspeed\n"
    text = f"```python\nimage = image_uris.{call}\n```\n\n```\n{settings}```\n"
    assert ("lmi-word" in rules(text)) == found
