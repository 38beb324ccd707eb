"""What every chapter shares: its opening, its checks, its results, the panel for a P5, and its clean-up."""

import atexit
import platform
import sys
from collections.abc import Callable
from contextlib import ExitStack
from functools import cache
from pathlib import Path
from typing import Any

from course_exercises.exercise import checked, shown
from course_exercises.progress import note
from course_runs.edition import recorded_notebooks
from playbook.artifact import Artifact, Change, refusal
from playbook.guesses import Guess, ask, somebody_is_there
from playbook.knobs import Knob, turn
from playbook.lanes.base import lane_of
from playbook.profile import Profile, load_profile
from playbook.stages import Workspace, require, tokenizer_path, workspace_root
from serving_base.checks import usable_cores
from serving_base.errors import CheckFailed, PlaybookError, UsageError
from serving_base.yaml_files import read_yaml
from trt_compiler.environment import absence
from trtllm_check.deployment import THIS_MACHINE, changed
from trtllm_check.releases import load_release

RECORDED_FILE = Path(__file__).parent / "data" / "recorded.yml"
ABILITIES_FILE = Path(__file__).parent / "data" / "abilities.yml"
RESULT_MIME = "application/vnd.playbook.result+json"
MEASURED = "measured here"
"""How the origin of a figure begins that this run, with its own weights, measured."""
UNTRAINED = {"published": "", "random": ", random weights: speed and bytes only"}
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
        """Whether this run can do ``ability``, one of ``data/abilities.yml``; :class:`UsageError` lists them."""
        known = _abilities()
        if ability not in known:
            raise UsageError(f"no ability is called {ability!r}", fix=f"ask for one of {', '.join(sorted(known))}")
        needs = known[ability].get("needs", "")
        profile = self.profile
        met: dict[str, Callable[[], bool]] = {
            "": lambda: True,
            "trained weights": lambda: profile.weights == "published",
            "a processor alone": lambda: not profile.on_gpus,
            "the tiny model": lambda: profile.model == "tiny",
            "engines of both formats": lambda: profile.build_from == "checkpoint" and profile.bf16_beside,
            "NVIDIA's compiler beside the tiny model": lambda: profile.model == "tiny" and not _compiler_absence(),
        }
        return ability in lane_of(profile.lane).CAN and met[needs]()

    def card(self) -> None:
        """Print where this chapter runs and how long it took when it was recorded, with links to its other editions."""
        profile = self.profile
        gpu = f"{profile.gpu_count} x {profile.gpu}" if profile.gpu_count else "no GPU"
        print(f"chapter    {self.chapter}")
        formats = f"{profile.qformat} weights, {profile.kv_cache_dtype} KV cache"
        print(f"profile    {profile.name}: {profile.model}, {formats}{UNTRAINED[profile.weights]}")
        print(f"lane       {profile.lane} ({gpu}, TP {profile.tp} x PP {profile.pp})")
        print(f"release    TensorRT-LLM {profile.release}")
        print(f"machine    {platform.system()} {platform.machine()}, {usable_cores()} cores")
        print(f"workspace  {self.workspace.root}")
        print(f"time       {recorded_time(self.chapter, profile.name, profile.lane)}")
        for where, notebook in recorded_notebooks(Path("..", "recorded"), self.chapter):
            self.say("Recorded on another machine ({where}): [its outputs]({path})", where=where, path=notebook)

    def require(self, name: str) -> Artifact:
        """Return an earlier chapter's artifact, or raise the error that names that chapter."""
        return require(self.workspace, name)

    def refusal(self, artifact: Artifact, change: Change | None = None, **run: Any) -> PlaybookError | None:
        """What a chapter says of a copy of ``artifact`` after ``change``: :func:`playbook.artifact.refusal`."""
        return refusal(artifact, change, **run)

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

    def result(self, name: str, value: float | int | str, unit: str = "", origin: str = MEASURED) -> None:
        """Show a key result and hand it to the runner's report."""
        from IPython.display import display

        if origin.startswith(MEASURED):
            origin += UNTRAINED[self.profile.weights]
        result = {"name": name, "value": value, "unit": unit, "origin": origin}
        text = f"{name} = {value} {unit}".rstrip() + f" [{origin}]"
        display({RESULT_MIME: result, "text/plain": text}, raw=True)  # type: ignore[no-untyped-call]

    def guess(self, name: str, question: str, *, low: float, high: float, default: float, unit: str = "") -> Guess:
        """Ask for a guess with a slider; a run without a person goes on with ``default``. See :class:`Guess`."""
        return ask(
            f"{self.chapter}-{name}",
            question,
            low=low,
            high=high,
            default=default,
            unit=unit,
            workspace=self.workspace.root,
        )

    def exercise(self, number: str, answer: object, **context: object) -> None:
        """Print what is right and wrong about ``answer`` and why; it stops nothing. Solved ones are kept."""
        found = checked(number, answer, **context)
        print(found)
        if found.solved and somebody_is_there():
            note(self.workspace.root, number, solved=True)

    def turn(self, draw: Callable[..., None], **knobs: Knob) -> None:
        """Draw a figure with a control for each of ``knobs`` in JupyterLab, or for their first values elsewhere."""
        turn(draw, knobs)

    def solution(self, number: str) -> None:
        """Print our solution of an exercise: one of those that pass."""
        print(shown(number))

    def panel(self, *stages: str, **settings: str) -> None:
        """Show these stages' commands: this profile's, those that ran here apart, or ``p5``'s where none are run.

        ``settings`` of the profile to look at other commands with: ``qformat="int4_awq"``.
        """
        from IPython.display import Markdown, display

        from playbook.panel import panel_markdown

        own = self.can("print_commands")
        profile = changed(self.profile if own else load_profile(P5_PROFILE, self.profile.release), **settings)
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
def _compiler_absence() -> str:
    """Why this machine has no compiler of NVIDIA's; asked once, as it starts a process."""
    return absence()


@cache
def _abilities() -> dict[str, dict[str, Any]]:
    abilities: dict[str, dict[str, Any]] = read_yaml(ABILITIES_FILE)
    return abilities


def recorded_runs(path: Path = RECORDED_FILE) -> dict[str, dict[str, Any]]:
    """Seconds, date and ``cores`` or ``machine`` of each chapter's recorded run, by profile or lane, and by number."""
    runs: dict[str, dict[str, Any]] = (read_yaml(path) if path.is_file() else None) or {}
    return runs


def recorded_time(chapter: str, *places: str) -> str:
    """The time of a chapter in words, at the first of ``places`` (profile, lane) where it was recorded, if at one."""
    runs = recorded_runs()
    for run in (runs[place][chapter] for place in places if chapter in runs.get(place, {})):
        machine = run.get("machine") or f"{run['cores']} cores"
        return f"{run['seconds']} s when it was recorded ({run['date']}, {machine})"
    return "not measured yet on this lane"


def table(rows: list[dict[str, Any]]) -> Any:
    """A pandas table without an index column, one row per dictionary; a long text stays whole (pandas cuts at 50)."""
    import pandas as pd

    pd.set_option("display.max_colwidth", None)
    return pd.DataFrame(rows).set_index(next(iter(rows[0])))
