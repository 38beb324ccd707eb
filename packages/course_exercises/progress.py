"""How a learner's exercises and guesses went: a line of JSON each, in the workspace, read by ``playbook progress``."""

import json
from collections.abc import Iterable
from datetime import datetime
from pathlib import Path

from serving_base.record import Record

PROGRESS_FILE = "progress.jsonl"


class ProgressEntry(Record):
    """One try: an exercise (``solved``), or a guess with what was measured (``guess``, ``actual``, ``unit``)."""

    name: str
    at: str
    solved: bool | None = None
    guess: float | None = None
    actual: float | None = None
    unit: str = ""

    @property
    def chapter(self) -> str:
        return self.name.split("-")[0]

    @property
    def factor(self) -> float | None:
        """How many times off a guess was, 1 for a hit; None where that says nothing."""
        if self.guess is None or self.actual is None or min(self.guess, self.actual) <= 0:
            return None
        return max(self.guess / self.actual, self.actual / self.guess)


def note(workspace: Path, name: str, **what: bool | float | str) -> None:
    """Append one try to the workspace's progress."""
    entry = ProgressEntry(name=name, at=datetime.now().astimezone().isoformat(timespec="seconds"), **what)  # type: ignore[arg-type]
    workspace.mkdir(parents=True, exist_ok=True)
    with (workspace / PROGRESS_FILE).open("a", encoding="utf-8") as file:
        file.write(entry.model_dump_json(exclude_none=True) + "\n")


def entries(workspace: Path) -> list[ProgressEntry]:
    """All tries so far, oldest first. A line that another version wrote, or half of one, is passed over."""
    path = workspace / PROGRESS_FILE
    if not path.is_file():
        return []
    found = []
    for line in path.read_text(encoding="utf-8").splitlines():
        try:
            found.append(ProgressEntry.model_validate(json.loads(line)))
        except ValueError:
            continue
    return found


def solved(tries: Iterable[ProgressEntry]) -> set[str]:
    """The exercises that were solved at least once."""
    return {entry.name for entry in tries if entry.solved}


def first_guesses(tries: Iterable[ProgressEntry]) -> list[ProgressEntry]:
    """The first try of each guess, in the order of time: a second one is no guess."""
    found: dict[str, ProgressEntry] = {}
    for entry in tries:
        if entry.guess is not None:
            found.setdefault(entry.name, entry)
    return list(found.values())
