"""Reads ``data/vllm``: what each release of vLLM takes, as names with what they were where that changed."""

import re
from bisect import bisect_right
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from packaging.version import InvalidVersion, Version

from serving_base.record import Record
from serving_base.yaml_files import read_yaml

DATA_DIR = Path(__file__).parent / "data" / "vllm"
GONE = "gone"
STEP = re.compile(r"(?P<sign>[+-])(?P<values>\S+)")


class VllmRelease(NamedTuple):
    """A release as a text writes it, and its place among those that were read: that of the newest not newer."""

    written: str
    place: int


class Changes(NamedTuple):
    """What a name was, from a place on: ``(3, "switch")``; its last kind is "gone" where it is no more."""

    steps: tuple[tuple[int, str], ...]

    def at(self, place: int) -> str:
        """Its kind there, "" where it is not there."""
        before = [kind for start, kind in self.steps if start <= place]
        return "" if not before or before[-1] == GONE else before[-1]

    @property
    def since(self) -> int:
        return self.steps[0][0]

    @property
    def until(self) -> int | None:
        """The first place without it, None where the newest release has it."""
        return self.steps[-1][0] if self.steps[-1][1] == GONE else None

    @property
    def kinds(self) -> frozenset[str]:
        """All kinds that it ever was."""
        return frozenset(kind for _, kind in self.steps if kind != GONE)


Table = Mapping[str, Changes]


class VllmFacts(Record):
    """``releases``: those that were read, the oldest first; ``tables``: file -> section -> names."""

    releases: tuple[str, ...]
    tables: dict[str, dict[str, dict[str, Any]]]
    instead: dict[str, dict[str, str]]

    @property
    def newest(self) -> VllmRelease:
        return VllmRelease(self.releases[-1], len(self.releases) - 1)

    def name(self, place: int) -> str:
        return self.releases[place]

    def release(self, written: str) -> VllmRelease | None:
        """The release that a text writes; None for one before those that were read, or after them."""
        try:
            version = Version(written.removeprefix("v"))
        except InvalidVersion:
            return None
        version = Version(version.base_version) if version.is_prerelease else version
        known = _versions(self.releases)
        place = bisect_right(known, version) - 1
        if place < 0 or version.release[:2] > known[-1].release[:2]:
            return None
        return VllmRelease(written.removeprefix("v"), place)

    def table(self, file: str, section: str) -> Table:
        return _table(file, section)


@cache
def _versions(releases: tuple[str, ...]) -> list[Version]:
    return [Version(name) for name in releases]


@cache
def vllm_facts() -> VllmFacts:
    files = ("options", "names", "requests", "objects", "values")
    return VllmFacts.model_validate(
        {
            "releases": read_yaml(DATA_DIR / "releases.yml")["releases"],
            "tables": {file: read_yaml(DATA_DIR / f"{file}.yml") for file in files},
            "instead": read_yaml(DATA_DIR / "instead.yml"),
        }
    )


@cache
def _table(file: str, section: str) -> Table:
    facts = vllm_facts()
    places = {name: number for number, name in enumerate(facts.releases)}
    found: dict[str, Changes] = {}
    for name, told in facts.tables[file].get(section, {}).items():
        steps: list[tuple[int, str]] = []
        choice: tuple[str, ...] = ()
        for release, kind in told.items():
            if kind.startswith("choice "):
                choice = _choice(choice, kind.removeprefix("choice "))
                kind = f"choice {'|'.join(choice)}"
            steps.append((places[str(release)], kind))
        found[str(name)] = Changes(tuple(steps))
    return found


def _choice(before: tuple[str, ...], written: str) -> tuple[str, ...]:
    """The values of a choice: written whole, or as what is new and what is gone against those before."""
    steps = list(STEP.finditer(written)) if written[0] in "+-" else []
    if not steps:
        return tuple(written.split("|"))
    values = list(before)
    for step in steps:
        some = step["values"].split("|")
        values = [*values, *some] if step["sign"] == "+" else [one for one in values if one not in some]
    return tuple(values)


def choices(kind: str) -> tuple[str, ...]:
    """The values of a choice; none for another kind."""
    return tuple(kind.removeprefix("choice ").split("|")) if kind.startswith("choice ") else ()


@cache
def options_of(command: str) -> Mapping[str, Changes]:
    """Every option of ``vllm COMMAND`` without dashes: serve, run-batch, bench serve, bench throughput ..."""
    own = "frontend" if command == "serve" else command
    sections = (own,) if command == "bench serve" else ("engine", "async", own)
    facts = vllm_facts()
    found: dict[str, Changes] = {}
    for section in sections:
        for name, changes in facts.table("options", section).items():
            found[name] = together(found.get(name), changes) or changes
    return found


def together(*tables: Changes | None) -> Changes | None:
    """What a name was where several tables hold it: the first that has it counts."""
    known = [one for one in tables if one is not None]
    if len(known) < 2:
        return known[0] if known else None
    steps: list[tuple[int, str]] = []
    for place in sorted({start for one in known for start, _ in one.steps}):
        kind = next((found for one in known if (found := one.at(place))), GONE)
        if not steps or steps[-1][1] != kind:
            steps.append((place, kind))
    return Changes(tuple(steps))


def in_words(changes: Changes) -> str:
    """``0.2.0 to 0.6.6.post1``, ``0.11.0 on``: the releases that have a name."""
    facts = vllm_facts()
    spans: list[str] = []
    begin: int | None = None
    for start, kind in changes.steps:
        if kind == "gone" and begin is not None:
            last = facts.name(start - 1)
            spans.append(last if start - 1 == begin else f"{facts.name(begin)} to {last}")
            begin = None
        elif kind != "gone" and begin is None:
            begin = start
    if begin is not None:
        spans.append(f"{facts.name(begin)} on")
    return " and ".join(spans)
