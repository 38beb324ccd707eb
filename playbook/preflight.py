"""Is this machine ready for a profile? Each check says what it found, what is needed, and what to do."""

import importlib.metadata
import os
import platform
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import psutil

from playbook.errors import EnvironmentProblem
from playbook.profile import Profile, gpus
from playbook.releases import load_release

Verdict = Literal["ok", "missing", "note"]
EMBEDDED_NEEDS = {"cores": 2, "memory_gib": 4, "disk_gb": 5}
TRITON_PORTS = {"HTTP": 8000, "gRPC": 8001, "metrics": 8002}
CHECKPOINT_COPIES = 3  # the download, the FP8 checkpoint and the engine: at most three times the BF16 weights
GIB = 2**30


@dataclass(frozen=True)
class Check:
    """One line of the preflight table. ``missing`` stops the chapter, ``note`` does not."""

    name: str
    found: str
    needed: str
    verdict: Verdict
    fix: str = ""


def check_machine(profile: Profile, workspace: Path) -> list[Check]:
    """Check this machine for ``profile``; reads only, starts nothing and downloads nothing."""
    checks = [*_host(), *_python()]
    if profile.lane == "embedded":
        return [*checks, *_embedded(workspace), *_ports()]
    return [*checks, *_gpu_host(profile, workspace), *_ports()]


def _verdict(holds: bool) -> Verdict:
    return "ok" if holds else "missing"


def _host() -> Iterator[Check]:
    system, machine = platform.system(), platform.machine()
    yield Check(
        "system",
        f"{system} {machine}",
        "Linux x86_64",
        _verdict((system, machine) == ("Linux", "x86_64")),
        "use a Linux machine with an x86-64 processor; the wheels and the server exist for nothing else",
    )


def _python() -> Iterator[Check]:
    version = sys.version_info
    yield Check(
        "python",
        platform.python_version(),
        ">= 3.11, < 3.13",
        _verdict((3, 11) <= version[:2] < (3, 13)),
        "run python3 playbook/bootstrap.py with Python 3.11",
    )


def _embedded(workspace: Path) -> Iterator[Check]:
    cores, memory_gib = usable_cores(), psutil.virtual_memory().total / GIB
    disk_gb = shutil.disk_usage(_existing(workspace)).free / 1e9
    yield Check(
        "cores",
        str(cores),
        f">= {EMBEDDED_NEEDS['cores']}",
        _verdict(cores >= EMBEDDED_NEEDS["cores"]),
        "use a machine, or a container limit, with two cores",
    )
    yield Check(
        "memory",
        f"{memory_gib:.0f} GiB",
        f">= {EMBEDDED_NEEDS['memory_gib']} GiB",
        _verdict(memory_gib >= EMBEDDED_NEEDS["memory_gib"]),
        "close other programs, or use a larger machine",
    )
    yield Check(
        "disk",
        f"{disk_gb:.0f} GB free",
        f">= {EMBEDDED_NEEDS['disk_gb']} GB",
        _verdict(disk_gb >= EMBEDDED_NEEDS["disk_gb"]),
        "free space, or set another workspace",
    )
    for package in ("torch", "nvidia-modelopt", "openvino-genai", "tritonclient"):
        yield _package(package)
    yield _triton_server()


def _package(name: str) -> Check:
    try:
        found = importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return Check(name, "not installed", "installed", "missing", "run python3 playbook/bootstrap.py")
    return Check(name, found, "installed", "ok")


def _triton_server() -> Check:
    from playbook.lanes.embedded.triton.installation import find_installation

    try:
        found = find_installation()
    except EnvironmentProblem as problem:
        return Check("tritonserver", problem.what, "installed", "missing", problem.fix)
    return Check("tritonserver", f"installed, Python {found.python_version} stub", "installed", "ok")


def _gpu_host(profile: Profile, workspace: Path) -> Iterator[Check]:
    names, driver = _nvidia_smi()
    gpu = gpus()[profile.gpu]
    yield Check(
        "GPUs",
        f"{len(names)} x {names[0]}" if names else "none",
        f"{profile.gpu_count} x {profile.gpu} ({gpu.architecture})",
        _verdict(len(names) >= profile.world_size),
        f"start a {profile.instance}, or choose the profile of the machine that you have",
    )
    yield Check(
        "NVIDIA driver",
        driver or "none",
        "the container's release notes name it",
        "note" if driver else "missing",
        "install NVIDIA's driver, or start the instance from an AWS Deep Learning AMI, which has it",
    )
    needed_gb = CHECKPOINT_COPIES * profile.shape.weight_bytes("full_prec") / 1e9
    free_gb = shutil.disk_usage(_existing(workspace)).free / 1e9
    yield Check(
        "disk",
        f"{free_gb:.0f} GB free",
        f">= {needed_gb:.0f} GB (at most {CHECKPOINT_COPIES} x the BF16 weights)",
        _verdict(free_gb >= needed_gb),
        "on a P5 use the NVMe disks: set workspace to a folder on them",
    )
    if profile.runner == "docker":
        yield Check(
            "docker",
            shutil.which("docker") or "not found",
            load_release(profile.release).image,
            _verdict(shutil.which("docker") is not None),
            "install docker and the NVIDIA container toolkit, or set runner: native inside the container",
        )
    yield Check(
        "HF_TOKEN",
        "set" if os.environ.get("HF_TOKEN") else "not set",
        "set, with access to " + profile.shape.hf_id,
        _verdict(bool(os.environ.get("HF_TOKEN"))),
        f"ask for access at https://huggingface.co/{profile.shape.hf_id}, then export HF_TOKEN",
    )


def _nvidia_smi() -> tuple[list[str], str]:
    if shutil.which("nvidia-smi") is None:
        return [], ""
    query = ["nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader"]
    out = subprocess.run(query, capture_output=True, text=True, timeout=30, check=False)
    rows = [line.split(", ") for line in out.stdout.splitlines() if ", " in line] if out.returncode == 0 else []
    return [row[0] for row in rows], rows[0][1] if rows else ""


def _ports() -> Iterator[Check]:
    for name, port in TRITON_PORTS.items():
        free = port_is_free(port)
        yield Check(
            f"port {port} ({name})",
            "free" if free else "taken",
            "free",
            "ok" if free else "note",
            "" if free else "another one is taken when the server starts",
        )


def usable_cores() -> int:
    """Cores that this process may use: fewer than the machine has in a container."""
    return len(os.sched_getaffinity(0))


def port_is_free(port: int) -> bool:
    """True when a server on the loopback could listen on ``port`` now."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        return probe.connect_ex(("127.0.0.1", port)) != 0


def _existing(path: Path) -> Path:
    return next(folder for folder in (path, *path.parents) if folder.exists())
