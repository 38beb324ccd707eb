"""The course in another language: prose from a catalogue, code and outputs from the one source.

``notebooks/LANG/NAME.yml`` holds one entry for each Markdown cell of a chapter: ``cell`` (its id), ``source`` (the
beginning of the hash of the English text that was translated) and ``text``. What is missing or was translated from
another text stays English, and is told.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from course_runs.edition import source_hash
from serving_base.errors import UsageError
from serving_base.record import Record
from serving_base.yaml_files import read_yaml

if TYPE_CHECKING:
    from nbformat import NotebookNode

HASH_LENGTH = 12
LINK = re.compile(r"\]\((?!https?://|#|\w[\w-]*\.ipynb)([^)\s]+)\)")
"""A link to a file that is not a chapter: from the built folder it is one step further away."""


class Translated(Record):
    """One Markdown cell of a chapter in another language."""

    cell: str
    source: str
    text: str


@dataclass(frozen=True)
class Gap:
    """A cell that a reader of the other language sees in English, or an entry that no cell needs."""

    cell: str
    kind: Literal["not translated", "stale", "without a cell", "code differs"]


def shortened(source: str) -> str:
    """What stands for an English text in the catalogue."""
    return source_hash(source)[:HASH_LENGTH]


def read_catalogue(path: Path) -> dict[str, Translated]:
    """The entries of one chapter by cell; empty where there is no file. :class:`UsageError` for what is none."""
    if not path.is_file():
        return {}
    try:
        entries = [Translated.model_validate(entry) for entry in read_yaml(path) or ()]
    except (ValueError, TypeError) as error:
        raise UsageError(
            f"{path} is no catalogue", why=str(error), fix="write a list of entries with cell, source and text"
        ) from error
    return {entry.cell: entry for entry in entries}


def prose(notebook: NotebookNode) -> dict[str, str]:
    """The Markdown cells' texts, by id."""
    return {cell.id: cell.source for cell in notebook.cells if cell.cell_type == "markdown" and cell.source.strip()}


def gaps(notebook: NotebookNode, catalogue: Mapping[str, Translated]) -> list[Gap]:
    """What of a chapter is missing in its catalogue, or is no longer what was translated."""
    english = prose(notebook)
    found: list[Gap] = []
    for cell, text in english.items():
        if cell not in catalogue:
            found.append(Gap(cell, "not translated"))
        elif catalogue[cell].source != shortened(text):
            found.append(Gap(cell, "stale"))
        elif spans(text) != spans(catalogue[cell].text):
            found.append(Gap(cell, "code differs"))
    return [*found, *(Gap(cell, "without a cell") for cell in catalogue if cell not in english)]


def spans(text: str) -> list[str]:
    """What no translation may change: formulas, code between backticks, and links' targets; sorted."""
    fenced = re.findall(r"```.*?```", text, re.DOTALL)
    rest = re.sub(r"```.*?```", "", text, flags=re.DOTALL)
    return sorted([*fenced, *re.findall(r"`[^`]+`", rest), *re.findall(r"\]\(([^)]+)\)", rest)])


def translated(notebook: NotebookNode, catalogue: Mapping[str, Translated], *, steps: int = 0) -> NotebookNode:
    """A copy whose prose is the catalogue's where that is up to date. ``steps``: folders deeper than the original."""
    from copy import deepcopy

    copy: NotebookNode = deepcopy(notebook)
    for cell in copy.cells:
        if cell.cell_type != "markdown":
            continue
        entry = catalogue.get(cell.id)
        if entry and entry.source == shortened(cell.source):
            cell.source = entry.text.rstrip("\n")
        cell.source = LINK.sub(lambda found: f"]({'../' * steps}{found[1]})", cell.source)
    return copy


def languages(folder: Path) -> Sequence[str]:
    """The languages that have a catalogue below the notebooks' ``folder``."""
    return sorted({path.parent.name for path in folder.glob("[a-z][a-z]/*.yml")})
