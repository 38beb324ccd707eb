"""What TensorRT-LLM needs of a machine: its GPUs and driver, the disk for a model, the container and what is in it."""

import json
import os
import shlex
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

from serving_base.checks import Check, asked, existing, last_line, verdict
from serving_base.facts.gpus import instances
from serving_base.facts.quotas import quotas_of
from trtllm_check.deployment import Deployment
from trtllm_check.releases import Release, load_release

CHECKPOINT_COPIES = 3  # the download, the FP8 checkpoint and the engine: at most three times the BF16 weights
NVME = Path("/opt/dlami/nvme")  # where the AWS Deep Learning AMIs mount a P5's local disks
QUICK_S, PROBE_S = 30, 300
PROBE = """\
import importlib.metadata as m, json
def version(name):
    try:
        return m.version(name)
    except m.PackageNotFoundError:
        return None
import torch
found = {name: version(name) for name in ("tensorrt_llm", "accelerate", "transformers")}
print(json.dumps(found | {"torch": torch.__version__, "gpus": torch.cuda.device_count()}))
"""
"""Asked of the Python that the tools run in; tensorrt_llm itself takes a minute to import and is not."""


def checks(profile: Deployment, workspace: Path) -> Iterator[Check]:
    names, driver = _nvidia_smi()
    yield Check(
        "GPUs",
        f"{len(names)} x {names[0]}" if names else "none",
        f"{profile.gpu_count} x {profile.gpu} ({profile.gpu_arch})",
        verdict(len(names) >= profile.world_size),
        f"start a {profile.instance}, or choose the profile of the machine that you have",
    )
    yield Check(
        "NVIDIA driver",
        driver or "none",
        "the container's release notes name it",
        "note" if driver else "missing",
        "install NVIDIA's driver, or start the instance from an AWS Deep Learning AMI, which has it",
    )
    yield from _gpu_disk(profile, workspace)
    yield from _docker(profile) if profile.runner == "docker" else _tools(profile, ("python3",))
    yield _quota(profile)
    yield Check(
        "HF_TOKEN",
        "set" if os.environ.get("HF_TOKEN") else "not set",
        "set, with access to " + profile.shape.hf_id,
        verdict(bool(os.environ.get("HF_TOKEN"))),
        f"ask for access at https://huggingface.co/{profile.shape.hf_id}, then export HF_TOKEN",
    )


def _gpu_disk(profile: Deployment, workspace: Path) -> Iterator[Check]:
    needed_gb = CHECKPOINT_COPIES * profile.shape.weight_bytes("full_prec") / 1e9
    free_gb = shutil.disk_usage(existing(workspace)).free / 1e9
    yield Check(
        "disk",
        f"{free_gb:.0f} GB free",
        f">= {needed_gb:.0f} GB (at most {CHECKPOINT_COPIES} x the BF16 weights)",
        verdict(free_gb >= needed_gb),
        "on a P5 use the NVMe disks: set workspace to a folder on them",
    )
    if NVME.is_dir():
        on_it = workspace.resolve().is_relative_to(NVME.resolve())
        yield Check(
            "NVMe",
            f"{NVME}, {shutil.disk_usage(NVME).free / 1e9:.0f} GB free",
            "the workspace on it: a network disk reads the weights many times slower",
            "ok" if on_it else "note",
            "" if on_it else f"set workspace to a folder under {NVME}; what is there is lost when the instance stops",
        )


