"""Run chapters, each with papermill in a guarded process, and record what came of them."""

import json
import os
import shutil
import sys
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal

from nbformat import NotebookNode

from playbook.chapter import RESULT_MIME
from playbook.course.execute import Job
from playbook.course.failures import DEAD_KERNEL_FIX, TIMEOUT_FIX, Failure
from playbook.course.kernel_env import IMPORTS, kernel_environment
from playbook.course.notebooks import WHOLE, Chapter, read
from playbook.course.progress import RunProgress
from playbook.lanes.base import lane_of
from serving_base.errors import EnvironmentProblem
from serving_base.processes import start_guarded

POLL_S = 0.1
STOP_GRACE_S = 10.0
MIN_FREE_BYTES = 200 * 10**6
STARTED_AHEAD = 2
"""Chapters whose kernels start before their turn: two seconds of each that the course need not wait for."""

Status = Literal["ok", "skipped", "failed", "interrupted", "not run"]
GONE_ON_AFTER = ("ok", "skipped")


@dataclass(frozen=True)
class Limits:
    """Seconds that one cell and one whole chapter may take."""

    cell_s: int
    chapter_s: int


@dataclass(frozen=True)
class RunSpec:
    """What to run: chapters in order, the checked parameters of each (by number), and where everything goes."""

    chapters: Sequence[Chapter]
    parameters: Mapping[str, Mapping[str, Any]]
    lane: str
    workspace: Path
    folder: Path
    limits: Limits
    keep_going: bool = False
    jobs: int = 1


@dataclass
class ChapterResult:
    """One object of results.json: `failure` says why it failed, `skipped` why it ended early on purpose."""

    chapter: str
    title: str
    status: Status = "not run"
    seconds: float = 0.0
    failure: Failure | None = None
    skipped: Failure | None = None
    key_results: list[dict[str, Any]] = field(default_factory=list)
    notebook: str = ""
    log: str = ""


def new_run_folder(parent: Path) -> Path:
    """A fresh folder named after the time, in UTC."""
    stamp = datetime.now(UTC).strftime("%Y-%m-%dT%H-%M-%S")
    for suffix in ("", *(f"-{number}" for number in range(2, 100))):
        folder = parent / f"{stamp}{suffix}"
        try:
            folder.mkdir(parents=True)
        except FileExistsError:
            continue
        return folder
    raise EnvironmentProblem(f"{parent} holds a hundred runs of this second")


def new_results(spec: RunSpec) -> list[ChapterResult]:
    """One result per chapter, none of them run yet."""
    return [ChapterResult(chapter.name, chapter.title) for chapter in spec.chapters]


def run(spec: RunSpec, results: Sequence[ChapterResult], progress: RunProgress) -> None:
    """Run the chapters and fill in their results, ``spec.jobs`` at a time, each after those that it names.

    The kernels of the next two start meanwhile, one by one, and wait; never while a chapter runs that measures.
    After a failure no other starts, unless `keep_going`: they stay "not run". results.json in the run's folder is
    written after every chapter, so that a killed run leaves a true record.
    Raises EnvironmentProblem before anything starts if the disk is full, and KeyboardInterrupt again on Ctrl-C.
    """
    refuse_full_disk(spec.folder, spec.workspace)
    write_results(spec.folder, results)
    with progress, scratch_folder(spec.folder) as scratch:
        lane = lane_of(spec.lane)
        env = {**kernel_environment(workspace=spec.workspace, scratch=scratch), **lane.KERNEL_ENVIRONMENT}
        waiting = dict(zip(spec.chapters, results, strict=True))
        running: list[ChapterProcess] = []
        ahead: dict[Chapter, ChapterProcess] = {}

        def start(chapter: Chapter) -> ChapterProcess:
            return ChapterProcess(chapter, waiting[chapter], spec, env, scratch, progress)

        try:
            while waiting or running:
                while chapter := next_to_start(waiting, {one.chapter: one.passed for one in running}, spec.jobs):
                    running.append(ahead.pop(chapter) if chapter in ahead else start(chapter))
                    running[-1].begin()
                    del waiting[chapter]
                ready = {chapter: one.is_ready() for chapter, one in ahead.items()}
                if chapter := next_ahead(waiting, [one.chapter for one in running], ready):
                    ahead[chapter] = start(chapter)
                for one in [one for one in running if one.is_over()]:
                    running.remove(one)
                    write_results(spec.folder, results)
                    if one.result.status not in GONE_ON_AFTER and not spec.keep_going:
                        waiting.clear()
                progress.tick()
                time.sleep(POLL_S)
        finally:
            for one in (*running, *ahead.values()):
                one.close()
            write_results(spec.folder, results)


