"""The quantization that runs in another Python: both layouts from one calibration, and what it took."""

import json
import subprocess
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any

from cpu_serving.checkpoint import checkpoint_tensors
from ptq.job import JobResult
from ptq.quantize import QuantizeOptions, calibration_texts
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


def test_one_calibration_gives_both_layouts_with_the_same_scales(tmp_path: Path) -> None:
    done = run_job(tmp_path)
    assert done.returncode == 0, done.stderr
    found = JobResult(**json.loads((tmp_path / "result.json").read_text()))
    assert set(found.seconds) == {"load", "calibrate", "export tensorrt_llm", "export hf"}
    assert found.device == "CPU" and set(found.gpu_peak_gb.values()) == {0}
    ours = {tensor.name: tensor for tensor in checkpoint_tensors(tmp_path / "out")}
    unified = {tensor.name: tensor for tensor in checkpoint_tensors(tmp_path / "out" / "unified")}
    scale = ours["transformer.layers.0.mlp.proj.activation_scaling_factor"].value
    assert scale == unified["model.layers.0.mlp.down_proj.input_scale"].value
    assert found.checkpoint_bytes["hf"] == sum(
        p.stat().st_size for p in (tmp_path / "out/unified").glob("*.safetensors")
    )


def test_a_format_that_does_not_exist_is_refused_before_the_model_is_read(tmp_path: Path) -> None:
    done = run_job(tmp_path, options=asdict(OPTIONS) | {"qformat": "fp7"}, model="/nowhere")
    assert done.returncode == 1 and "unknown qformat 'fp7'" in done.stderr
