"""An older processor's settings take effect in every process that computes, and nothing computed depends on them."""

import os
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from notebook_factory import notebook, write_course
from playbook.course.notebooks import chapters
from playbook.course.progress import LineProgress
from playbook.course.runner import Limits, RunSpec, new_results, run
from processor_settings import SETTINGS
from serving import build_tiny_engine, serving

ROOT = Path(__file__).parents[2]
AVX2 = SETTINGS["avx2"]
NUMPY = """
try:
    from numpy._core._multiarray_umath import __cpu_dispatch__ as ways, __cpu_features__ as has
except ImportError:
    from numpy.core._multiarray_umath import __cpu_dispatch__ as ways, __cpu_features__ as has
print(*(way for way in ways if has[way]))
"""
OPENBLAS = """
import ctypes, pathlib, numpy
(library,) = (pathlib.Path(numpy.__file__).parents[1] / "numpy.libs").glob("libscipy_openblas*")
name = ctypes.CDLL(str(library)).scipy_openblas_get_corename64_
name.restype = ctypes.c_char_p
print(name().decode())
"""
OPENVINO = """
import numpy as np, openvino as ov
from openvino import opset13 as op
rows = op.parameter([-1, 64], np.float32)
product = op.softmax(op.matmul(rows, op.constant(np.ones((64, 128), np.float32)), False, False), -1)
compiled = ov.Core().compile_model(ov.Model([product], [rows]), "CPU", {"INFERENCE_PRECISION_HINT": "f32"})
compiled(np.ones((4, 64), np.float32))
print(*(node.get_rt_info()["primitiveType"].value for node in compiled.get_runtime_model().get_ops()))
"""
TORCH = "import torch; print(torch.backends.cpu.get_cpu_capability())"


def said(code: str, python: Path, settings: dict[str, str]) -> str:
    env = {name: value for name, value in os.environ.items() if name not in AVX2} | settings
    return subprocess.run([python, "-c", code], env=env, capture_output=True, text=True, check=True).stdout.strip()


def triton_python() -> Path:
    return ROOT / ".envs" / "triton" / "bin" / "python"


COURSE, TRITON = Path(sys.executable), triton_python()
COMPUTING = {
    "numpy": (NUMPY, COURSE),
    "openvino": (OPENVINO, COURSE),
    "openblas": (OPENBLAS, COURSE),
    "torch": (TORCH, COURSE),
    "numpy-triton": (NUMPY, TRITON),
    "openvino-triton": (OPENVINO, TRITON),
}


@pytest.mark.parametrize(("code", "python"), COMPUTING.values(), ids=COMPUTING)
def test_no_library_goes_beyond_avx2(code: str, python: Path) -> None:
    found = said(code, python, AVX2).lower()
    assert found and "512" not in found and "v4" not in found.split(), found
    if code is OPENBLAS:
        assert found == "haswell"


def test_a_processor_with_more_uses_more_by_default() -> None:
    """Else the test above would show nothing, where there is something to show."""
    if "avx512f" not in Path("/proc/cpuinfo").read_text(encoding="utf-8"):
        pytest.skip("this processor has no AVX-512")
    for code in (NUMPY, OPENVINO, TORCH):
        found = said(code, Path(sys.executable), {}).lower()
        assert "512" in found or "v4" in found, found


@pytest.mark.usefixtures("avx2")
def test_a_chapters_kernel_has_the_settings(tmp_path: Path) -> None:
    asked = f"import os\nassert {AVX2!r}.items() <= os.environ.items(), os.environ"
    write_course(tmp_path, c01_small=notebook(asked))
    out = tmp_path / "out"
    out.mkdir()
    course = chapters(tmp_path / "notebooks")
    spec = RunSpec(course, {}, "embedded", tmp_path / "workspace", out, Limits(120, 240), keep_going=False)
    results = new_results(spec)
    run(spec, results, LineProgress(lambda _: None))
    assert [result.status for result in results] == ["ok"], results[0].failure


@pytest.mark.server
@pytest.mark.usefixtures("avx2")
def test_tritons_server_and_its_stubs_have_the_settings(tmp_path: Path) -> None:
    """The stubs compute: they hold the engine and the tokenizer."""
    with serving(tmp_path / "repository", build_tiny_engine(tmp_path / "engine")) as server:
        family = psutil.Process(server.pid).children(recursive=True)
        computing = [one for one in family if "stub" in one.name() or "tritonserver" in one.name()]
        environments = {one.name(): one.environ() for one in computing}
    assert len(computing) >= 4, [one.name() for one in family]
    assert all(found.items() >= AVX2.items() for found in environments.values())


@pytest.fixture
def avx2(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in AVX2.items():
        monkeypatch.setenv(name, value)
