"""What the embedded lane needs of a machine: cores, memory, disk, and what set-up installs."""

import importlib.metadata
import shutil
from collections.abc import Iterator
from pathlib import Path

from serving_base.checks import GIB, Check, existing, usable_cores, verdict

NEEDS = {"cores": 2, "memory_gib": 4, "disk_gb": 5}


def checks(workspace: Path) -> Iterator[Check]:
    import psutil

    from model_server.triton.server import server_check

    cores, memory_gib = usable_cores(), psutil.virtual_memory().total / GIB
    disk_gb = shutil.disk_usage(existing(workspace)).free / 1e9
    yield Check(
        "cores",
        str(cores),
        f">= {NEEDS['cores']}",
        verdict(cores >= NEEDS["cores"]),
        "use a machine, or a container limit, with two cores",
    )
    yield Check(
        "memory",
        f"{memory_gib:.0f} GiB",
        f">= {NEEDS['memory_gib']} GiB",
        verdict(memory_gib >= NEEDS["memory_gib"]),
        "close other programs, or use a larger machine",
    )
    yield Check(
        "disk",
        f"{disk_gb:.0f} GB free",
        f">= {NEEDS['disk_gb']} GB",
        verdict(disk_gb >= NEEDS["disk_gb"]),
        "free space, or set another workspace",
    )
    for package in ("torch", "nvidia-modelopt", "openvino-genai", "tritonclient"):
        yield _package(package)
    yield server_check()


def _package(name: str) -> Check:
    try:
        found = importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return Check(name, "not installed", "installed", "missing", "run python3 playbook/bootstrap.py")
    return Check(name, found, "installed", "ok")
