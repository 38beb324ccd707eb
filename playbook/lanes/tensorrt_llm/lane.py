"""The lane of machines with NVIDIA GPUs: each stage executes the recipes' commands for the profile's release.

What the tools need is asked for before anything heavy starts, and nothing is imitated: without docker, GPU or
token a stage says so and ends.

:func:`checks` is what TensorRT-LLM needs of a machine: its GPUs and driver, the disk for a model, the container and
what is in it.
"""

import json
import os
import shlex
import shutil
import subprocess
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gpu_serving.execute import Execution, execute_all, logs, make_available, run, setting
from gpu_serving.hub import file_sizes, require_space, verify
from gpu_serving.inference import BUILD_LOG
from gpu_serving.inference import generate as generate
from gpu_serving.inference import stream as stream
from gpu_serving.inference import summarize as summarize
from gpu_serving.server import TritonRanks
from playbook.lanes.base import ELSEWHERE, Check, asked, existing, last_line, verdict
from playbook.profile import Profile
from serving_base.errors import PlaybookError
from trtllm_check.recipes import checked, commands
from trtllm_check.recipes.command import Command, place
from trtllm_check.recipes.triton import NOTHING, template_values
from trtllm_check.recipes.triton import fill as fill_templates
from trtllm_check.releases import Release, load_release
from trtllm_check.releases.templates import release_templates

if TYPE_CHECKING:
    import playbook.lanes.tensorrt_llm.lane as this
    from playbook.lanes.base import Lane, Layout
    from playbook.measure.kernels import StepTables
    from serving_base.measures import StepRecord

    _is_a_lane: Lane = this


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


def checks(profile: Profile, workspace: Path) -> Iterator[Check]:
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


def _gpu_disk(profile: Profile, workspace: Path) -> Iterator[Check]:
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


def _docker(profile: Profile) -> Iterator[Check]:
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


def _tools(profile: Profile, python: tuple[str, ...]) -> Iterator[Check]:
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


def _quota(profile: Profile) -> Check:
    return Check(
        "quota",
        "not asked: that needs your account",
        f"1 x ml.{profile.instance} for endpoint usage, for chapter 07 only",
        "note",
        "Service Quotas, Amazon SageMaker; the default is 0, and an increase takes days",
    )


def _nvidia_smi() -> tuple[list[str], str]:
    if shutil.which("nvidia-smi") is None:
        return [], ""
    query = ["nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader"]
    out = subprocess.run(query, capture_output=True, text=True, timeout=30, check=False)
    rows = [line.split(", ") for line in out.stdout.splitlines() if ", " in line] if out.returncode == 0 else []
    return [row[0] for row in rows], rows[0][1] if rows else ""


CAN = frozenset(("summarize", "print_commands"))
CELL_LIMIT_S = 4 * 3600
CHAPTER_LIMIT_S = 8 * 3600
AT_ONCE = 1  # the engine of each fills the GPUs
KERNEL_ENVIRONMENT: Mapping[str, str] = {ELSEWHERE: "modelopt"}
WHY_REFERENCE = (
    "transformers loads the 16-bit model over all GPUs (device_map=auto, which accelerate does), answers and scores: "
    "what quantized engines are compared with."
)


def settle() -> None:
    """Nothing: the tools run in processes of their own."""


def preflight(profile: Profile, workspace: Path) -> "Iterator[Check]":

    return checks(profile, workspace)


def reference(profile: Profile, job: dict[str, Any], out: Path, *, root: Path) -> None:
    """By transformers in the release's container, over all GPUs: quantize.py of the release loads the same model there.

    The course's own environment has a CPU build of PyTorch and no accelerate, and 70B in 16 bits is no work for a CPU.
    """
    from serving_base import reference_run

    release, paths = setting(profile, root)
    script, asked, answered = (out / name for name in ("reference_run.py", "job.json", "result.json"))
    shutil.copyfile(reference_run.__file__, script)
    asked.write_text(json.dumps(job | {"device_map": "auto"}), encoding="utf-8")
    argv = ("python3", str(script), str(asked), str(answered))
    todo = [Command("reference", script.name, argv, place(profile, release), why=WHY_REFERENCE)]
    execute_all(todo, paths, logs(profile, root), writes=out)


