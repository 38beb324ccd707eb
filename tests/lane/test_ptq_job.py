"""The quantization that runs in another Python: both layouts from one calibration, and what it took."""

import json
import math
import subprocess
import sys
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest
import torch

from cpu_serving.checkpoint import checkpoint_tensors
from ptq.job import JobResult, timed
from ptq.quantize import QuantizeOptions, batches, calibration_texts, quantize_checkpoint
from tiny_llama import MODEL_DIR

OPTIONS = QuantizeOptions(calib_samples=4, calib_max_length=32)


def run_job(folder: Path, **changes: Any) -> "subprocess.CompletedProcess[str]":
    job = {
        "model": str(MODEL_DIR),
        "out": str(folder / "out"),
        "options": asdict(OPTIONS),
        "texts": [list(ids) for ids in calibration_texts(MODEL_DIR, OPTIONS)],
        "layouts": {"tensorrt_llm": ".", "hf": "unified"},
        "device_map": None,
    }
    (folder / "job.json").write_text(json.dumps(job | changes))
    argv = [sys.executable, "-m", "ptq.job", str(folder / "job.json"), str(folder / "result.json")]
    return subprocess.run(argv, capture_output=True, text=True, check=False)


@pytest.fixture(scope="module")
def one_by_one(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What a job left that calibrated with one text after the other."""
    assert OPTIONS.calib_batch_size == 1
    folder = tmp_path_factory.mktemp("one")
    done = run_job(folder)
    assert done.returncode == 0, done.stderr
    return folder


def test_one_calibration_gives_both_layouts_with_the_same_scales(one_by_one: Path) -> None:
    found = JobResult(**json.loads((one_by_one / "result.json").read_text()))
    assert set(found.seconds) == {"load", "calibrate", "export tensorrt_llm", "export hf"}
    assert found.device == "CPU" and set(found.gpu_peak_gb.values()) == {0}
    ours = {tensor.name: tensor for tensor in checkpoint_tensors(one_by_one / "out")}
    unified = {tensor.name: tensor for tensor in checkpoint_tensors(one_by_one / "out" / "unified")}
    scale = ours["transformer.layers.0.mlp.proj.activation_scaling_factor"].value
    assert scale == unified["model.layers.0.mlp.down_proj.input_scale"].value
    assert found.checkpoint_bytes["hf"] == sum(
        p.stat().st_size for p in (one_by_one / "out/unified").glob("*.safetensors")
    )


def test_a_gpu_is_opened_before_its_memory_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """PyTorch 2.11 on an H200: reset_peak_memory_stats alone is an "Invalid device argument"."""
    opened: list[bool] = []

    def reset(device: int) -> None:
        if not opened:
            raise RuntimeError("Invalid device argument")

    fakes = {
        "device_count": lambda: 1,
        "init": lambda: opened.append(True),
        "reset_peak_memory_stats": reset,
        "synchronize": lambda device: None,
        "max_memory_allocated": lambda device: 3_000_000_000,
    }
    for name, fake in fakes.items():
        monkeypatch.setattr(torch.cuda, name, fake)
    found = JobResult()
    with timed(found, "load"):
        pass
    assert found.gpu_peak_gb == {"load": 3.0}


def test_a_batch_holds_texts_of_one_length_and_every_text_comes_once() -> None:
    texts = [[1, 2], [3], [4, 5], [6, 7], [8], [9, 9, 9]]
    assert list(batches(texts, 2)) == [[[1, 2], [4, 5]], [[3], [8]], [[6, 7]], [[9, 9, 9]]]
    assert list(batches(texts, 1)) == [[text] for text in texts]


def test_batches_calibrate_to_the_same_scales(one_by_one: Path, tmp_path: Path) -> None:
    quantize_checkpoint(MODEL_DIR, tmp_path / "out", replace(OPTIONS, calib_batch_size=3))
    amax = []
    for folder in (one_by_one, tmp_path):
        tensors = checkpoint_tensors(folder / "out")
        amax.append({t.name: t.value or 0.0 for t in tensors if "activation_scaling" in t.name})
    assert amax[0] and amax[0].keys() == amax[1].keys()
    assert all(math.isclose(amax[0][name], amax[1][name], rel_tol=0.02) for name in amax[0])  # BF16 rounds by shape


def test_a_format_that_does_not_exist_is_refused_before_the_model_is_read(tmp_path: Path) -> None:
    done = run_job(tmp_path, options=asdict(OPTIONS) | {"qformat": "fp7"}, model="/nowhere")
    assert done.returncode == 1 and "unknown qformat 'fp7'" in done.stderr
