"""What every chapter shares: its opening, its checks, its results, the panel for a P5, and its clean-up.

The panel shows the recipes' commands as markdown, told apart by whether this workspace has run them.
"""

import atexit
import json
import platform
import sys
from collections.abc import Callable, Collection, Iterable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any

from gpu_serving.execute import RECORD
from playbook.artifact import Artifact
from playbook.lanes.base import lane_of, usable_cores
from playbook.profile import Profile, load_profile
from playbook.stages import Workspace, require, tokenizer_path, workspace_root
from serving_base.errors import CheckFailed, NotInRelease, UsageError
from serving_base.yaml_files import read_yaml
from trtllm_check.deployment import THIS_MACHINE
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
    """The commands that ran here, however they ended, without docker's part and what differs from run to run."""
    lines = record.read_text(encoding="utf-8").splitlines() if record.is_file() else []
    return {_comparable(_inner(json.loads(line)["argv"], images), root) for line in lines}


def _inner(argv: Sequence[str], images: Collection[str]) -> Sequence[str]:
    """What `docker run` runs: the words after its image."""
    if tuple(argv[:2]) != ("docker", "run"):
        return argv
    return argv[1 + next(place for place, word in enumerate(argv) if word in images) :]


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


RECORDED_FILE = Path(__file__).parent / "data" / "recorded.yml"
ABILITIES_FILE = Path(__file__).parent / "data" / "abilities.yml"
RESULT_MIME = "application/vnd.playbook.result+json"
P5_PROFILE = "p5"  # whose commands a panel shows when the chapter itself runs none


class Lab:
    """One run of one chapter: made by :func:`start`, used by its cells, ended by :meth:`close`."""

    def __init__(self, chapter: str, workspace: Workspace) -> None:
        self.chapter = chapter
        self.workspace = workspace
        self._checks = 0
        self._closers: list[tuple[str, Callable[[], object]]] = []
        atexit.register(self._close_all)

    @property
    def profile(self) -> Profile:
        return self.workspace.profile

    def can(self, ability: str) -> bool:
        """Whether this run's lane can do ``ability``, one of ``data/abilities.yml``; :class:`UsageError` lists them."""
        known = _abilities()
        if ability not in known:
            raise UsageError(f"no ability is called {ability!r}", fix=f"ask for one of {', '.join(sorted(known))}")
        return ability in lane_of(self.profile.lane).CAN

    def card(self) -> None:
        """Print where this chapter runs and how long it took when it was recorded, in seven lines."""
        profile = self.profile
        gpu = f"{profile.gpu_count} x {profile.gpu}" if profile.gpu_count else "no GPU"
        print(f"chapter    {self.chapter}")
        formats = f"{profile.qformat} weights, {profile.kv_cache_dtype} KV cache"
        print(f"profile    {profile.name}: {profile.model}, {formats}")
        print(f"lane       {profile.lane} ({gpu}, TP {profile.tp} x PP {profile.pp})")
        print(f"release    TensorRT-LLM {profile.release}")
        print(f"machine    {platform.system()} {platform.machine()}, {usable_cores()} cores")
        print(f"workspace  {self.workspace.root}")
        print(f"time       {recorded_time(profile.lane, self.chapter)}")

    def require(self, name: str) -> Artifact:
        """Return an earlier chapter's artifact, or raise the error that names that chapter."""
        return require(self.workspace, name)

    def tokenizer_path(self) -> Path:
        """The folder of the tokenizer that fits the engine, wherever this lane keeps it."""
        return tokenizer_path(self.workspace)

    def check(self, claim: str, holds: object, detail: str = "") -> None:
        """Confirm ``claim`` or raise :class:`CheckFailed`: a chapter never goes on after a false claim."""
        if not holds:
            raise CheckFailed(
                f"check failed: {claim}",
                why=detail or "this run did not confirm it",
                fix="see the table 'If it went wrong' in this chapter",
            )
        self._checks += 1
        print(f"✓ {claim}" + (f" ({detail})" if detail else ""))

    def say(self, sentence: str, **figures: object) -> None:
        """Show a sentence of Markdown whose figures come from this run: ``{name}`` or ``{name:.1f}`` for each."""
        from IPython.display import Markdown, display

        text = sentence.format(**figures)
        display(Markdown(text))  # type: ignore[no-untyped-call]

    def result(self, name: str, value: float | int | str, unit: str = "", origin: str = "measured here") -> None:
        """Show a key result and hand it to the runner's report."""
        from IPython.display import display

        result = {"name": name, "value": value, "unit": unit, "origin": origin}
        text = f"{name} = {value} {unit}".rstrip() + f" [{origin}]"
        display({RESULT_MIME: result, "text/plain": text}, raw=True)  # type: ignore[no-untyped-call]

    def panel(self, *stages: str) -> None:
        """Show these stages' commands: this profile's, those that ran here apart, or ``p5``'s where none are run."""
        from IPython.display import Markdown, display

        own = self.can("print_commands")
        profile = self.profile if own else load_profile(P5_PROFILE, self.profile.release)
        workspace = self.workspace.root if own else None
        display(Markdown(panel_markdown(profile, stages, workspace=workspace)))  # type: ignore[no-untyped-call]

    def on_close(self, what: str, close: Callable[[], object]) -> None:
        """Register something to end: it is closed at the clean-up cell, or when the kernel exits."""
        self._closers.append((what, close))

    def close(self) -> None:
        """End what this chapter started, in reverse order, and say what is left. Safe to run twice, or first."""
        ended = self._close_all()
        print(f"ended: {', '.join(ended) if ended else 'nothing was running'}")
        print(f"checks passed: {self._checks}")
        kept = sorted(path.parent.name for path in self.workspace.folder("").glob("*/manifest.json"))
        print(f"kept in the workspace: {', '.join(kept) if kept else 'nothing yet'}")
        print(f"still billing: {self._billing()}")

    def _billing(self) -> str:
        profile = self.profile
        if profile.instance == THIS_MACHINE:
            return "nothing"
        price = f" at {profile.usd_per_hour:g} USD/h" if profile.usd_per_hour else ""
        return f"this instance, {profile.instance}{price}, until you stop it"

    def _close_all(self) -> list[str]:
        ended: list[str] = []
        with ExitStack() as stack:  # calls every one, in reverse order, even when one of them fails
            for what, close in self._closers:
                stack.callback(close)
                ended.insert(0, what)
            self._closers = []
        return ended


