"""The runner: strict about what it starts, quick about what dies, and nothing of a chapter is left behind."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from copy import deepcopy
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from itertools import count
from pathlib import Path
from typing import Any

import psutil
import pytest
from nbformat import NotebookNode
from typer.testing import CliRunner

from checkout import PYTHON_PATH, ROOT
from notebook_factory import notebook, write_course
from plain_chapter import run_without_kernels
from playbook.cli.app import app
from playbook.course import runner
from playbook.course.execute import Job, execute, seldom
from playbook.course.failures import Failure
from playbook.course.notebooks import Chapter, chapters, read
from playbook.course.progress import LineProgress
from playbook.course.runner import ChapterResult, Limits, RunSpec, new_results, new_run_folder, next_ahead, run
from playbook.lanes.base import ELSEWHERE
from serving_base.errors import EnvironmentProblem, UsageError
from waiting import interruptible

RESULT = """\
from IPython.display import display
result = {"name": "answer", "value": 42, "unit": "tokens", "origin": "measured here"}
display({"application/vnd.playbook.result+json": result, "text/plain": "answer = 42"}, raw=True)"""

PLAYBOOK_ERROR = """\
from serving_base.errors import MissingArtifact
raise MissingArtifact("there is no engine", why="chapter 03 was not run", fix="run: playbook run 03")"""

# Starts a guarded child as chapters do, and a careless one in a session of its own, then goes on to the next cell.
CHILDREN = """\
import subprocess, sys
from pathlib import Path
from serving_base.processes import start_guarded
sleep = "import time; time.sleep(600)"
careful = start_guarded([sys.executable, "-c", sleep, {marker!r}], log_path=Path({log!r}), grace_s=0.5)
careless = subprocess.Popen([sys.executable, "-c", sleep, {marker!r}], start_new_session=True)"""


def spec(folder: Path, *, keep_going: bool = False, cell_s: int = 60, chapter_s: int = 60, **values: Any) -> RunSpec:
    out = folder / "out"
    out.mkdir(exist_ok=True)
    return RunSpec(
        chapters=chapters(folder / "notebooks"),
        parameters={"01": values},
        lane="embedded",
        workspace=folder / "workspace",
        folder=out,
        limits=Limits(cell_s, chapter_s),
        keep_going=keep_going,
    )


def run_all(todo: RunSpec, lines: list[str] | None = None) -> list[ChapterResult]:
    results = new_results(todo)
    run(todo, results, LineProgress((lines if lines is not None else []).append))
    return results


def run_one(folder: Path, content: NotebookNode, **options: Any) -> ChapterResult:
    write_course(folder, c01_small=content)
    return run_all(spec(folder, **options))[0]


def marked(marker: str) -> list[psutil.Process]:
    found = []
    for process in psutil.process_iter():
        try:
            if marker in process.cmdline():
                found.append(process)
        except psutil.Error:
            continue
    return found


def alive(processes: list[psutil.Process]) -> list[psutil.Process]:
    """Those that still run; a zombie, which a container's lazy init has not reaped, is dead."""
    running = []
    for process in processes:
        try:
            if process.is_running() and process.status() != psutil.STATUS_ZOMBIE:
                running.append(process)
        except psutil.NoSuchProcess:
            continue
    return running


def wait_until(condition: Callable[[], object], limit_s: float = 180.0) -> None:
    deadline = time.monotonic() + limit_s
    while not condition():
        assert time.monotonic() < deadline, "waited too long"
        time.sleep(0.05)


# One chapter on a real kernel.


