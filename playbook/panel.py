"""The panel of a chapter: the recipes' commands as markdown, told apart by whether this workspace has run them."""

import json
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from gpu_serving.execute import RECORD
from playbook.profile import Profile
from serving_base.errors import NotInRelease
from trtllm_check.recipes import Command, Paths, commands, docker_argv, shell
from trtllm_check.recipes.command import HOST, foreground
from trtllm_check.releases import load_release

NOT_HERE = "On a P5 you would run"
ALREADY = "Already run in this workspace"
YOURS = "Commands for you to run"


@dataclass(frozen=True)
class Shown:
    """A command, or in its place the sentence that says why its stage has none in this release."""

    stage: str
    command: Command | None = None
    instead: str = ""

    @property
    def lines(self) -> list[str]:
        if self.command is None:
            return ["", f"*{self.stage}*: {self.instead}"]
        where = "on the host" if self.command.where == HOST else "in the container"
        reason = f": {self.command.reason}" if self.command.reason else ""
        return ["", f"*{self.stage}*, {where}{reason}", "```bash", shell(self.command), "```"]


def panel_markdown(profile: Profile, stages: Iterable[str], *, workspace: Path | None = None) -> str:
    """Markdown with every command that ``stages`` run under ``profile``, and why its flags are what they are.

    ``workspace``: root of the workspace on the GPU machine itself; its record tells what has run. Without it the
    commands are for another machine.
    """
    if workspace is None:
        paths = Paths.default(profile)
        return _section(NOT_HERE, profile, paths, _shown(profile, stages, paths), ", not run here")
    paths = Paths.under(str(workspace), profile.name)
    release, root = load_release(profile.release), str(workspace)
    record = workspace / profile.name / "logs" / RECORD
    ran = recorded_words(record, (release.image, release.server_image), root)
    shown = _shown(profile, stages, paths)
    done = [item for item in shown if item.command and _comparable(foreground(item.command), root) in ran]
    sections = [(ALREADY, done), (YOURS, [item for item in shown if item not in done])]
    return "\n\n".join(_section(title, profile, paths, items) for title, items in sections if items)


def recorded_words(record: Path, images: Collection[str], root: str) -> set[tuple[str, ...]]:
    """The commands that ran here, however they ended, without docker's part and what differs from run to run.

    Those in containers other than ``images`` are left out: another release ran them.
    """
    lines = record.read_text(encoding="utf-8").splitlines() if record.is_file() else []
    words = [_inner(json.loads(line)["argv"], images) for line in lines]
    return {_comparable(each, root) for each in words if each is not None}


def _inner(argv: Sequence[str], images: Collection[str]) -> Sequence[str] | None:
    """What `docker run` runs: the words after its image. None: it is no image of ``images``."""
    if tuple(argv[:2]) != ("docker", "run"):
        return argv
    place = next((place for place, word in enumerate(argv) if word in images), None)
    return None if place is None else argv[place + 1 :]


def _comparable(argv: Sequence[str], root: str) -> tuple[str, ...]:
    """Without folders of the workspace, since a stage writes aside, and ports: a server takes those that are free."""
    pairs = pairwise(("", *argv))
    return tuple(word for before, word in pairs if root not in word and not before.endswith("port"))


def _shown(profile: Profile, stages: Iterable[str], paths: Paths) -> list[Shown]:
    release = load_release(profile.release)
    shown = []
    for stage in stages:
        try:
            shown += [Shown(stage, command) for command in commands(profile, release, stage, paths)]
        except NotInRelease as error:
            shown.append(Shown(stage, instead=f"{error.what}; {error.fix}"))
    return shown


def _section(title: str, profile: Profile, paths: Paths, shown: Sequence[Shown], here: str = "") -> str:
    release = load_release(profile.release)
    lines = [
        f"**{title}** (profile `{profile.name}`, TensorRT-LLM {profile.release}; "
        f"checked against that release's argument parser{here})"
    ]
    if title != ALREADY and any(item.command and item.command.where != HOST for item in shown):
        lines += ["", "Open a shell in the release's container once; what runs *in the container* goes there:"]
        lines += ["```bash", shell(_container_shell(paths, release.image)), "```"]
    return "\n".join([*lines, *(line for item in shown for line in item.lines)])


def _container_shell(paths: Paths, image: str) -> Command:
    bash = Command("enter", "bash", ("bash",), where=image, secrets=("HF_TOKEN",))
    docker, run, *rest = docker_argv(bash, paths.mounts)
    return Command("enter", "bash", (docker, run, "--interactive", "--tty", *rest))
