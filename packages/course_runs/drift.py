"""What changed in the chapters since an edition was recorded, and whether changes.yml says why each change stands."""

import ast
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from course_runs.edition import Edition, RecordedChapter, cell_hashes
from serving_base.errors import UsageError
from serving_base.yaml_files import read_yaml

if TYPE_CHECKING:
    from nbformat import NotebookNode

CHANGES_FILE = "changes.yml"
REMOVED = "removed"
"""In place of a hash: the cell, or the chapter, is no longer there."""
EVERY_CELL = "all"
"""In place of a cell's id: the chapter itself is gone."""
FIELDS = ("chapter", "cell", "source_sha256", "why")
CHAPTER_FILE = re.compile(r"\d\d-[\w-]+\.ipynb")


@dataclass(frozen=True)
class TodaysChapter:
    """``cells``: the hash of each code cell, by id. ``parameters``: the names that the chapter declares."""

    cells: Mapping[str, str]
    parameters: frozenset[str]


@dataclass(frozen=True)
class CellChange:
    """``sha256``: of today's source, or :data:`REMOVED`. ``why``: what changes.yml says; "" if it says nothing."""

    chapter: str
    cell: str
    kind: Literal["changed", "added", "removed"]
    sha256: str
    why: str = ""


@dataclass(frozen=True)
class ChapterDrift:
    """One chapter beside one recorded run. ``gone``: parameters that the run gave it, and that it no longer has."""

    run: str
    chapter: str
    recorded: bool
    changes: tuple[CellChange, ...] = ()
    gone: tuple[str, ...] = ()

    @property
    def unexplained(self) -> tuple[CellChange, ...]:
        return tuple(each for each in self.changes if not each.why)

    @property
    def state(self) -> str:
        """Such as "current", "not recorded" or "changed 02-07, added 02-08 (explained); parameter gone: isl"."""
        if not self.recorded:
            return "not recorded"
        words = [f"{each.kind} {each.cell}{' (explained)' if each.why else ''}" for each in self.changes]
        gone = f"parameter gone: {', '.join(self.gone)}" if self.gone else ""
        return "; ".join(filter(None, (", ".join(words), gone))) or "current"


def todays_chapters(folder: Path) -> dict[str, TodaysChapter]:
    """The chapters of ``notebooks/``, by name such as 02-fp8-quantization."""
    from nbformat import read

    files = sorted(path for path in folder.glob("*.ipynb") if CHAPTER_FILE.fullmatch(path.name))
    notebooks = {path.stem: read(path, as_version=4) for path in files}  # type: ignore[no-untyped-call]
    return {name: TodaysChapter(cell_hashes(found), declared(found)) for name, found in notebooks.items()}


def declared(notebook: "NotebookNode") -> frozenset[str]:
    """The names that the notebook's `parameters` cell declares."""
    cells = (cell for cell in notebook.cells if "parameters" in cell.metadata.get("tags", []))
    nodes = [node for cell in cells for node in ast.parse(cell.source).body]
    return frozenset(
        node.target.id for node in nodes if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name)
    )


def drift(
    edition: Edition, today: Mapping[str, TodaysChapter], explained: Mapping[tuple[str, str, str], str]
) -> list[ChapterDrift]:
    """Every run of the edition beside every chapter of ``today``, and those recorded that are gone since."""
    found = []
    for run in edition.runs:
        recorded = {each.chapter: each for each in run.chapters if each.cells}
        for name in sorted({*today, *recorded}):
            if name not in recorded:
                found.append(ChapterDrift(run.folder, name, recorded=False))
                continue
            now = today.get(name)
            gone = sorted(set(recorded[name].parameters) - now.parameters) if now else []
            changes = tuple(_changes(recorded[name], now, explained))
            found.append(ChapterDrift(run.folder, name, True, changes, tuple(gone)))
    return found


def _changes(
    recorded: RecordedChapter, now: TodaysChapter | None, explained: Mapping[tuple[str, str, str], str]
) -> Iterable[CellChange]:
    def change(cell: str, kind: Literal["changed", "added", "removed"], sha256: str) -> CellChange:
        why = explained.get((recorded.chapter, cell, sha256), "")
        return CellChange(recorded.chapter, cell, kind, sha256, why)

    if now is None:
        yield change(EVERY_CELL, "removed", REMOVED)
        return
    for cell, sha256 in now.cells.items():
        if cell not in recorded.cells:
            yield change(cell, "added", sha256)
        elif recorded.cells[cell] != sha256:
            yield change(cell, "changed", sha256)
    for cell in recorded.cells:
        if cell not in now.cells:
            yield change(cell, "removed", REMOVED)


def read_changes(folder: Path) -> dict[tuple[str, str, str], str]:
    """changes.yml of an edition: (chapter, cell, hash of today's source) -> why.

    An entry without a why counts for none. :class:`UsageError` for another shape.
    """
    path = folder / CHANGES_FILE
    entries: Any = (read_yaml(path) or []) if path.is_file() else []
    if not isinstance(entries, list):
        raise UsageError(f"{path} is no list", fix=f"write entries of {', '.join(FIELDS)}")
    for number, entry in enumerate(entries, 1):
        if not isinstance(entry, Mapping) or set(entry) != set(FIELDS):
            raise UsageError(
                f"entry {number} of {path} is not as expected",
                why=f"it has to have these, and no others: {', '.join(FIELDS)}",
                fix="paste what this prints for a change without an entry: playbook recorded verify",
            )
    return {
        (str(entry["chapter"]), str(entry["cell"]), str(entry["source_sha256"])): str(entry["why"] or "").strip()
        for entry in entries
    }


def out_of_date(
    explained: Mapping[tuple[str, str, str], str], found: Sequence[ChapterDrift]
) -> list[tuple[str, str, str]]:
    """Entries of changes.yml that explain no change of today: its source has changed again, or back."""
    now = {(each.chapter, each.cell, each.sha256) for one in found for each in one.changes}
    return [entry for entry in explained if entry not in now]


def entries_to_write(found: Sequence[ChapterDrift]) -> str:
    """YAML to paste into changes.yml, one entry a change that none explains, each with its why to be written."""
    import yaml

    changes = dict.fromkeys(each for one in found for each in one.unexplained)
    entries = [dict(zip(FIELDS, (each.chapter, each.cell, each.sha256, ""), strict=True)) for each in changes]
    return yaml.safe_dump(entries, sort_keys=False, width=120) if entries else ""