def start(chapter: str, *, profile: str, workspace: str = "", release: str = "") -> Lab:
    """Open chapter ``chapter``: read the profile and fix the workspace. Computes nothing and costs nothing.

    Empty ``workspace`` means ``$PLAYBOOK_WORKSPACE``, else ``workspace`` beside the notebooks' folder; empty
    ``release`` means the profile's.
    """
    chosen = load_profile(profile, release)
    load_release(chosen.release)  # an unknown release is refused here, not in the middle of a chapter
    _quiet_libraries()
    lane_of(chosen.lane).settle()
    here = Path.cwd()  # notebooks/, where JupyterLab or papermill opened one of them
    return Lab(chapter, Workspace(workspace_root(workspace, here.parent if here.name == "notebooks" else here), chosen))


def _quiet_libraries() -> None:
    """Progress bars clutter stored outputs."""
    if "transformers" in sys.modules:
        from transformers.utils import logging

        logging.disable_progress_bar()


@cache
def _abilities() -> dict[str, dict[str, Any]]:
    abilities: dict[str, dict[str, Any]] = read_yaml(ABILITIES_FILE)
    return abilities


def recorded_runs(path: Path = RECORDED_FILE) -> dict[str, dict[str, Any]]:
    """Seconds, cores and date of each chapter's recorded run, by lane and the chapter's number."""
    runs: dict[str, dict[str, Any]] = (read_yaml(path) if path.is_file() else None) or {}
    return runs


def recorded_time(lane: str, chapter: str) -> str:
    """The time of a chapter in words; a lane on which nothing was recorded has none, and that is what it says."""
    run = recorded_runs().get(lane, {}).get(chapter)
    if run is None:
        return "not measured yet on this lane"
    return f"{run['seconds']} s when it was recorded ({run['date']}, {run['cores']} cores)"


def table(rows: list[dict[str, Any]]) -> Any:
    """A pandas table without an index column, one row per dictionary."""
    import pandas as pd

    return pd.DataFrame(rows).set_index(next(iter(rows[0])))
