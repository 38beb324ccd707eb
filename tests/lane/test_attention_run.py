"""Plain and fused attention by torch: the same script here, in a container, and in vLLM's Python."""

import os
from itertools import pairwise
from pathlib import Path

import pytest

from playbook.attention import compare_attention, score_bytes
from playbook.profile import load_profile
from playbook.stages import Workspace
from serving_base.attention_run import MACHINES, cpu_peak_bytes
from stand_ins import Machine


def test_fused_attention_gives_the_same_and_never_holds_the_scores(tmp_path: Path) -> None:
    found = compare_attention(Workspace(tmp_path / "workspace", load_profile("local")), [256, 512])
    assert (found.device, found.heads, found.head_size, found.dtype) == ("cpu", 8, 64, "float32")
    short, long = found.runs
    for run in (short, long):
        assert run.error < found.rounding
        assert run.plain_bytes > run.score_bytes == score_bytes(run.length, 8, "float32") > run.fused_bytes
        assert run.plain_s > 0 < run.fused_s
    assert long.plain_bytes > 3.5 * short.plain_bytes
    assert not list((tmp_path / "workspace").iterdir())


def test_peak_bytes_counts_what_lives_at_once(capfd: pytest.CaptureFixture[str]) -> None:
    import torch

    def one_after_the_other() -> None:
        for _ in range(3):
            torch.zeros(1000)

    def together() -> None:
        kept = [torch.zeros(1000) for _ in range(3)]
        assert len(kept) == 3

    assert 4000 <= cpu_peak_bytes(one_after_the_other) < 8000
    assert 12000 <= cpu_peak_bytes(together) < 16000
    assert capfd.readouterr().err == ""


def test_on_a_gpu_machine_it_runs_in_the_container(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    machine = Machine(tmp_path / "machine", "0.12.0").install()
    monkeypatch.setenv("PATH", f"{machine.programs}{os.pathsep}{os.environ['PATH']}")
    found = compare_attention(Workspace(tmp_path / "workspace", load_profile("p5-8b", "0.12.0")))
    (call,) = machine.calls("attention_run.py")
    assert call["place"] == "nvcr.io/nvidia/tritonserver:24.08-trtllm-python-py3"
    (docker,) = (each["argv"] for each in machine.calls("docker") if each["argv"][0] == "run")
    assert ("--gpus", "all") in pairwise(docker)
    assert [run.length for run in found.runs] == MACHINES["cpu"]["lengths"]  # a stand-in has no GPU
