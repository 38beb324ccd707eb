"""Reads ``data/guide/*.yml``: what flags do, the way to the PyTorch flow, ways to run."""

from collections.abc import Iterable
from functools import cache
from typing import Any, TypeVar

from pydantic import ValidationError

from serving_base.errors import PlaybookError
from serving_base.record import Record
from serving_base.yaml_files import read_yaml
from trtllm_check.releases.load import DATA_DIR, range_in_words

GUIDE_DIR = DATA_DIR / "guide"
TEMPLATES = "config.pbtxt"  # stands for a tool where a variable of Triton's templates is meant


class Replacement(Record):
    """What to write instead: a ``flag`` of ``tool`` (empty: the same tool), or a ``setting`` that is no flag."""

    flag: str = ""
    tool: str = ""
    setting: str = ""
    how: str


class Change(Record):
    """What a release changed in a flag's meaning."""

    release: str
    text: str


class FlagGuide(Record):
    """What one flag of one tool does, when to use it, and what took its place."""

    tool: str
    flag: str
    does: str
    when: str
    instead: tuple[Replacement, ...] = ()
    changed: tuple[Change, ...] = ()
    source: tuple[str, ...]


class Step(Record):
    """One step from the engine flow to the PyTorch flow; without ``flags`` it is about the whole tool."""

    step: str
    tool: str
    flags: tuple[str, ...] = ()
    old: str = ""
    new: str
    note: str = ""
    source: str


class RunMode(Record):
    """One way to run an engine, in the releases ``since`` to ``until``."""

    since: str = ""
    until: str = ""
    name: str
    how: str
    note: str
    source: str

    @property
    def releases(self) -> str:
        return range_in_words(self.since, self.until)


class EarlierName(Record):
    """A name of the time before 0.8.0, and what does its work since."""

    now: str
    source: str


@cache
def earlier_names() -> dict[str, EarlierName]:
    """Names of the build.py of 0.7 and before, without dashes."""
    return {name: _model(EarlierName, entry) for name, entry in read_yaml(GUIDE_DIR / "earlier.yml").items()}


@cache
def flag_guides() -> dict[tuple[str, str], FlagGuide]:
    """(tool, flag) -> what it does."""
    data = _flags_file()
    return {
        (tool, flag): _model(
            FlagGuide,
            {"tool": tool, "flag": flag, **entry, "source": _sources(entry, data["read_in"][tool], data["sources"])},
        )
        for tool, entries in data["flags"].items()
        for flag, entry in entries.items()
    }


def guide_of(tool: str, names: Iterable[str]) -> FlagGuide | None:
    """What is known of a tool's flag, under the first of its ``names`` that has an entry."""
    tools = [tool, _flags_file()["shared"].get(tool, tool)]
    known = flag_guides()
    return next((known[owner, name] for owner in tools for name in names if (owner, name) in known), None)


def counterparts(tool: str, flag: str) -> list[str]:
    """What ``flag`` is called in other releases: what took its place, what else that replaced, what it replaced."""
    owner = _flags_file()["shared"].get(tool, tool)
    entries = {one: guide for (of, one), guide in flag_guides().items() if of in (owner, tool)}

    def newer(name: str) -> list[str]:
        return [one.flag for one in entries[name].instead if one.flag and not one.tool] if name in entries else []

    older = [one for name in [*newer(flag), flag] for one in entries if name in newer(one)]
    return [one for one in dict.fromkeys([*newer(flag), *older]) if one != flag]


@cache
def migration() -> tuple[Step, ...]:
    """From the engine flow to the PyTorch flow, step by step."""
    return tuple(
        _model(Step, {"step": each["step"], "tool": each["tool"], **turn})
        for each in read_yaml(GUIDE_DIR / "migration.yml")["steps"]
        for turn in each["turns"]
    )


@cache
def run_modes() -> tuple[RunMode, ...]:
    """The ways to run an engine."""
    return tuple(_model(RunMode, entry) for entry in read_yaml(GUIDE_DIR / "run_modes.yml")["run_modes"])


@cache
def _flags_file() -> Any:
    return read_yaml(GUIDE_DIR / "flags.yml")


def _sources(entry: dict[str, Any], own: str, named: dict[str, str]) -> list[str]:
    """Where the entry was read; one that does not say so in the tool's ``own`` file."""
    return [named.get(name, name) for name in entry.get("source", [own])]


M = TypeVar("M", bound=Record)


def _model(kind: type[M], entry: dict[str, Any]) -> M:
    try:
        return kind.model_validate(entry)
    except ValidationError as error:
        raise PlaybookError(f"{entry} is no {kind.__name__}", why=str(error), fix=f"fix it in {GUIDE_DIR}") from error
