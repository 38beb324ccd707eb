"""The panel "on a P5 you would run": the recipes' commands as markdown."""

from collections.abc import Iterable

from playbook.profile import Profile
from playbook.recipes import Command, Paths, commands, docker_argv, shell
from playbook.releases import load_release


def panel_markdown(profile: Profile, stages: Iterable[str]) -> str:
    """Markdown with every command that ``stages`` run under ``profile``, and why its flags are what they are."""
    release = load_release(profile.release)
    lines = [
        f"**On a P5 you would run** (profile `{profile.name}`, TensorRT-LLM {profile.release}; "
        "checked against that release's argument parser, not run here)"
    ]
    if profile.runner == "docker":
        lines += ["", "Open a shell in the release's container once; what runs *in the container* goes there:"]
        lines += ["```bash", shell(_container_shell(profile, release.image)), "```"]
    for stage in stages:
        for command in commands(profile, release, stage):
            where = "on the host" if command.where == "host" else "in the container"
            lines += ["", f"*{stage}*, {where}" + (f": {command.why}" if command.why else "")]
            lines += ["```bash", shell(command), "```"]
    return "\n".join(lines)


def _container_shell(profile: Profile, image: str) -> Command:
    bash = Command("enter", "bash", ("bash",), where=image, secrets=("HF_TOKEN",))
    docker, run, *rest = docker_argv(bash, Paths.default(profile).mounts)
    return Command("enter", "bash", (docker, run, "--interactive", "--tty", *rest))