@dataclass(frozen=True)
class Finished:
    """A chapter that ran to its end: what it left, what the user saw, and how its children were marked."""

    folder: Path
    result: ChapterResult
    lines: list[str]
    marker: str


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Finished:
    """Where the user has another kernel under the name of ours."""
    folder = tmp_path_factory.mktemp("finished")
    spec_file = folder / "data" / "kernels" / "python3" / "kernel.json"
    spec_file.parent.mkdir(parents=True)
    spec_file.write_text(json.dumps({"argv": ["/bin/false"], "display_name": "mine", "language": "python"}))
    marker = f"marker-{folder.name}-{os.getpid()}"
    children = CHILDREN.format(marker=marker, log=str(folder / "log"))
    where = "import os, sys\nprint(sys.executable)"
    which = "print(os.environ['PLAYBOOK_WORKSPACE'], os.environ['HF_HUB_OFFLINE'])"
    imported = (
        "import gc\n"
        "print('graphlib' in sys.modules, 'netrc' in sys.modules, [name for name in globals() if 'import' in name])\n"
        "print('collects:', gc.isenabled())"
    )
    content = notebook("print(count, rate)", RESULT, f"{where}\n{which}\n{imported}", children)
    content.metadata["playbook"] = {"imports": ["graphlib.TopologicalSorter", "not_installed.anything", "netrc.netrc"]}
    write_course(folder, c01_small=content)
    lines: list[str] = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("JUPYTER_DATA_DIR", str(folder / "data"))
        patch.setenv(ELSEWHERE, "netrc")
        patch.setenv("JUPYTER_PREFER_ENV_PATH", "0")
        patch.setattr("playbook.course.progress.PLAIN_INTERVAL_S", 0.0)
        (result,) = run_all(spec(folder, count=7), lines)
    return Finished(folder, result, lines, marker)


def test_a_chapter_runs_and_leaves_its_record(finished: Finished) -> None:
    result, out = finished.result, finished.folder / "out"
    assert (result.status, result.failure) == ("ok", None)
    assert result.key_results == [{"name": "answer", "value": 42, "unit": "tokens", "origin": "measured here"}]
    executed = read(out / result.notebook)
    assert executed.cells[3].outputs[0].text == "7 0.5\n"
    (stored,) = json.loads((out / "results.json").read_text())
    assert stored["chapter"] == "01-small"
    assert stored["status"] == "ok"
    assert stored["seconds"] > 0
    assert stored["failure"] is None
    assert stored["key_results"] == result.key_results
    left = {path.name for path in out.iterdir()}
    assert left - {"01-small.log"} == {"01-small.ipynb", "results.json"}  # a library may have warned into the log


def test_the_kernel_is_this_interpreter_whatever_the_user_installed(finished: Finished) -> None:
    printed = read(finished.folder / "out" / "01-small.ipynb").cells[5].outputs[0].text.splitlines()
    assert Path(printed[0]).resolve() == Path(sys.executable).resolve()
    assert printed[1] == f"{finished.folder / 'workspace'} 1"


def test_what_a_chapter_imports_is_there_before_its_first_cell_and_leaves_no_name(finished: Finished) -> None:
    """Nothing else of the kernel's has imported it; what is not installed or works elsewhere is left to the cells."""
    printed = read(finished.folder / "out" / "01-small.ipynb").cells[5].outputs[0].text.splitlines()
    assert printed[2:] == ["True False []", "collects: True"]


def test_progress_tells_of_chapters_and_slow_cells(finished: Finished) -> None:
    """The parameters' cell and the injected one count, too."""
    assert finished.lines[0] == "01-small  A small chapter (5 code cells)"
    assert finished.lines[-2] == '01-small  cell 6/6: sleep = "import time; time.sleep(600)"'
    assert finished.lines[-1].startswith("01-small  ok after ")


def test_what_a_chapter_started_ends_with_it(finished: Finished) -> None:
    assert (finished.folder / "log").exists()
    assert marked(finished.marker) == []


# Failures: what a kernel says of them is asked once, and papermill's and our own code see it in every case.

SKIP = (
    "from serving_base.errors import Skipped\n"
    "raise Skipped('it would cost 63.30 USD/h', why='max_usd_per_hour is 0', fix='-p max_usd_per_hour=64')"
)
FAILING = [
    (("1 / 0", "print('after')"), "error", 2),
    (("assert 1 > 2, 'no'",), "check failed", 2),
    (("x = 1", PLAYBOOK_ERROR), "missing artifact", 3),
    (("raise SystemExit(0)", "print('after')"), "early exit", 2),
    (("import sys; sys.exit(3)",), "early exit", 2),
    (("raise SystemExit(0)",), "early exit", 2),
    (("raise OSError(28, 'No space left on device')",), "disk full", 2),
]


