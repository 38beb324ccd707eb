import os
import socket
import sys
from pathlib import Path

import pytest

from gpu_serving import checks as gpu_machine
from playbook import preflight
from playbook.profile import load_profile
from stand_in_docker import keep_image
from stand_ins import Machine
from trtllm_check.releases import load_release


def by_name(checks: list[preflight.Check]) -> dict[str, preflight.Check]:
    return {check.name: check for check in checks}


def test_local_profile_needs_no_gpu_and_no_token(tmp_path: Path) -> None:
    checks = by_name(preflight.check_machine(load_profile("local"), tmp_path / "not" / "yet"))
    assert {"system", "python", "cores", "memory", "disk", "torch", "tritonserver"} <= set(checks)
    assert not {"GPUs", "HF_TOKEN", "docker"} & set(checks)


def test_p5_on_a_laptop_is_missing_what_a_laptop_lacks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpu_machine, "_nvidia_smi", lambda: ([], ""))
    monkeypatch.delenv("HF_TOKEN", raising=False)
    checks = by_name(preflight.check_machine(load_profile("p5"), tmp_path))
    assert (checks["GPUs"].verdict, checks["HF_TOKEN"].verdict) == ("missing", "missing")
    assert "p5.48xlarge" in checks["GPUs"].fix and "meta-llama/Meta-Llama-3-70B-Instruct" in checks["HF_TOKEN"].fix
    assert checks["disk"].needed.startswith(">= 423 GB")


def test_p5_with_eight_gpus_is_ready(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpu_machine, "_nvidia_smi", lambda: (["NVIDIA H100 80GB HBM3"] * 8, "550.54.15"))
    monkeypatch.setenv("HF_TOKEN", "hf_secret_planted")
    checks = by_name(preflight.check_machine(load_profile("p5"), tmp_path))
    assert (checks["GPUs"].verdict, checks["HF_TOKEN"].found) == ("ok", "set")
    assert "hf_secret_planted" not in str(checks)


@pytest.mark.parametrize(("gpus", "verdict"), [(7, "missing"), (8, "ok")])
def test_world_size_decides(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, gpus: int, verdict: str) -> None:
    monkeypatch.setattr(gpu_machine, "_nvidia_smi", lambda: (["H100"] * gpus, "550"))
    assert by_name(preflight.check_machine(load_profile("p5"), tmp_path))["GPUs"].verdict == verdict


def test_missing_things_say_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PLAYBOOK_TRITON_ENV", str(tmp_path / "nothing"))
    monkeypatch.setattr(sys, "version_info", (3, 13, 0, "final", 0))
    checks = by_name(preflight.check_machine(load_profile("local"), tmp_path))
    for name in ("tritonserver", "python"):
        assert checks[name].verdict == "missing" and "bootstrap.py" in checks[name].fix


def test_a_taken_port_is_a_note(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        monkeypatch.setattr(preflight, "TRITON_PORTS", (port, port, port))
        check = by_name(preflight.check_machine(load_profile("local"), tmp_path))[f"port {port} (HTTP)"]
    assert (check.found, check.verdict) == ("taken", "note")


# The checks of a GPU machine, each seen to fire, on a machine of stand-ins.


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Machine:
    """A P5 whose container was pulled; its programs come first on PATH."""
    installed = Machine(tmp_path / "machine", "0.12.0").install()
    monkeypatch.setenv("PATH", f"{installed.programs}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("HF_TOKEN", "hf_secret_planted")
    keep_image(installed, load_release("0.12.0").image)
    return installed


def look(machine: Machine, release: str = "0.12.0") -> dict[str, preflight.Check]:
    return by_name(preflight.check_machine(load_profile("p5", release), machine.folder))


def test_a_p5_of_stand_ins_lacks_nothing_but_disk(machine: Machine) -> None:
    checks = look(machine)
    assert {name for name, check in checks.items() if check.verdict == "missing"} <= {"disk"}
    assert checks["GPUs"].found == "8 x NVIDIA H100 80GB HBM3"
    assert "for endpoint usage" in checks["quota"].needed
    assert "hf_secret_planted" not in str(checks)


def test_a_development_build_in_the_container_is_seen(machine: Machine) -> None:
    check = look(machine)["tensorrt_llm in the container"]
    assert (check.found, check.needed, check.verdict) == ("0.12.0.dev2024080600", "0.12.0", "note")
    assert "the known one: its own parser applies" in check.fix


def test_a_release_build_in_the_container_is_right(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    machine = Machine(tmp_path / "machine", "1.2.1").install()
    monkeypatch.setenv("PATH", f"{machine.programs}{os.pathsep}{os.environ['PATH']}")
    keep_image(machine, load_release("1.2.1").image)
    assert look(machine, "1.2.1")["tensorrt_llm in the container"].verdict == "ok"


@pytest.mark.parametrize(
    ("without", "name", "fix"),
    [
        ("accelerate", "accelerate in the container", "pip install accelerate"),
        ("cuda", "CUDA in torch in the container", "driver"),
        ("tensorrt_llm", "tensorrt_llm in the container", "container of the profile's release"),
        ("torch", "tools in the container", "find out why"),
    ],
)
def test_what_the_container_lacks_is_found(machine: Machine, without: str, name: str, fix: str) -> None:
    machine.fail("nothing", without=[without])
    check = look(machine)[name]
    assert check.verdict == "missing"
    assert fix in check.fix


def test_docker_without_the_container_toolkit_is_found(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    machine.fail("no container toolkit")
    monkeypatch.setenv("PATH", f"{machine.programs}:/usr/bin:/bin")
    check = look(machine)["docker's GPU runtime"]
    assert check.verdict == "missing"
    assert "nvidia-ctk" in check.fix


def test_docker_that_does_not_answer_is_found(machine: Machine) -> None:
    (machine.programs / "docker").write_text("#!/bin/sh\necho permission denied\nexit 1\n")
    check = look(machine)["docker's GPU runtime"]
    assert (check.found, check.verdict) == ("docker does not answer: permission denied", "missing")
    assert "group docker" in check.fix


def test_a_container_that_was_not_pulled_is_a_note(machine: Machine) -> None:
    (machine.folder / "images.json").unlink()
    checks = look(machine)
    assert checks["container"].verdict == "note"
    assert checks["container"].fix.startswith(f"docker pull {load_release('0.12.0').image}")
    assert not any("in the container" in name for name in checks)


def test_a_workspace_beside_the_nvme_disks_is_a_note(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    nvme = machine.folder / "nvme"
    nvme.mkdir()
    monkeypatch.setattr(gpu_machine, "NVME", nvme)
    assert look(machine)["NVMe"].verdict == "note"
    on_it = by_name(preflight.check_machine(load_profile("p5"), nvme / "workspace"))
    assert on_it["NVMe"].verdict == "ok"
