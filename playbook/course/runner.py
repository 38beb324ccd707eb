"""Run chapters in order, each with papermill in a guarded process, and record what came of them."""

import json
import shutil
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal

from nbformat import NotebookNode

from playbook.chapter import RESULT_MIME
from playbook.course.execute import Job
from playbook.course.failures import DEAD_KERNEL_FIX, TIMEOUT_FIX, Failure
from playbook.course.kernel_env import kernel_environment
from playbook.course.notebooks import Chapter, read
from playbook.course.progress import RunProgress
from playbook.lanes.base import lane_of
from serving_base.errors import EnvironmentProblem
from serving_base.processes import GuardedProcess, start_guarded

POLL_S = 0.1
STOP_GRACE_S = 10.0
MIN_FREE_BYTES = 200 * 10**6

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
    """Run the chapters and fill in their results. After a failure the rest stay "not run", unless `keep_going`.

    results.json in the run's folder is written after every chapter, so that a killed run leaves a true record.
    Raises EnvironmentProblem before anything starts if the disk is full, and KeyboardInterrupt again on Ctrl-C.
    """
    refuse_full_disk(spec.folder, spec.workspace)
    write_results(spec.folder, results)
    with progress, scratch_folder(spec.folder) as scratch:
        lane = lane_of(spec.lane)
        env = {**kernel_environment(workspace=spec.workspace, scratch=scratch), **lane.KERNEL_ENVIRONMENT}
        for chapter, result in zip(spec.chapters, results, strict=True):
            try:
                run_chapter(chapter, result, spec, env, scratch, progress)
            finally:
                write_results(spec.folder, results)
            if result.status not in GONE_ON_AFTER and not spec.keep_going:
                break


def run_chapter(
    chapter: Chapter,
    result: ChapterResult,
    spec: RunSpec,
    env: Mapping[str, str],
    scratch: Path,
    progress: RunProgress,
) -> None:
    """Run one chapter and fill in its result; when this returns or raises, nothing of the chapter runs any more."""
    output = spec.folder / chapter.path.name
    log_path = output.with_suffix(".log")
    job = Job(
        notebook=chapter.path,
        output=output,
        events=scratch / f"{chapter.name}.events",
        parameters=dict(spec.parameters.get(chapter.number, {})),
        cell_timeout_s=spec.limits.cell_s,
    )
    job_file = scratch / f"{chapter.name}.job.json"
    job.write(job_file)
    job.events.touch()
    progress.chapter_started(chapter.name, chapter.title, count_code_cells(read(chapter.path)))
    started = time.monotonic()
    result.status = "interrupted"
    try:
        with start_guarded(
            [sys.executable, "-m", "playbook.course.execute", str(job_file)],
            env=env,
            cwd=spec.folder,
            log_path=log_path,
            name=chapter.name,
            grace_s=STOP_GRACE_S,
        ) as process:
            ended = follow(process, job, spec.limits.chapter_s, progress)
        note_end(result, ended)
    finally:
        result.seconds = round(time.monotonic() - started, 2)
        if output.exists():
            result.notebook = output.name
            result.key_results = key_results(read(output))
        if log_path.exists() and log_path.stat().st_size:
            result.log = log_path.name
        else:
            log_path.unlink(missing_ok=True)
        progress.chapter_ended(result.status, result.seconds)


def note_end(result: ChapterResult, ended: Failure | None) -> None:
    """The status of a chapter that ran to its end (None), or ended before it."""
    if ended is None:
        result.status = "ok"
    elif ended.on_purpose:
        result.status, result.skipped = "skipped", ended
    else:
        result.status, result.failure = "failed", ended


def follow(process: GuardedProcess, job: Job, limit_s: float, progress: RunProgress) -> Failure | None:
    """Pass the chapter's events on until it ends or its time is over."""
    deadline = time.monotonic() + limit_s
    at_cell: int | None = None
    with job.events.open(encoding="utf-8") as events:
        while True:
            ended = process.poll() is not None
            for event in read_events(events):
                if "failure" in event:
                    process.wait()
                    return Failure(**event["failure"]) if event["failure"] else None
                at_cell = event["cell"]
                progress.cell_started(event["cell"], event["of"], event["text"])
            if ended:
                what = f"the process that ran the notebook ended with status {process.returncode}"
                return Failure("dead kernel", what, process.tail(5).strip(), DEAD_KERNEL_FIX, at_cell)
            if time.monotonic() > deadline:
                process.stop()
                what = f"the chapter ran longer than {limit_s:g} s"
                return Failure("timeout", what, "the limit per chapter ended it", TIMEOUT_FIX, at_cell)
            progress.tick()
            time.sleep(POLL_S)


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