@pytest.fixture(scope="module")
def answers() -> dict[str, NotebookNode]:
    """Source -> the cell as a real kernel ran it: all in one, which goes on after each error."""
    from nbclient import NotebookClient

    sources = dict.fromkeys(source for cells, _, _ in FAILING for source in cells)
    content = notebook(*sources, SKIP)
    NotebookClient(content, kernel_name="python3", allow_errors=True).execute()
    return {cell.source: cell for cell in content.cells if cell.cell_type == "code"}


@pytest.fixture
def kernel_answers(answers: dict[str, NotebookNode], monkeypatch: pytest.MonkeyPatch) -> None:
    """papermill asks these answers in place of a kernel."""
    from nbclient.exceptions import CellExecutionError
    from papermill.clientwrap import PapermillNotebookClient

    def answer(client: Any, cell: NotebookNode, index: int) -> None:
        if cell.cell_type != "code":
            return
        cell.execution_count, cell.outputs = index, deepcopy(answers[cell.source].outputs)
        for error in (output for output in cell.outputs if output.output_type == "error"):
            raise CellExecutionError("", error.ename, error.evalue)

    monkeypatch.setattr(PapermillNotebookClient, "execute", PapermillNotebookClient.papermill_execute_cells)
    monkeypatch.setattr(PapermillNotebookClient, "execute_cell", answer)


def execute_one(folder: Path, *cells: str, cell_s: int = 60) -> Failure | None:
    write_course(folder, c01_small=notebook(*cells))
    turn = folder / "turn"
    turn.touch()
    job = Job(folder / "notebooks" / "01-small.ipynb", folder / "executed.ipynb", folder / "events", turn, {}, cell_s)
    return execute(job, lambda _: None)


@pytest.mark.usefixtures("kernel_answers")
@pytest.mark.parametrize(("cells", "kind", "number"), FAILING)
def test_a_failing_cell_is_classified(tmp_path: Path, cells: tuple[str, ...], kind: str, number: int) -> None:
    failure = execute_one(tmp_path, *cells)
    assert failure is not None
    assert (failure.kind, failure.cell) == (kind, number)
    assert failure.fix
    assert (tmp_path / "executed.ipynb").exists()


@pytest.mark.usefixtures("kernel_answers")
def test_a_notebook_without_errors_is_no_failure(tmp_path: Path) -> None:
    assert execute_one(tmp_path, "x = 1", "print('after')") is None


