import socket
from pathlib import Path

import pytest

from playbook import preflight
from playbook.profile import load_profile


def by_name(checks: list[preflight.Check]) -> dict[str, preflight.Check]:
    return {check.name: check for check in checks}


def test_local_profile_needs_no_gpu_and_no_token(tmp_path: Path) -> None:
    checks = by_name(preflight.check_machine(load_profile("local"), tmp_path / "not" / "yet"))
    assert {"system", "python", "cores", "memory", "disk", "torch", "tritonserver"} <= set(checks)
    assert not {"GPUs", "HF_TOKEN", "docker"} & set(checks)


def test_p5_on_a_laptop_is_missing_what_a_laptop_lacks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(preflight, "_nvidia_smi", lambda: ([], ""))
    monkeypatch.delenv("HF_TOKEN", raising=False)
    checks = by_name(preflight.check_machine(load_profile("p5"), tmp_path))
    assert (checks["GPUs"].verdict, checks["HF_TOKEN"].verdict) == ("missing", "missing")
    assert "p5.48xlarge" in checks["GPUs"].fix and "meta-llama/Meta-Llama-3-70B-Instruct" in checks["HF_TOKEN"].fix
    assert checks["disk"].needed.startswith(">= 423 GB")


def test_p5_with_eight_gpus_is_ready(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(preflight, "_nvidia_smi", lambda: (["NVIDIA H100 80GB HBM3"] * 8, "550.54.15"))
    monkeypatch.setenv("HF_TOKEN", "hf_secret_planted")
    checks = by_name(preflight.check_machine(load_profile("p5"), tmp_path))
    assert (checks["GPUs"].verdict, checks["HF_TOKEN"].found) == ("ok", "set")
    assert "hf_secret_planted" not in str(checks)


@pytest.mark.parametrize(("gpus", "verdict"), [(7, "missing"), (8, "ok")])
def test_world_size_decides(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, gpus: int, verdict: str) -> None:
    monkeypatch.setattr(preflight, "_nvidia_smi", lambda: (["H100"] * gpus, "550"))
    assert by_name(preflight.check_machine(load_profile("p5"), tmp_path))["GPUs"].verdict == verdict


def test_missing_things_say_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PLAYBOOK_TRITON_ENV", str(tmp_path / "nothing"))
    monkeypatch.setattr(preflight.sys, "version_info", (3, 13, 0, "final", 0))
    checks = by_name(preflight.check_machine(load_profile("local"), tmp_path))
    for name in ("tritonserver", "python"):
        assert checks[name].verdict == "missing" and "bootstrap.py" in checks[name].fix


def test_a_taken_port_is_a_note(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        monkeypatch.setattr(preflight, "TRITON_PORTS", {"HTTP": port})
        check = by_name(preflight.check_machine(load_profile("local"), tmp_path))[f"port {port} (HTTP)"]
    assert (check.found, check.verdict) == ("taken", "note")