def prepare(profile: Profile, out: Path, *, root: Path) -> None:
    """Download the model and put its files into ``out``.

    Token, access and disk are checked before the first byte, every file's size after the last. The download stays
    under ``<root>/downloads``, so an interrupted one goes on where it stopped, and profiles share it.
    """
    sizes = file_sizes(profile.shape.hf_id)
    downloads = root / "downloads" / profile.model
    downloads.mkdir(parents=True, exist_ok=True)
    require_space(sizes, downloads)
    release, paths = setting(profile, root)
    paths = replace(paths, model=str(downloads))
    execute_all(commands(profile, release, "fetch", paths), paths, logs(profile, root), writes=downloads)
    verify(downloads, sizes)
    shutil.copytree(downloads, out, copy_function=os.link, dirs_exist_ok=True, ignore=shutil.ignore_patterns(".cache"))


def quantize(
    profile: Profile, model: Path, out: Path, *, layout: "Layout" = "tensorrt_llm", root: Path
) -> list[Execution]:
    """Write a checkpoint of tp x pp ranks: quantized, or in 16 bits for ``qformat: full_prec``.

    quantize.py of TensorRT-LLM writes its own layout only.
    """
    release, paths = setting(profile, root)
    paths = replace(paths, model=str(model), checkpoint=str(out))
    stage = "convert" if profile.qformat == "full_prec" else "quantize"
    return run(profile, release, commands(profile, release, stage, paths), paths, writes=out)


def build(profile: Profile, checkpoint: Path, out: Path, *, root: Path) -> list[Execution]:
    """Compile the checkpoint into one engine per rank; what the compiler printed stays beside them."""
    release, paths = setting(profile, root)
    paths = replace(paths, checkpoint=str(checkpoint), engine=str(out))
    executions = run(profile, release, commands(profile, release, "build", paths), paths, writes=out)
    (out / BUILD_LOG).write_text(executions[-1].output + "\n", encoding="utf-8")
    return executions


def engine_ranks(checkpoint_ranks: int) -> int:
    """One engine for each rank of the checkpoint."""
    return checkpoint_ranks


def step_records(
    profile: Profile,
    engine: Path,
    prompt: str,
    lengths: Sequence[int],
    slots: int,
    *,
    root: Path,
    narrow: Callable[[], Path] | None = None,
) -> "dict[str, list[StepRecord]]":
    """By the release's executor bindings in its container, which take ``slots`` of the engine's requests."""
    from gpu_serving.inference import step_records as recorded

    return recorded(profile, engine, prompt, lengths, slots, root=root)


def step_tables(engine: Callable[[str], Path], *, profile: Profile, root: Path) -> "StepTables":
    """By Nsight Systems in the container, beside what was recorded on H200s."""
    from playbook.lanes.tensorrt_llm.profiling import step_tables as measured

    return measured(engine, profile=profile, root=root)


def write_repository(
    profile: Profile, engine: Path, out: Path, *, root: Path, variables: Mapping[str, object] = NOTHING
) -> list[Execution]:
    """Copy the release's templates into ``out`` and fill them; a variable that stays unfilled is an error.

    ``variables`` override the profile's and the course's values.
    """
    release, paths = setting(profile, root)
    paths = replace(paths, engine=str(engine), repository=str(out))
    *filling, emptying = checked(release, fill_templates(profile, release, paths, variables=variables))
    executions = run(profile, release, filling, paths, writes=out)
    models = release_templates(release.name).models
    for name, values in template_values(profile, release, paths, variables).items():
        config = (out / name / "config.pbtxt").read_text(encoding="utf-8")
        filled = [variable for variable, value in values.items() if value and variable not in models[name].uncertain]
        left = [variable for variable in filled if f"${{{variable}}}" in config]
        if left:
            raise PlaybookError(
                f"{name}/config.pbtxt still has {', '.join(left)} unfilled",
                why="fill_template.py did not do its work; emptied, a number would stop the server's parser",
                fix=f"read the logs in {logs(profile, root)}",
            )
    return executions + run(profile, release, [emptying], paths, writes=out)


def serve(profile: Profile, repository: Path, *, root: Path) -> TritonRanks:
    """Start one server process per rank and wait until they are ready. The caller stops them."""
    release, paths = setting(profile, root)
    paths = replace(paths, repository=str(repository))
    make_available(profile, release, paths)
    server = TritonRanks(profile, release, paths, logs(profile, root) / "launch.log")
    server.start()
    return server


def local_cloud(folder: Path) -> None:
    """None: endpoints on GPUs are made in a real account."""
