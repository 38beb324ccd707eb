"""Records the kernels of an engine's steps: stage profile under Nsight Systems, in the release's container."""

import shutil
from dataclasses import dataclass, replace
from pathlib import Path

from gpu_serving.execute import execute, logs, run, setting
from serving_base.errors import CommandFailed
from trtllm_check.deployment import Deployment
from trtllm_check.recipes import Paths, commands
from trtllm_check.recipes.command import HOST, Command, place
from trtllm_check.recipes.run import ITERATIONS

NOT_FOUND = 127  # of docker run and of shells: the program is not there
NO_IMAGE = 125  # of docker run: nothing was started
# NVIDIA's Nsight Systems installation guide, "CLI-only install in a container"
DOCKERFILE = """FROM {image}
RUN apt-get update && apt-get install --yes --no-install-recommends gnupg ca-certificates lsb-release \\
 && echo "deb https://developer.download.nvidia.com/devtools/repos/ubuntu$(lsb_release -rs | tr -d .)/$(dpkg \
--print-architecture)/ /" > /etc/apt/sources.list.d/nvidia-devtools.list \\
 && apt-key adv --fetch-keys https://developer.download.nvidia.com/compute/cuda/repos/ubuntu1804/x86_64/7fa2af80.pub \\
 && apt-get update && apt-get install --yes nsight-systems-cli"""


@dataclass(frozen=True)
class Recorded:
    """What was recorded of one phase: ``steps`` engine steps, in the files that a table is read from.

    One file, rank 0's kernel sum; with more ranks two, the launches of rank 0 and of rank 1.
    """

    steps: int
    files: tuple[Path, ...]


@dataclass(frozen=True)
class Recording:
    """The phases by name, ``prefill`` and ``decode``; or none, and in ``missing`` what to install."""

    phases: dict[str, Recorded]
    missing: str = ""


def record_kernels(profile: Deployment, engine: Path, *, root: Path) -> Recording:
    """Run one prompt through ``engine`` under nsys, once for its prefill and once for ten decode steps.

    Every recording is made anew. Where neither the release's image nor ``<image>-nsys`` has nsys, nothing runs.
    """
    release, paths = setting(profile, root)
    paths = replace(paths, engine=str(engine))
    where = image_with_nsys(place(profile, release), paths, logs(profile, root))
    if not where:
        return Recording({}, how_to_install(place(profile, release)))
    folder = root / profile.name / "profiles"
    shutil.rmtree(folder, ignore_errors=True)  # nsys stats would read an older export
    todo = [replace(command, where=where) for command in commands(profile, release, "profile", paths)]
    run(profile, release, todo, paths, writes=folder)
    return Recording({name: recorded(folder, name, ranks=profile.world_size) for name in ITERATIONS})


def recorded(folder: Path, phase: str, *, ranks: int) -> Recorded:
    """The files that the recipe leaves for ``phase``."""
    first, _, last = ITERATIONS[phase].partition("-")
    steps = int(last or first) - int(first) + 1
    if ranks == 1:
        return Recorded(steps, (folder / f"{phase}_rank0_cuda_gpu_kern_sum.csv",))
    return Recorded(steps, tuple(folder / f"{phase}_rank{rank}.sqlite" for rank in (0, 1)))


def image_with_nsys(where: str, paths: Paths, log_folder: Path) -> str:
    """The release's image, or the one of :func:`how_to_install`, if nsys answers there; else an empty string."""
    if where == HOST:
        return HOST if shutil.which("nsys") else ""
    return next((image for image in (where, f"{where}-nsys") if _has_nsys(image, paths, log_folder)), "")


def _has_nsys(image: str, paths: Paths, log_folder: Path) -> bool:
    log_folder.mkdir(parents=True, exist_ok=True)
    probe = Command("profile", "nsys", ("nsys", "--version"), image)
    try:
        execute(probe, paths, log_folder / "profile-nsys-version.log", echo=lambda _: None)
    except CommandFailed as error:
        if error.returncode in (NOT_FOUND, NO_IMAGE):
            return False
        raise
    return True


def how_to_install(where: str) -> str:
    """Markdown: what to run once, so that the next :func:`record_kernels` finds nsys."""
    if where == HOST:
        return "nsys is not on this machine: install NVIDIA's package `nsight-systems-cli`."
    build = f"docker build --tag {where}-nsys - <<'END'\n{DOCKERFILE.format(image=where)}\nEND"
    return (
        f"Nothing was recorded: nsys is not in `{where}`. Build an image that has it, and run this chapter again:"
        f"\n```bash\n{build}\n```"
    )