def next_to_start(
    waiting: Collection[Chapter], running: Mapping[Chapter, Collection[str]], jobs: int
) -> Chapter | None:
    """The one of the waiting chapters, which are in order, that starts now.

    ``running``: with the cells that each has passed. A chapter waits for those that it names, as far as this run has
    them; one that names none, for all before it. One that wants the machine alone waits until nothing runs, and
    meanwhile nothing else starts. With two jobs, one for which others wait goes before one for which none does.
    """
    if len(running) >= jobs or any(chapter.alone for chapter in running):
        return None
    free = [
        chapter
        for chapter in waiting
        if not any(holds_up(other, chapter, running.get(other, ())) for other in (*waiting, *running))
    ]
    if not free or free[0].alone:
        return None if running or not free else free[0]
    named = {number for chapter in waiting for number, _ in chapter.after or ()} if jobs > 1 else set()
    return min((one for one in free if not one.alone), key=lambda chapter: chapter.number not in named)


def holds_up(other: Chapter, chapter: Chapter, passed: Collection[str]) -> bool:
    """Whether ``chapter`` has to wait for ``other``, whose kernel has not ended, but which ``passed`` these cells."""
    if other.number >= chapter.number or chapter.after is None:
        return other.number < chapter.number
    return any(other.number == number and cell not in passed for number, cell in chapter.after)


def next_ahead(
    waiting: Collection[Chapter], running: Collection[Chapter], ahead: Mapping[Chapter, bool]
) -> Chapter | None:
    """The first of the waiting chapters whose kernel is to start before its turn. ``ahead``: with who is ready."""
    if any(chapter.alone for chapter in running) or not all(ahead.values()):
        return None
    return next((chapter for chapter in waiting if chapter not in ahead and len(ahead) < STARTED_AHEAD), None)


class ChapterProcess:
    """One chapter under a guard, which waits for its turn: when it is over or closed, nothing of it runs any more."""

    def __init__(
        self,
        chapter: Chapter,
        result: ChapterResult,
        spec: RunSpec,
        env: Mapping[str, str],
        scratch: Path,
        progress: RunProgress,
    ) -> None:
        self.chapter = chapter
        self.result = result
        self._progress = progress
        self._limit_s = spec.limits.chapter_s
        self._output = spec.folder / chapter.path.name
        self._log_path = self._output.with_suffix(".log")
        self._cell: int | None = None
        self._cell_id = WHOLE
        self.passed: set[str] = set()
        job = Job(
            notebook=chapter.path,
            output=self._output,
            events=scratch / f"{chapter.name}.events",
            turn=scratch / f"{chapter.name}.turn",
            parameters=dict(spec.parameters.get(chapter.number, {})),
            cell_timeout_s=spec.limits.cell_s,
        )
        job_file = scratch / f"{chapter.name}.job.json"
        job.write(job_file)
        job.events.touch()
        self._turn = job.turn
        self._began = float("nan")
        self._process = start_guarded(
            [sys.executable, "-m", "playbook.course.execute", str(job_file)],
            env={**env, IMPORTS: " ".join(chapter.imports)},
            cwd=spec.folder,
            log_path=self._log_path,
            name=chapter.name,
            grace_s=STOP_GRACE_S,
        )
        self._events = job.events.open(encoding="utf-8")

    def begin(self) -> None:
        """Its turn has come."""
        cells = count_code_cells(read(self.chapter.path))
        self._progress.chapter_started(self.chapter.name, self.chapter.title, cells)
        self.result.status = "interrupted"
        self._began = time.monotonic()
        self._turn.touch()

    def is_ready(self) -> bool:
        """Whether its kernel runs, or never will (the record says so when its turn has come)."""
        return os.fstat(self._events.fileno()).st_size > 0 or self._process.poll() is not None

    def is_over(self) -> bool:
        """Pass on what the chapter told since the last look; whether it has ended, or has just run out of time."""
        ended = self._process.poll() is not None
        for event in read_events(self._events):
            if "ready" in event:
                continue
            if "failure" in event:
                self._process.wait()
                return self._end(Failure(**event["failure"]) if event["failure"] else None)
            self.passed |= {self._cell_id} - {WHOLE}
            if "passed" in event:
                self.passed.add(WHOLE)
                continue
            self._cell, self._cell_id = event["cell"], event["id"]
            self._progress.cell_started(self.chapter.name, event["cell"], event["of"], event["text"])
        if ended:
            what = f"the process that ran the notebook ended with status {self._process.returncode}"
            return self._end(Failure("dead kernel", what, self._process.tail(5).strip(), DEAD_KERNEL_FIX, self._cell))
        if time.monotonic() - self._began > self._limit_s:
            what = f"the chapter ran longer than {self._limit_s:g} s"
            return self._end(Failure("timeout", what, "the limit per chapter ended it", TIMEOUT_FIX, self._cell))
        return False

    def _end(self, ended: Failure | None) -> Literal[True]:
        note_end(self.result, ended)
        self.close()
        return True

    def close(self) -> None:
        """Stop what still runs, and note what the chapter left in the run's folder: nothing before its turn."""
        self._process.stop()
        self._events.close()
        if self.result.status == "not run":
            self._output.unlink(missing_ok=True)
            self._log_path.unlink(missing_ok=True)
            return
        self.result.seconds = round(time.monotonic() - self._began, 2)
        if self._output.exists():
            self.result.notebook = self._output.name
            self.result.key_results = key_results(read(self._output))
        if self._log_path.exists() and self._log_path.stat().st_size:
            self.result.log = self._log_path.name
        else:
            self._log_path.unlink(missing_ok=True)
        self._progress.chapter_ended(self.chapter.name, self.result.status, self.result.seconds)


