"""What the lane of vLLM needs of a machine: its environments, the GPU and its driver, disk, memory, ports."""

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

from serving_base.checks import GIB, Check, asked, existing, last_line, verdict
from serving_base.errors import EnvironmentProblem
from trtllm_check.deployment import Deployment
from vllm_serving.environment import OLDEST, VllmInstallation, find_vllm

ROOM = 1.1  # caches, logs and what a stage writes aside
SHARED_MEMORY_MIB = 64  # each of Triton's five models takes one MiB and grows
VISIBLE = "CUDA_VISIBLE_DEVICES"
QUERY = (
    "nvidia-smi",
    "--query-gpu=index,name,driver_version,compute_cap,memory.total,memory.used",
    "--format=csv,noheader,nounits",
)
NEEDED = f"{'.'.join(map(str, OLDEST))} or later"
BUSY_MIB = 1024
QUICK_S = 30


def checks(profile: Deployment, workspace: Path, *, bf16_beside: bool = True) -> Iterator[Check]:
    """One line for each; what is missing stops the chapter. ``bf16_beside``: chapter 03 builds that engine, too."""
    from model_server.triton.server import server_check

    installation = None
    try:
        installation = find_vllm()
        yield Check("vLLM", f"{installation.vllm} in {installation.python}", NEEDED, "ok")
    except EnvironmentProblem as problem:
        yield Check("vLLM", problem.what, NEEDED, "missing", problem.fix)
    yield from _gpus(profile) if profile.on_gpus else _processor(installation)
    yield server_check()
    needed_gb = ROOM * _stored_bytes(profile, bf16_beside) / 1e9
    free_gb = shutil.disk_usage(existing(workspace)).free / 1e9
    yield Check(
        "disk",
        f"{free_gb:.0f} GB free",
        f">= {needed_gb:.0f} GB",
        verdict(free_gb >= needed_gb),
        "set another workspace",
    )
    shared = shutil.disk_usage("/dev/shm").free / 2**20
    yield Check(
        "shared memory",
        f"{shared:.0f} MiB free in /dev/shm",
        f">= {SHARED_MEMORY_MIB} MiB, for Triton's models",
        verdict(shared >= SHARED_MEMORY_MIB),
        "docker run --shm-size=1g, or free what /dev/shm holds",
    )


def _stored_bytes(profile: Deployment, bf16_beside: bool) -> int:
    """Of the model, and its checkpoints in two layouts. vLLM's own of BF16 are links to the model."""
    plain = profile.shape.weight_bytes("full_prec")
    if profile.qformat == "full_prec":
        return 2 * plain
    return plain * (2 if bf16_beside else 1) + 2 * profile.shape.weight_bytes(profile.qformat)


def _gpus(profile: Deployment) -> Iterator[Check]:
    visible = os.environ.get(VISIBLE, "")
    status, output = asked([*QUERY, f"--id={visible}"] if visible else QUERY, QUICK_S)
    rows = [line.split(", ") for line in output.splitlines()] if status == 0 else []
    found = [dict(zip(("index", "name", "driver", "capability", "total", "used"), row, strict=False)) for row in rows]
    yield Check(
        "GPUs",
        f"{len(found)} x {found[0]['name']}" if found else f"none: {last_line(output)}",
        f"{profile.world_size} x {profile.gpu}",
        verdict(len(found) >= profile.world_size),
        f"{VISIBLE} is {visible}: give more of them"
        if visible
        else "use a machine with them, or the profile vllm-local",
    )
    gpu = profile.hardware
    if not found or gpu is None:
        return
    card = found[0]
    yield Check(
        "NVIDIA driver", card["driver"], "one that vLLM's CUDA runs on; vLLM's start says if it does not", "note"
    )
    yield Check(
        "compute capability",
        card["capability"],
        ">= 8.9 for FP8" if "fp8" in (profile.qformat, profile.kv_cache_dtype) else ">= 8.0",
        verdict(float(card["capability"]) >= (8.9 if "fp8" in (profile.qformat, profile.kv_cache_dtype) else 8.0)),
        "FP8 needs an L4, H100, H200 or newer; use qformat full_prec with kv_cache_dtype auto",
    )
    total_gib = float(card["total"]) / 1024
    yield Check(
        "GPU memory",
        f"{total_gib:.0f} GiB",
        f">= {0.97 * gpu.visible_gib:.0f} GiB, as {profile.gpu} has",
        verdict(total_gib >= 0.97 * gpu.visible_gib),
        "choose the profile of this GPU, or write your own with its name",
    )
    taken = found[: profile.world_size]  # vLLM takes the first ones that it sees
    busy = [one["index"] for one in taken if float(one["used"]) > BUSY_MIB]
    yield Check(
        "GPU memory in use",
        f"by others on GPU {', '.join(busy)}" if busy else "none",
        "none: vLLM takes nine tenths for itself",
        verdict(not busy),
        f"nvidia-smi names the processes; end them, or let {VISIBLE} name a free GPU",
    )


def _processor(installation: VllmInstallation | None) -> Iterator[Check]:
    import psutil

    memory_gib = psutil.virtual_memory().total / GIB
    yield Check("memory", f"{memory_gib:.0f} GiB", ">= 8 GiB", verdict(memory_gib >= 8), "use a larger machine")
    if installation is not None:
        yield Check(
            "vLLM's device",
            installation.device,
            "cpu, as the profile names no GPU",
            verdict(installation.device == "cpu"),
            "choose a profile with your GPU",
        )