def _docker(profile: Deployment) -> Iterator[Check]:
    """The client, NVIDIA's part of it, and, once its image is here, the release's container itself."""
    image, docker = load_release(profile.release).image, shutil.which("docker")
    yield Check("docker", docker or "not found", "docker", verdict(docker is not None), "install docker")
    if docker is None:
        return
    status, output = asked(["docker", "info", "--format", "{{json .Runtimes}}"], QUICK_S)
    hook = '"nvidia"' in output or shutil.which("nvidia-container-runtime-hook") is not None
    yield Check(
        "docker's GPU runtime",
        ("nvidia" if hook else "none of NVIDIA") if status == 0 else f"docker does not answer: {last_line(output)}",
        "NVIDIA container toolkit: --gpus all needs it",
        verdict(status == 0 and hook),
        "install nvidia-container-toolkit, run `sudo nvidia-ctk runtime configure --runtime=docker`, restart docker"
        if status == 0
        else "start docker, and add your user to the group docker",
    )
    status, _ = asked(["docker", "image", "inspect", "--format", "{{.Id}}", image], QUICK_S)
    if status != 0:
        yield Check("container", "not pulled yet", image, "note", f"docker pull {image}; then run this chapter again")
        return
    yield Check("container", "pulled", image, "ok")
    run = ("docker", "run", "--rm", "--gpus", "all", "--name", f"playbook-preflight-{os.getpid()}", image)
    yield from _tools(profile, (*run, "python3"))


def _tools(profile: Deployment, python: tuple[str, ...]) -> Iterator[Check]:
    """What the tools' Python has: the release, CUDA's PyTorch, and accelerate, which spreads a model over GPUs."""
    status, output = asked([*python, "-c", PROBE], PROBE_S)
    found = json.loads(last_line(output)) if status == 0 else {}
    release = load_release(profile.release)
    place = "in python3" if profile.runner == "native" else "in the container"
    if not found:
        yield Check(
            f"tools {place}", last_line(output), "an answer", "missing", f"find out why: {shlex.join(python)} -c ..."
        )
        return
    yield _tensorrt_llm(f"tensorrt_llm {place}", str(found["tensorrt_llm"] or ""), release)
    yield Check(
        f"CUDA in torch {place}",
        f"torch {found['torch']}, {found['gpus']} GPUs",
        f"{profile.world_size} GPUs",
        verdict(found["gpus"] >= profile.world_size),
        "a driver that is too old for the container, or a CPU build of torch; the container's first lines say which",
    )
    yield Check(
        f"accelerate {place}",
        found["accelerate"] or "not installed",
        "installed: chapter 01's reference and quantize.py spread the 16-bit model over the GPUs with it",
        verdict(bool(found["accelerate"])),
        "python3 -m pip install accelerate, where the tools run",
    )


def _tensorrt_llm(name: str, found: str, release: Release) -> Check:
    """The release itself, the development build that its container is known to hold, or another one."""
    if found.partition("+")[0] == release.name:
        return Check(name, found, release.name, "ok")
    if found.startswith(release.name):  # 0.12.0.dev2024080600
        known = "the known one" if found == release.container_version else "one that the course has no facts about"
        fix = (
            f"a development build, {known}: its own parser applies to the programs in the container, not that of the "
            f"release; see the notes on {release.name} in docs/releases.md"
        )
        return Check(name, found, release.name, "note", fix)
    return Check(name, found or "not installed", release.name, "missing", "use the container of the profile's release")


def _quota(profile: Deployment) -> Check:
    """Permission to start the instance, and an endpoint of it: days ahead, and only your account knows."""
    needed = quotas_of(profile.instance) if profile.instance in instances() else ()
    asked_for = [f"{quota.needed} {quota.unit} of {quota.name} ({quota.code})" for quota in needed]
    return Check(
        "quota",
        "not asked: that needs your account",
        "; ".join(asked_for) or f"1 x ml.{profile.instance} for endpoint usage, for chapter 07 only",
        "note",
        "Service Quotas; the default is often 0, and an increase takes days. Chapter 00 prints both requests",
    )


def _nvidia_smi() -> tuple[list[str], str]:
    if shutil.which("nvidia-smi") is None:
        return [], ""
    query = ["nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader"]
    out = subprocess.run(query, capture_output=True, text=True, timeout=30, check=False)
    rows = [line.split(", ") for line in out.stdout.splitlines() if ", " in line] if out.returncode == 0 else []
    return [row[0] for row in rows], rows[0][1] if rows else ""
