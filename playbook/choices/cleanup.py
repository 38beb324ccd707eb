"""What a workspace holds, what of it may go, and removing it by name; and what still bills.

Each kind of AWS resource that this road can leave: how to see it and how to end it. Its sentences and links are shown
as Markdown, which pandas would cut off.
"""

import os
import re
import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from pydantic import Field

from playbook import artifact
from playbook.stages import Workspace
from serving_base.errors import ForeignArtifact, UsageError
from serving_base.processes import STARTED
from serving_base.record import Record
from serving_base.yaml_files import read_yaml

if TYPE_CHECKING:
    import psutil

LEFTOVERS_FILE = Path(__file__).parents[1] / "data" / "leftovers.yml"


class Leftover(Record):
    """One kind of resource. ``see``, ``end`` and ``instead`` of it are commands; words in CAPITALS are yours to fill.

    An empty ``end`` means that nothing ends it.
    """

    resource: str
    bills: str
    until: str
    see: str
    end: str
    instead: str = ""
    note: str = ""
    source: str = Field(pattern=r"^https://")

    def row(self) -> dict[str, str]:
        """For a table: what it is, while it bills, and what ends that."""
        return {"resource": self.resource, "bills": self.bills, "until": self.until, "note": self.note}

    def commands(self) -> list[list[str]]:
        """Its commands as argument lists."""
        return [shlex.split(line) for line in (self.see, self.end, self.instead) if line]


@cache
def leftovers(path: Path = LEFTOVERS_FILE) -> tuple[Leftover, ...]:
    """Every kind of leftover, the dearest first."""
    return tuple(Leftover(**entry) for entry in read_yaml(path))


def show(rows: Iterable[Mapping[str, object]]) -> None:
    """Show rows, dictionaries with the same keys, as one table; their texts may hold Markdown."""
    from IPython.display import Markdown, display

    display(Markdown(markdown_table(rows)))  # type: ignore[no-untyped-call]


def show_commands(entries: Iterable[Leftover]) -> None:
    """Show how to see and how to end each kind of resource, ready to paste into a shell."""
    from IPython.display import Markdown, display

    display(Markdown(f"```bash\n{commands(entries)}\n```"))  # type: ignore[no-untyped-call]


def markdown_table(rows: Iterable[Mapping[str, object]]) -> str:
    """Rows as a Markdown table, the first row's keys as its head."""
    entries = list(rows)
    head = list(entries[0]) if entries else []
    lines = [head, ["---"] * len(head), *([_cell(row[key]) for key in head] for row in entries)]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines if line)


def commands(entries: Iterable[Leftover]) -> str:
    """A shell text: for each resource a comment, the command that lists it, and those that end it."""
    blocks = []
    for entry in entries:
        ends = [
            entry.end or "# nothing ends it before its time",
            *([f"# or: {entry.instead}"] if entry.instead else []),
        ]
        blocks.append("\n".join([f"# {entry.resource}", entry.see, *ends]))
    return "\n\n".join(blocks)


def _cell(value: object) -> str:
    return str(value).replace("|", "\\|").replace("\n", " ")


State = Literal["finished", "unfinished", "link", "foreign"]
REASONS = {
    "unfinished": "a run is making it, or was killed",
    "link": "it is a link to another folder",
    "foreign": "it has no manifest of the playbook",
}


@dataclass(frozen=True)
class ArtifactRow:
    """One entry of a workspace. ``needed_by`` names the artifacts there that were made from it."""

    name: str
    kind: str
    megabytes: float
    made_by: str
    state: State
    needed_by: tuple[str, ...] = ()

    @property
    def removable(self) -> bool:
        """True for what the playbook made and finished: its chapter makes it again."""
        return self.state == "finished"

    def row(self) -> dict[str, str | float]:
        """For a table."""
        return {
            "name": self.name,
            "kind": self.kind,
            "MB": round(self.megabytes, 1),
            "made by": self.made_by,
            "needed by": ", ".join(self.needed_by) or "nothing",
            "may be removed": "yes" if self.removable else f"no: {REASONS[self.state]}",
        }


