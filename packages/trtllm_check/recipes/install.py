"""Stages install and fetch: the container, what it lacks, and the model."""

from collections.abc import Sequence

from serving_base.errors import NotInRelease, UsageError
from trtllm_check.deployment import Deployment
from trtllm_check.recipes.command import Command, Paths, needed_clones, place
from trtllm_check.releases import Release, Templates, Tool

BUILD = 'context=$1; shift; printf "%s\\n" "$@" | docker build --tag "$0" --file - "$context"'
NO_LFS = {"GIT_LFS_SKIP_SMUDGE": "1"}


def install(profile: Deployment, release: Release, paths: Paths) -> list[Command]:
    """Pull the container, or install the packages; check GPUs and version; clone the scripts that are missing."""
    where = place(profile, release)
    clones = clone(profile, release, paths)
    commands = {
        "docker": lambda: [_pull(release), *clones, *_image(release, paths)],
        "inside": lambda: clones,
        "native": lambda: _packages(release, paths, clones),
    }[profile.runner]()
    gpus = Command("install", "nvidia-smi", ("nvidia-smi",), where, why="All GPUs and a new enough driver show up.")
    return [*commands, gpus, _version(profile, release, where)]


def clone(profile: Deployment, release: Release, paths: Paths) -> list[Command]:
    """Clone what the release's container lacks, or all scripts natively; nothing for a container that is complete."""
    templates = (part for part in (release.templates, release.llmapi) if part is not None)
    parts: list[Tool | Templates] = [*release.tools.values(), *templates]
    return [_clone(release, name, paths) for name in needed_clones(profile, parts)]


def beside(stage: str, where: str, folder: str, packages: Sequence[str], *, why: str) -> Command:
    """Put Python packages, without what they depend on, into a folder of their own: those of the container stay.

    Containers run from their image each time, so what is installed into one is lost with it. NGC's containers set
    ``PIP_CONSTRAINT``, which forbids other versions than theirs.
    """
    argv = ("python3", "-m", "pip", "install", "--no-deps", "--upgrade", "--target", folder, *packages)
    return Command(stage, "python3", argv, where, env={"PIP_CONSTRAINT": ""}, why=why)


def fetch(profile: Deployment, release: Release, paths: Paths) -> list[Command]:
    """Download the model's Hugging Face files with the token in ``$HF_TOKEN``."""
    if not profile.shape.download_gb:
        raise UsageError(f"{profile.model} is not on a hub", fix="use llama-3-8b-instruct or llama-3-70b-instruct")
    argv = (
        *release.download.argv,
        profile.shape.hf_id,
        *("--local-dir", paths.model),
        *("--exclude", "original/*"),
    )
    why = (
        f"About {profile.shape.download_gb:.0f} GB; `original/` holds the same weights once more in Meta's own format. "
        "The model is gated: accept its licence on its page first, and export HF_TOKEN."
    )
    return [Command("fetch", release.download.argv[0], argv, place(profile, release), why=why, secrets=("HF_TOKEN",))]


def _pull(release: Release) -> Command:
    why = "Quantize, build and serve in this one container: TensorRT refuses an engine of another version"
    if not release.builds_engines:
        why = "The container of this release, with its own PyTorch"
    if release.containers.built:
        why = "The container with the server; tensorrt_llm is not in it"
    image = release.server_image if release.containers.built else release.image
    return Command("install", "docker", ("docker", "pull", image), why=f"{why} ({release.containers.source}).")


def _image(release: Release, paths: Paths) -> list[Command]:
    """The image of the tools where no published one has them: the release's wheel, and what its scripts import."""
    built, native = release.containers.built, release.native
    if built is None or native is None:
        return []
    names = [name.replace("/", "-") for name in native.requirements]
    files = [f"COPY {name} /tmp/{copy}" for name, copy in zip(native.requirements, names, strict=True)]
    needed = " ".join(f"--requirement /tmp/{name}" for name in names)
    lines = [
        f"FROM {built.base}",
        f"RUN apt-get update && apt-get install --yes --no-install-recommends {' '.join(native.system_packages)}",
        f"RUN python3 -m pip install {' '.join(native.pip)}",
        *files,
        f"RUN python3 -m pip install {needed}",
    ]
    argv = ("bash", "-c", BUILD, built.tag, f"{paths.host_root}/sources", *lines)
    why = f"No published container of {release.name} has tensorrt_llm ({built.source}): the wheel goes into an image."
    return [Command("install", "bash", argv, why=why)]


def _clone(release: Release, name: str, paths: Paths) -> Command:
    checkout = release.checkouts[name]
    folder = f"{paths.host_root}/sources/{checkout.folder}"
    argv = ("git", "clone", "--depth", "1", "--branch", checkout.tag, checkout.url, folder)
    why = (
        f"Scripts and templates must be of the release's own version: {checkout.tag} ({checkout.source}). "
        "Large files, which only building the library needs, are left out."
    )
    return Command("install", "git", argv, env=NO_LFS, why=why, creates=folder)


def _packages(release: Release, paths: Paths, clones: list[Command]) -> list[Command]:
    """Debian packages, the clones that need git, then Python's packages; the first two as root."""
    native = release.native
    if native is None:
        raise NotInRelease(
            f"there are no facts on installing TensorRT-LLM {release.name} without its container",
            fix="set runner: docker in the profile",
        )
    why = f"{native.note} ({native.source}). apt-get needs root."
    update = Command("install", "apt-get", ("apt-get", "update"), why="As root: the list of packages.")
    apt = ("apt-get", "install", "--yes", "--no-install-recommends", *native.system_packages)
    packages = Command("install", "apt-get", apt, why=why)
    wheel = _pip(*native.pip, why="The release's own wheel, with the packages that it pins.")
    files = [
        _pip("--requirement", f"{paths.sources}/{name}", why="What the example scripts of this release import.")
        for name in native.requirements
    ]
    return [update, packages, *clones, wheel, *files]


def _pip(*words: str, why: str) -> Command:
    return Command("install", "python3", ("python3", "-m", "pip", "install", *words), why=why)


def _version(profile: Deployment, release: Release, where: str) -> Command:
    known = release.name if profile.runner == "native" else release.container_version
    check = f'import tensorrt_llm as t; v = t.__version__; assert v.split("+")[0] == "{known}", v'
    has_it = release.behaviour.container_has_tensorrt_llm
    left_out = (
        f"The container {release.image} holds the server without tensorrt_llm ({has_it.source}): nothing but it runs "
        "in it. Set runner: native, in an environment with the release's wheel.",
    )
    return Command(
        "install",
        "python3",
        ("python3", "-c", check),
        where,
        why=_why_version(release, known),
        left_out=() if profile.runner == "native" or has_it.value or release.containers.built else left_out,
    )


def _why_version(release: Release, known: str) -> str:
    if known == release.name:
        return f"It really is {release.name}, and no development build of it."
    return (
        f"This container holds {known}, a development build of {release.name}: the parser of that build applies to "
        f"the programs inside it. Another version fails here, {release.name} itself included."
    )
