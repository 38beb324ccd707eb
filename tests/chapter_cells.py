"""One code cell of a chapter, run alone: with values that it would find, and with one of them spoiled.

A `lab.check` is worth its tick only if it can fail. `tests/chapter_checks/chapter_NN.py` holds a list ``CASES``;
`test_chapter_checks.py` runs every case, and asks that every `lab.check` of that chapter fires in one of them.
"""

import ast
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from traceback import walk_tb
from typing import Any

import playbook
from playbook.chapter import Lab
from playbook.course.notebooks import chapter, chapters, read
from playbook.profile import load_profile
from playbook.stages import Workspace
from serving_base.errors import CheckFailed

ROOT = Path(__file__).parents[1]


@dataclass(frozen=True)
class Case:
    """Cell ``cell`` passes with the names in ``given``; with those of ``spoiled`` instead, one of its checks fires.

    ``claim``: the beginning of that check's claim. ``given``: every name that the cell reads and an earlier cell made;
    ``lab``, ``playbook`` and ``display`` are there, and small values will do. A :class:`Fresh` value is made anew for
    each run, for what the cell changes. ``profile`` and ``release`` decide what `lab.can` answers.
    """

    cell: str
    claim: str
    given: Mapping[str, Any]
    spoiled: Mapping[str, Any]
    profile: str = "local"
    release: str = ""


@dataclass(frozen=True)
class Fresh:
    """A value that ``make()`` gives, called once for each run of a cell."""

    make: Callable[[], Any]


@dataclass(frozen=True)
class Fired:
    """The check that failed: its claim, and the line of its cell."""

    claim: str
    line: int


class WatchedLab(Lab):
    """The real lab, which remembers what was claimed last."""

    claim = ""

    def check(self, claim: str, holds: object, detail: str = "") -> None:
        self.claim = claim
        super().check(claim, holds, detail)


@cache
def code_cells(number: str) -> dict[str, str]:
    """Cell id -> source of the chapter's code cells."""
    found = read(chapter(number, chapters(ROOT / "notebooks")).path)
    return {cell["id"]: cell["source"] for cell in found.cells if cell["cell_type"] == "code"}


def checks_of(number: str) -> Iterator[tuple[str, int]]:
    """Cell id and line of every `lab.check` in the chapter."""
    for cell, source in code_cells(number).items():
        for node in ast.walk(ast.parse(source)):
            if isinstance(node, ast.Call) and ast.unparse(node.func) == "lab.check":
                yield cell, node.lineno


def run_cell(number: str, case: Case, values: Mapping[str, Any], folder: Path) -> Fired | None:
    """Run the case's cell; the check that fired, or None. Any other error goes to the caller."""
    lab = WatchedLab(number, Workspace(folder, load_profile(case.profile, case.release)))
    made = {name: value.make() if isinstance(value, Fresh) else value for name, value in values.items()}
    names = {"lab": lab, "playbook": playbook, "display": lambda *shown: None} | made
    try:
        exec(compile(code_cells(number)[case.cell], case.cell, "exec"), names)
    except CheckFailed as error:
        here = (line for frame, line in walk_tb(error.__traceback__) if frame.f_code.co_filename == case.cell)
        return Fired(lab.claim, list(here)[-1])  # the innermost: a check may stand in a function of the cell
    return None
