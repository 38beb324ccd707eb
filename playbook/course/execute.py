"""Run one notebook with papermill: `python -m playbook.course.execute JOB.json`, under a guard (see the runner).

The job file names the notebook, where it goes, its parameters and its limits. What happens is appended to an
events file, one JSON object per line: `{"ready": true}` when the kernel runs, `{"cell": 3, "of": 14, "id": "...",
"text": "..."}` when a code cell starts, `{"passed": true}` when all have run, and when the kernel has ended, too,
`{"failure": null}` or `{"failure": {...}}`. The first cell waits until the file `turn` is there: a kernel may be
started while the chapters before it still run.
"""

import json
import logging
import sys
import time
import warnings
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from playbook.course.failures import DEAD_KERNEL_FIX, TIMEOUT_FIX, Failure, classify, unfinished

ENGINE = "playbook"
KERNEL_NAME = "python3"
KERNEL_START_TIMEOUT_S = 60
KERNEL_STARTS = 3  # a kernel picks its ports before it opens them, and another program may take one meanwhile
Tell = Callable[[dict[str, Any]], None]
"""Told of each event: a line of the events file."""
SAVE_EVERY_S = 2.0  # what a killed run loses of its notebook
LOOK_EVERY_S = 0.05  # for the chapter's turn


@dataclass(frozen=True)
class Job:
    """One notebook to run: everything that the guarded process needs to know."""

    notebook: Path
    output: Path
    events: Path
    turn: Path
    parameters: dict[str, Any]
    cell_timeout_s: int

    def write(self, path: Path) -> None:
        path.write_text(json.dumps(asdict(self), default=str), encoding="utf-8")

    @classmethod
    def read(cls, path: Path) -> "Job":
        fields = json.loads(path.read_text(encoding="utf-8"))
        for name in ("notebook", "output", "events", "turn"):
            fields[name] = Path(fields[name])
        return cls(**fields)


def execute(job: Job, tell: Tell) -> Failure | None:
    """Run the notebook when its turn has come; None if every code cell ran to its end."""
    import papermill
    from nbclient.exceptions import CellTimeoutError, DeadKernelError
    from papermill.exceptions import PapermillExecutionError
    from tenacity import retry, retry_if_exception, stop_after_attempt

    reached = 0

    def note(event: dict[str, Any]) -> None:
        nonlocal reached
        reached = event.get("cell", reached)
        tell(event)

    def is_silent(error: BaseException) -> bool:
        """True for a kernel that never answered; no cell has run yet."""
        return reached == 0 and isinstance(error, RuntimeError) and "Kernel didn't respond" in str(error)

    @retry(retry=retry_if_exception(is_silent), stop=stop_after_attempt(KERNEL_STARTS), reraise=True)
    def run() -> Any:
        return papermill.execute_notebook(
            job.notebook,
            job.output,
            parameters=job.parameters,
            engine_name=ENGINE,
            kernel_name=KERNEL_NAME,
            cwd=job.notebook.parent,
            progress_bar=False,
            execution_timeout=job.cell_timeout_s,
            start_timeout=KERNEL_START_TIMEOUT_S,
        )

    register_engine(job.turn, note)
    try:
        notebook = run()
    except PapermillExecutionError as error:
        ended = classify(error.ename, str(error.evalue), cell=reached)
        if ended.on_purpose:
            drop_error_banners(job.output)
        return ended
    except CellTimeoutError:
        what = f"code cell {reached} ran longer than {job.cell_timeout_s} s"
        return Failure("timeout", what, "the limit per cell ended it", TIMEOUT_FIX, reached)
    except DeadKernelError:
        what = f"the kernel died in code cell {reached}"
        why = "its process ended, or was killed: most often because memory ran out"
        return Failure("dead kernel", what, why, DEAD_KERNEL_FIX, reached)
    except (OSError, RuntimeError) as error:
        return classify(type(error).__name__, str(error), cell=reached or None)
    return unfinished(notebook)


def drop_error_banners(path: Path) -> None:
    """Without papermill's two red notes on an exception: the chapter was skipped, and its cell says why."""
    import nbformat
    from papermill.execute import ERROR_MARKER_TAG

    notebook = nbformat.read(path, as_version=4)  # type: ignore[no-untyped-call]
    notebook.cells = [cell for cell in notebook.cells if ERROR_MARKER_TAG not in cell.metadata.get("tags", [])]
    nbformat.write(notebook, path)  # type: ignore[no-untyped-call]


def register_engine(turn: Path, tell: Tell) -> None:
    """Give papermill an engine that waits for the chapter's turn, and tells what happens."""
    from papermill.engines import NBClientEngine, NotebookExecutionManager, papermill_engines

    class TellingEngine(NBClientEngine):  # type: ignore[misc]
        @classmethod
        def execute_managed_notebook(cls, nb_man: NotebookExecutionManager, kernel_name: str, **options: Any) -> None:
            code = [cell for cell in nb_man.nb.cells if cell.cell_type == "code"]
            start = nb_man.cell_start

            def cell_start(cell: Any, cell_index: int | None = None, **more: Any) -> None:
                if cell_index == 0:  # the kernel runs
                    tell({"ready": True})
                    while not turn.exists():
                        time.sleep(LOOK_EVERY_S)
                if cell.cell_type == "code":
                    number = 1 + next(index for index, other in enumerate(code) if other is cell)
                    text = first_line(cell.source)
                    tell({"cell": number, "of": len(code), "id": cell.get("id", ""), "text": text})
                start(cell, cell_index, **more)

            def cell_executed(cell: Any, execute_reply: Any, **_: Any) -> None:
                good = execute_reply["content"]["status"] == "ok"
                if good and cell is code[-1] and unfinished(nb_man.nb) is None:
                    tell({"passed": True})

            nb_man.cell_start, nb_man.save = cell_start, seldom(nb_man.save, SAVE_EVERY_S)
            options["on_cell_executed"] = cell_executed
            super().execute_managed_notebook(nb_man, kernel_name, **options)

    papermill_engines.register(ENGINE, TellingEngine)


def seldom(save: Callable[..., None], every_s: float) -> Callable[..., None]:
    """papermill writes the whole notebook twice per cell; this does it once in a while. The last time is its own."""
    last = -every_s

    def save_now_and_then(**options: Any) -> None:
        nonlocal last
        if time.monotonic() - last >= every_s:
            save(**options)
            last = time.monotonic()

    return save_now_and_then


def first_line(source: str) -> str:
    """What a cell does, for a progress line: its first line that is neither an import nor blank."""
    lines = [line.strip() for line in source.splitlines() if line.strip()]
    telling = [line for line in lines if not line.startswith(("import ", "from ", "#", "@"))]
    return next(iter(telling or lines), "")[:60]


def main() -> int:
    job = Job.read(Path(sys.argv[1]))
    logging.getLogger("papermill").setLevel(logging.ERROR)
    warnings.filterwarnings("ignore", module="papermill")

    def append(event: dict[str, Any]) -> None:
        with job.events.open("a", encoding="utf-8") as events:
            events.write(json.dumps(event) + "\n")

    try:
        failure = execute(job, append)
    except KeyboardInterrupt:  # the guard's word that the run is over; papermill has ended the kernel
        return 130
    append({"failure": asdict(failure) if failure else None})
    return 0 if failure is None else 1


if __name__ == "__main__":
    sys.exit(main())
