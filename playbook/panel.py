"""The panel "on a P5 you would run": the recipes' commands as markdown."""

from collections.abc import Iterable

from playbook.errors import NotInRelease
from playbook.profile import Profile
from playbook.recipes import Command, Paths, commands, docker_argv, shell
from playbook.recipes.command import HOST
from playbook.releases import load_release


def panel_markdown(profile: Profile, stages: Iterable[str], *, runs_here: bool = False) -> str:
    """Markdown with every command that ``stages`` run under ``profile``, and why its flags are what they are."""
    title = "What this chapter runs" if runs_here else "On a P5 you would run"
    here = "" if runs_here else ", not run here"
    release = load_release(profile.release)
    lines = [
        f"**{title}** (profile `{profile.name}`, TensorRT-LLM {profile.release}; "
        f"checked against that release's argument parser{here})"
    ]
    if profile.runner == "docker":
        lines += ["", "Open a shell in the release's container once; what runs *in the container* goes there:"]
        lines += ["```bash", shell(_container_shell(profile, release.image)), "```"]
    for stage in stages:
        try:
            todo = commands(profile, release, stage)
        except NotInRelease as error:
            lines += ["", f"*{stage}*: {error.what}; {error.fix}"]
            continue
        for command in todo:
            where = "on the host" if command.where == HOST else "in the container"
            lines += ["", f"*{stage}*, {where}" + (f": {command.reason}" if command.reason else "")]
            lines += ["```bash", shell(command), "```"]
    return "\n".join(lines)


def _container_shell(profile: Profile, image: str) -> Command:
    bash = Command("enter", "bash", ("bash",), where=image, secrets=("HF_TOKEN",))
    docker, run, *rest = docker_argv(bash, Paths.default(profile).mounts)
    return Command("enter", "bash", (docker, run, "--interactive", "--tty", *rest))