@pytest.mark.parametrize("silent", [1, 3], ids=["once", "always"])
def test_a_kernel_that_never_answers_is_started_again(
    silent: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another program may take a port of the kernel before it opens it."""
    from papermill.clientwrap import PapermillNotebookClient

    started = count(1)

    def run(client: PapermillNotebookClient, **_: Any) -> None:
        if next(started) <= silent:
            raise RuntimeError("Kernel didn't respond in 60 seconds")
        for number, cell in enumerate(client.nb.cells):
            cell.execution_count = number

    monkeypatch.setattr(PapermillNotebookClient, "execute", run)
    failure = execute_one(tmp_path, "x = 1")
    assert next(started) == min(silent + 1, 3) + 1
    assert (failure is not None and "didn't respond" in failure.what) == (silent == 3)


@pytest.mark.usefixtures("kernel_answers")
def test_a_playbook_errors_words_reach_the_record(tmp_path: Path) -> None:
    failure = execute_one(tmp_path, PLAYBOOK_ERROR)
    assert failure is not None
    assert (failure.what, failure.why, failure.fix) == (
        "there is no engine",
        "chapter 03 was not run",
        "run: playbook run 03",
    )


@pytest.mark.usefixtures("kernel_answers")
def test_a_skipped_chapter_has_no_error_banner_and_its_last_cells_did_not_run(tmp_path: Path) -> None:
    ended = execute_one(tmp_path, "x = 1", SKIP, "1 / 0")
    assert ended is not None
    assert ended.on_purpose
    assert (ended.what, ended.why, ended.cell) == ("it would cost 63.30 USD/h", "max_usd_per_hour is 0", 3)
    executed = read(tmp_path / "executed.ipynb")
    assert not any("papermill-error-cell-tag" in cell.metadata.get("tags", []) for cell in executed.cells)
    assert executed.cells[-1].outputs == []


def test_a_cell_past_its_time_is_ended(tmp_path: Path) -> None:
    """On a real kernel, as papermill's limit is."""
    failure = execute_one(tmp_path, "import time; time.sleep(600)", cell_s=2)
    assert failure is not None
    assert (failure.kind, failure.cell) == ("timeout", 2)
    assert "longer than 2 s" in failure.what


class ClockThatJumps:
    """The time, and long after it from the moment when ``over`` is true."""

    def __init__(self, over: Callable[[], bool]) -> None:
        self.over = over
        self.sleep = time.sleep

    def monotonic(self) -> float:
        return time.monotonic() + (10_000 if self.over() else 0)


def test_a_chapter_past_its_time_is_ended_with_its_children(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its time is over as soon as all its children run."""
    marker = f"marker-{tmp_path.name}-{os.getpid()}"
    children = CHILDREN.format(marker=marker, log=str(tmp_path / "log"))
    monkeypatch.setattr(runner, "time", ClockThatJumps(lambda: len(marked(marker)) == 4))
    result = run_one(tmp_path, notebook(f"{children}\nimport time; time.sleep(600)"), chapter_s=1000)
    assert result.failure is not None
    assert (result.failure.kind, result.failure.cell) == ("timeout", 2)
    assert "longer than 1000 s" in result.failure.what
    assert marked(marker) == []


# The runner's own work, where the chapter's process needs no kernel.


def test_after_a_failure_the_rest_is_not_run_unless_told_to_keep_going(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_without_kernels(monkeypatch)
    write_course(tmp_path, c01_a=notebook("1 / 0"), c02_b=notebook("x = 1"))
    for keep_going, expected in ((False, ["failed", "not run"]), (True, ["failed", "ok"])):
        results = run_all(spec(tmp_path, keep_going=keep_going))
        assert [result.status for result in results] == expected


READY = """\
import time
from pathlib import Path
scratch = Path(out, ".scratch")
ready = {"01-x.events", "02-x.events", "03-x.events"}
while {path.name for path in scratch.glob("*.events") if path.stat().st_size} != ready:
    time.sleep(0.05)
Path(out, "first").touch()"""


def test_the_next_two_start_before_their_turn_and_wait_for_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first chapter goes on when both are ready; what it makes then is there for their first cells."""
    run_without_kernels(monkeypatch)
    out = tmp_path / "out"
    late = notebook(f"assert open({str(out / 'first')!r})")
    write_course(tmp_path, c01_x=notebook(f"out = {str(out)!r}\n{READY}"), c02_x=late, c03_x=late, c04_x=late)
    assert [result.status for result in run_all(spec(tmp_path))] == ["ok"] * 4


def test_what_waits_for_a_turn_that_never_comes_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run_without_kernels(monkeypatch)
    cells = f"out = {str(tmp_path / 'out')!r}\n{READY}\n1 / 0"
    write_course(tmp_path, c01_x=notebook(cells), c02_x=notebook("x = 1"), c03_x=notebook("x = 1"))
    assert [result.status for result in run_all(spec(tmp_path))] == ["failed", "not run", "not run"]
    left = {path.name for path in (tmp_path / "out").iterdir()}
    assert left == {"first", "results.json", "01-x.ipynb"}


def test_kernels_start_ahead_one_by_one_and_never_beside_a_measurement(tmp_path: Path) -> None:
    first, second, third, fourth = (Chapter(f"0{number}", "x", tmp_path, "") for number in range(4))
    measuring = replace(first, alone=True)
    waiting = [second, third, fourth]
    assert next_ahead(waiting, [first], {}) == second
    assert next_ahead(waiting, [measuring], {}) is None
    assert next_ahead(waiting, [first], {second: False}) is None
    assert next_ahead(waiting, [first], {second: True}) == third
    assert next_ahead(waiting, [first], {second: True, third: True}) is None
    assert next_ahead([], [first], {}) is None


def test_a_process_that_ends_without_a_word_is_a_dead_kernel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run_without_kernels(monkeypatch)
    last_words = "import os; os.write(2, b'out of luck'); os._exit(7)"
    failure = run_one(tmp_path, notebook(last_words)).failure
    assert failure is not None
    assert (failure.kind, failure.cell, failure.why) == ("dead kernel", 2, "out of luck")
    assert "status 7" in failure.what


def test_a_skipped_chapter_is_no_failure_and_the_course_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_without_kernels(monkeypatch)
    write_course(tmp_path, c01_a=notebook("x = 1", SKIP, "1 / 0"), c02_b=notebook("x = 1"))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PLAYBOOK_WORKSPACE", str(tmp_path / "workspace"))
    done = CliRunner().invoke(app, ["run", "--out", str(tmp_path / "out")])
    assert done.exit_code == 0, done.stderr
    assert "01-a skipped: it would cost 63.30 USD/h" in done.stdout
    assert "to run it: -p max_usd_per_hour=64" in done.stdout
    assert "01-a  skipped after " in done.stdout
    first, second = json.loads((tmp_path / "out" / "results.json").read_text())
    assert (first["status"], second["status"]) == ("skipped", "ok")
    assert first["failure"] is None
    assert {key: first["skipped"][key] for key in ("what", "why", "cell")} == {
        "what": "it would cost 63.30 USD/h",
        "why": "max_usd_per_hour is 0",
        "cell": 3,
    }
    page = (tmp_path / "out" / "report.html").read_text()
    assert "1 of 2 chapters passed, 1 skipped" in page
    assert "it would cost 63.30 USD/h" in page


def test_a_full_disk_is_refused_before_anything_starts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runner, "MIN_FREE_BYTES", 10**18)
    with pytest.raises(EnvironmentProblem, match=r"the disk of .* is full"):
        run_one(tmp_path, notebook("x = 1"))
    assert list((tmp_path / "out").iterdir()) == []


def test_a_long_cell_gives_a_sign_of_life(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run_without_kernels(monkeypatch)
    monkeypatch.setattr("playbook.course.progress.SIGN_OF_LIFE_S", 0.2)
    write_course(tmp_path, c01_small=notebook("import time\ntime.sleep(1)"))
    lines: list[str] = []
    run_all(spec(tmp_path), lines)
    assert lines.count("01-small  cell 2/2: time.sleep(1)") >= 2


def test_a_running_notebook_is_saved_now_and_then(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = iter((100.0, 100.0, 101.0, 102.1, 102.1, 103.0))
    monkeypatch.setattr("playbook.course.execute.time.monotonic", lambda: next(clock))
    saved: list[str] = []
    save = seldom(lambda **given: saved.append(given["cell"]), 2.0)
    for cell in "abcd":
        save(cell=cell)
    assert saved == ["a", "c"]


def test_two_runs_of_one_second_get_two_folders(tmp_path: Path) -> None:
    assert new_run_folder(tmp_path) != new_run_folder(tmp_path)


def test_a_runs_folder_is_named_after_the_time_in_utc(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nine hours east, where the local clock would name another hour."""
    monkeypatch.setenv("TZ", "Asia/Tokyo")
    time.tzset()
    try:
        named = datetime.strptime(new_run_folder(tmp_path).name, "%Y-%m-%dT%H-%M-%S").replace(tzinfo=UTC)
    finally:
        monkeypatch.undo()
        time.tzset()
    assert abs(datetime.now(UTC) - named) < timedelta(hours=1)


# A run that is ended from outside.

PLAIN = """\
import plain_chapter, pytest
from playbook.cli.app import app
plain_chapter.run_without_kernels(pytest.MonkeyPatch())
app()"""


class LivingRun:
    """`playbook run` as a user starts it, in the middle of a chapter that has started children.

    ``plain``: the chapter's process starts them itself, in place of a kernel.
    """

    def __init__(self, folder: Path, *, plain: bool = False) -> None:
        self.marker = f"marker-{folder.name}-{os.getpid()}"
        self.out = folder / "out"
        children = CHILDREN.format(marker=self.marker, log=str(folder / "log"))
        write_course(folder, c01_small=notebook(children, "import time; time.sleep(600)"), c02_next=notebook("x = 1"))
        path = os.pathsep.join([PYTHON_PATH, str(ROOT / "tests")])
        with interruptible():
            self.process = subprocess.Popen(
                [sys.executable, *(["-c", PLAIN] if plain else ["-m", "playbook"]), "run", "--out", str(self.out)],
                cwd=folder,
                env=os.environ | {"PYTHONPATH": path, "PLAYBOOK_WORKSPACE": str(folder / "workspace")},
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
            )
        wait_until(self.is_in_the_middle)

    def is_in_the_middle(self) -> bool:
        assert self.process.poll() is None, self.process.communicate()[0]
        return len(marked(self.marker)) == 4  # the command itself, the guards over it, and the careless one

    def kernel(self) -> psutil.Process:
        everyone = psutil.Process(self.process.pid).children(recursive=True)
        kernels = [process for process in everyone if "ipykernel_launcher" in process.cmdline()]
        # The next chapter's runs, too; only this one has children.
        (kernel,) = [process for process in kernels if process.children()]
        return kernel

    def family(self) -> list[psutil.Process]:
        return psutil.Process(self.process.pid).children(recursive=True)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_run_ends_everything_and_keeps_a_true_record(number: signal.Signals, tmp_path: Path) -> None:
    living = LivingRun(tmp_path, plain=number == signal.SIGTERM)
    family = living.family()
    living.process.send_signal(number)
    output, _ = living.process.communicate(timeout=180)
    assert living.process.returncode == 130, output
    assert marked(living.marker) == []
    assert alive(family) == []
    stored = json.loads((living.out / "results.json").read_text())
    assert [item["status"] for item in stored] == ["interrupted", "not run"]
    assert (living.out / "report.html").exists()


def test_a_killed_runner_leaves_no_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    living = LivingRun(tmp_path)
    family = living.family()
    living.process.kill()
    living.process.wait()
    wait_until(lambda: not alive(family))
    assert marked(living.marker) == []
    assert (living.out / ".scratch").exists()
    # The next run into the same folder goes on as if nothing had been.
    run_without_kernels(monkeypatch)
    assert run_one(tmp_path, notebook("x = 1")).status == "ok"
    assert not (living.out / ".scratch").exists()


def test_a_killed_kernel_fails_the_chapter_and_leaves_no_process(tmp_path: Path) -> None:
    living = LivingRun(tmp_path)
    living.kernel().kill()
    output, _ = living.process.communicate(timeout=180)
    assert living.process.returncode == 1
    assert "dead kernel" in output
    first, _ = json.loads((living.out / "results.json").read_text())
    assert first["failure"]["kind"] == "dead kernel"
    assert first["failure"]["cell"] in (2, 3)  # the children may run a moment before their cell is over
    assert marked(living.marker) == []


def test_an_output_folder_with_other_files_is_refused(tmp_path: Path) -> None:
    from playbook.cli.selection import output_folder

    (tmp_path / "thesis.txt").write_text("precious")
    with pytest.raises(UsageError, match="holds other files"):
        output_folder(tmp_path)
    assert (tmp_path / "thesis.txt").read_text() == "precious"