def note_end(result: ChapterResult, ended: Failure | None) -> None:
    """The status of a chapter that ran to its end (None), or ended before it."""
    if ended is None:
        result.status = "ok"
    elif ended.on_purpose:
        result.status, result.skipped = "skipped", ended
    else:
        result.status, result.failure = "failed", ended


def read_events(events: Any) -> Iterator[dict[str, Any]]:
    """The whole lines that were appended since the last call; half a line waits for the next."""
    while True:
        position = events.tell()
        line = events.readline()
        if not line.endswith("\n"):
            events.seek(position)
            return
        yield json.loads(line)


def key_results(notebook: NotebookNode) -> list[dict[str, Any]]:
    """The results that the chapter's cells displayed: name, value, unit and origin of each."""
    outputs = (output for cell in notebook.cells for output in cell.get("outputs", []))
    return [dict(output["data"][RESULT_MIME]) for output in outputs if RESULT_MIME in output.get("data", {})]


def count_code_cells(notebook: NotebookNode) -> int:
    return sum(cell.cell_type == "code" for cell in notebook.cells)


def write_results(folder: Path, results: Sequence[ChapterResult]) -> None:
    """Write results.json, one object per chapter; a reader never sees half of it."""
    aside = folder / ".results.json.tmp"
    aside.write_text(json.dumps([asdict(result) for result in results], indent=2), encoding="utf-8")
    aside.replace(folder / "results.json")


def refuse_full_disk(*folders: Path) -> None:
    for folder in folders:
        existing = next(path for path in (folder, *folder.parents) if path.exists())
        free = shutil.disk_usage(existing).free
        if free < MIN_FREE_BYTES:
            raise EnvironmentProblem(
                f"the disk of {folder} is full: {free / 1e6:.0f} MB are free",
                why=f"a run needs {MIN_FREE_BYTES / 1e6:.0f} MB at least",
                fix="free space, or choose other folders with --workspace and --out",
            )


@contextmanager
def scratch_folder(folder: Path) -> Iterator[Path]:
    """A folder for what only the running run needs. Inside the run's own, so that a killed run litters no /tmp."""
    scratch = folder / ".scratch"
    shutil.rmtree(scratch, ignore_errors=True)  # what a killed run left
    scratch.mkdir(parents=True)
    try:
        yield scratch
    finally:
        shutil.rmtree(scratch)
