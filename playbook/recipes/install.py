"""Stages install and fetch: the container, what it lacks, and the model."""

from playbook.errors import UsageError
from playbook.profile import Profile
from playbook.recipes.command import HOST, Command, Paths, place
from playbook.releases import Release

NO_LFS = {"GIT_LFS_SKIP_SMUDGE": "1"}


def install(profile: Profile, release: Release, paths: Paths) -> list[Command]:
    """Pull the container, check GPU and version in it, and clone the scripts that it does not hold."""
    where = place(profile, release)
    commands = []
    if where != HOST:
        why = (
            "Quantize, build and serve in this one container: TensorRT refuses an engine of another version "
            f"({release.containers.source})."
        )
        commands.append(Command("install", "docker", ("docker", "pull", release.image), why=why))
    commands.append(
        Command("install", "nvidia-smi", ("nvidia-smi",), where=where, why="All GPUs and a new enough driver show up.")
    )
    check = f'import tensorrt_llm; assert tensorrt_llm.__version__ == "{release.name}", tensorrt_llm.__version__'
    commands.append(
        Command("install", "python3", ("python3", "-c", check), where=where, why=f"It really is {release.name}.")
    )
    return commands + clone(release, paths)


def clone(release: Release, paths: Paths) -> list[Command]:
    """Clone what the release's container lacks; nothing for a container that is complete."""
    checkout = release.checkout
    if checkout is None:
        return []
    folder = f"{paths.host_root}/sources/{checkout.folder}"
    clone = ("git", "clone", checkout.url, folder, "--depth", "1", "--branch", checkout.tag)
    commands = [
        Command(
            "install",
            "git",
            clone,
            env=NO_LFS,
            why=f"The container has neither example scripts nor templates; they must be of its own version "
            f"({checkout.source}).",
        )
    ]
    if checkout.submodules:
        update = ("git", "-C", folder, "submodule", "update", "--init", "--depth", "1", *checkout.submodules)
        why = "TensorRT-LLM's examples; not recursive, and without its large files, which only its build needs."
        commands.append(Command("install", "git", update, env=NO_LFS, why=why))
    return commands


def fetch(profile: Profile, release: Release, paths: Paths) -> list[Command]:
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
