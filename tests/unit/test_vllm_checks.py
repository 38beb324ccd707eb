"""The lane of vLLM where some of several GPUs are taken: nvidia-smi is a stand-in that knows --id."""

from pathlib import Path

import pytest

from playbook.profile import load_profile
from serving_base.checks import Check
from vllm_serving.checks import checks

FIRST = "0, NVIDIA H100 80GB HBM3, 580.159.04, 9.0, 81559, 70000"
SECOND = "1, NVIDIA H100 80GB HBM3, 580.159.04, 9.0, 81559, 4"


@pytest.fixture
def two_gpus(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = tmp_path / "bin" / "nvidia-smi"
    program.parent.mkdir()
    program.write_text(
        f'#!/bin/sh\ncase "$*" in\n*--id=1*) echo "{SECOND}";;\n*) echo "{FIRST}"; echo "{SECOND}";;\nesac\n'
    )
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}:/usr/bin:/bin")
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)


def found(tmp_path: Path, profile: str) -> dict[str, Check]:
    return {check.name: check for check in checks(load_profile(profile), tmp_path)}


@pytest.mark.usefixtures("two_gpus")
def test_a_taken_first_gpu_is_named_with_the_way_around(tmp_path: Path) -> None:
    check = found(tmp_path, "hopper")["GPU memory in use"]
    assert (check.verdict, check.found) == ("missing", "by others on GPU 0")
    assert "CUDA_VISIBLE_DEVICES" in check.fix


@pytest.mark.usefixtures("two_gpus")
def test_only_the_gpus_that_the_run_sees_are_asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "1")
    seen = found(tmp_path, "hopper")
    assert (seen["GPU memory in use"].verdict, seen["GPUs"].found) == ("ok", "1 x NVIDIA H100 80GB HBM3")


@pytest.mark.usefixtures("two_gpus")
def test_too_few_visible_gpus_are_told_apart_from_too_few_gpus(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "1")
    check = found(tmp_path, "p5-vllm")["GPUs"]
    assert check.verdict == "missing" and check.fix.startswith("CUDA_VISIBLE_DEVICES is 1")