def artifacts(workspace: Workspace) -> list[ArtifactRow]:
    """Every folder in the workspace of this profile: artifacts, unfinished ones, and what is not the playbook's."""
    home = workspace.folder("")
    if not home.is_dir():
        return []
    found: list[artifact.Artifact] = []
    others: list[ArtifactRow] = []
    for folder in sorted(path for path in home.iterdir() if path.is_dir() and path.name != artifact.ASIDE):
        try:
            found.append(_own(folder))
        except ForeignArtifact:
            state: State = "link" if folder.is_symlink() else "foreign"
            others.append(ArtifactRow(folder.name, "unknown", _megabytes(folder), "unknown", state))
    aside = sorted((home / artifact.ASIDE).glob("*/"))
    unfinished = [ArtifactRow(path.name, "unknown", _megabytes(path), "unknown", "unfinished") for path in aside]
    return [_row(entry, found) for entry in found] + others + unfinished


def remove(workspace: Workspace, names: Sequence[str]) -> list[ArtifactRow]:
    """Remove these artifacts of the workspace and return what they were; every name is checked before one goes.

    Raises :class:`UsageError` for a name that is not an entry of the workspace, is unfinished or foreign, or that
    an artifact which stays was made from, and PlaybookError while a run is making one of them.
    """
    known = {row.name: row for row in artifacts(workspace) if row.state != "unfinished"}
    rows = []
    for name in dict.fromkeys(names):
        if name not in known:
            there = ", ".join(entry for entry, row in known.items() if row.removable) or "nothing"
            raise UsageError(f"no artifact {name!r} in {workspace.folder('')}", fix=f"there is: {there}")
        row = known[name]
        if not row.removable:
            raise UsageError(f"{name} is not removed", why=REASONS[row.state], fix="look at it, then remove it by hand")
        if kept := [other for other in row.needed_by if other not in names]:
            raise UsageError(
                f"{name} is not removed",
                why=f"{', '.join(kept)} was made from it and would look stale",
                fix=f"remove {', '.join(kept)} too, or keep {name}",
            )
        rows.append(row)
    for row in rows:
        artifact.remove(workspace.folder(row.name))
    return rows


def with_what_was_made_from(names: Sequence[str], rows: Sequence[ArtifactRow]) -> list[str]:
    """``names``, and every artifact of ``rows`` that was made from one of them, however many steps away."""
    found = list(dict.fromkeys(names))
    for name in found:  # grows while it is walked
        found += [other for row in rows if row.name == name for other in row.needed_by if other not in found]
    return found


def running(workspace: Workspace) -> list[str]:
    """Processes of the course that name this workspace in their command line.

    Ourselves and those that started us are left out, and so is the user's own ``tail -f`` of a log in it.
    """
    import psutil

    own = {os.getpid(), *(parent.pid for parent in psutil.Process().parents())}
    found = []
    for process in psutil.process_iter(["pid", "name", "cmdline"]):
        line = " ".join(process.info["cmdline"] or ())
        named = re.search(rf"{re.escape(str(workspace.root))}(?![\w.-])", line)
        if named and process.pid not in own and _ours(process):
            found.append(f"{process.info['name']} (pid {process.pid})")
    return found


def _ours(process: "psutil.Process") -> bool:
    import psutil

    try:
        return STARTED in process.environ()
    except psutil.Error:  # ended meanwhile, or another user's
        return False


def _own(folder: Path) -> artifact.Artifact:
    if folder.is_symlink():
        raise ForeignArtifact(f"{folder} is a link", why="what it points to may be another's")
    return artifact.read(folder)


def _row(entry: artifact.Artifact, found: Sequence[artifact.Artifact]) -> ArtifactRow:
    digest = entry.manifest.digest
    needed_by = tuple(other.path.name for other in found if digest in other.manifest.origin.inputs.values())
    return ArtifactRow(
        entry.path.name, entry.kind, entry.total_bytes / 1e6, entry.manifest.origin.made_by, "finished", needed_by
    )


def _megabytes(folder: Path) -> float:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file()) / 1e6
