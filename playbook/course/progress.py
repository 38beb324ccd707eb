"""What a run shows while it goes: bars on a terminal, plain lines elsewhere."""

import sys
import time
from collections.abc import Callable
from types import TracebackType
from typing import Protocol, Self

from rich.console import Console
from rich.markup import escape
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    SpinnerColumn,
    TaskID,
    TextColumn,
    TimeElapsedColumn,
)

PLAIN_INTERVAL_S = 10.0
SIGN_OF_LIFE_S = 60.0


class RunProgress(Protocol):
    """Told of each chapter's start, cells and end; `tick` comes every moment in between."""

    def __enter__(self) -> Self: ...
    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...
    def chapter_started(self, name: str, title: str, cells: int) -> None: ...
    def cell_started(self, name: str, number: int, of: int, text: str) -> None: ...
    def tick(self) -> None: ...
    def chapter_ended(self, name: str, status: str, seconds: float) -> None: ...


def make_progress(console: Console | None = None) -> RunProgress:
    console = console or Console()
    return BarProgress(console) if console.is_terminal else LineProgress()


class LineProgress:
    """One line when a chapter starts and ends; in between at most one in ten seconds, and at least one a minute."""

    def __init__(self, write: Callable[[str], None] | None = None) -> None:
        self._write = write or (lambda line: print(line, file=sys.stdout, flush=True))
        self._cells: dict[str, str] = {}
        self._last: dict[str, float] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        pass

    def chapter_started(self, name: str, title: str, cells: int) -> None:
        self._cells[name], self._last[name] = "", time.monotonic()
        self._write(f"{name}  {title} ({cells} code cells)")

    def cell_started(self, name: str, number: int, of: int, text: str) -> None:
        self._cells[name] = f"cell {number}/{of}: {text}"
        self._write_after(name, PLAIN_INTERVAL_S)

    def tick(self) -> None:
        for name in self._cells:
            self._write_after(name, SIGN_OF_LIFE_S)

    def _write_after(self, name: str, silence_s: float) -> None:
        if time.monotonic() - self._last[name] >= silence_s:
            self._last[name] = time.monotonic()
            self._write(f"{name}  {self._cells[name]}")

    def chapter_ended(self, name: str, status: str, seconds: float) -> None:
        del self._cells[name]
        self._write(f"{name}  {status} after {seconds:.1f} s")


class BarProgress:
    """A bar per chapter, with the cell that is running."""

    def __init__(self, console: Console) -> None:
        self._tasks: dict[str, TaskID] = {}
        self._progress = Progress(
            SpinnerColumn(finished_text=" "),
            TextColumn("{task.description}"),
            BarColumn(bar_width=24),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            TextColumn("{task.fields[cell]}", style="dim"),
            console=console,
        )

    def __enter__(self) -> Self:
        self._progress.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._progress.stop()

    def chapter_started(self, name: str, title: str, cells: int) -> None:
        self._tasks[name] = self._progress.add_task(name, total=cells, cell=title)

    def cell_started(self, name: str, number: int, of: int, text: str) -> None:
        self._progress.update(self._tasks[name], completed=number - 1, total=of, cell=escape(text))

    def tick(self) -> None:
        """The bars move by themselves."""

    def chapter_ended(self, name: str, status: str, seconds: float) -> None:
        number = self._tasks[name]
        task = next(task for task in self._progress.tasks if task.id == number)
        done = task.total if status == "ok" else task.completed
        self._progress.update(number, completed=done, cell=f"{status} after {seconds:.1f} s")
        self._progress.stop_task(number)
