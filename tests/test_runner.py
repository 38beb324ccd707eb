"""The runner: strict about what it starts, quick about what dies, and nothing of a chapter is left behind."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import psutil
import pytest
from nbformat import NotebookNode

from checkout import PYTHON_PATH
from notebook_factory import notebook, write_course
from playbook.course import runner
from playbook.course.notebooks import chapters, read
from playbook.course.progress import LineProgress
from playbook.course.runner import ChapterResult, Limits, RunSpec, new_results, new_run_folder, run
from serving_base.errors import EnvironmentProblem, UsageError

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


def run_one(folder: Path, content: NotebookNode, **options: Any) -> ChapterResult:
    write_course(folder, c01_small=content)
    todo = spec(folder, **options)
    results = new_results(todo)
    run(todo, results, LineProgress(lambda _: None))
    return results[0]


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


def test_a_chapter_runs_and_leaves_its_record(tmp_path: Path) -> None:
    result = run_one(tmp_path, notebook("print(count, rate)", RESULT), count=7)
    assert (result.status, result.failure) == ("ok", None)
    assert result.key_results == [{"name": "answer", "value": 42, "unit": "tokens", "origin": "measured here"}]
    executed = read(tmp_path / "out" / result.notebook)
    assert executed.cells[3].outputs[0].text == "7 0.5\n"
    (stored,) = json.loads((tmp_path / "out" / "results.json").read_text())
    assert stored["chapter"] == "01-small"
    assert stored["status"] == "ok"
    assert stored["seconds"] > 0
    assert stored["failure"] is None
    assert stored["key_results"] == result.key_results
    left = {path.name for path in (tmp_path / "out").iterdir()}
    assert left - {"01-small.log"} == {"01-small.ipynb", "results.json"}  # a library may have warned into the log


def test_the_kernel_is_this_interpreter_whatever_the_user_installed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spec_file = tmp_path / "data" / "kernels" / "python3" / "kernel.json"
    spec_file.parent.mkdir(parents=True)
    spec_file.write_text(json.dumps({"argv": ["/bin/false"], "display_name": "mine", "language": "python"}))
    monkeypatch.setenv("JUPYTER_DATA_DIR", str(tmp_path / "data"))
    monkeypatch.setenv("JUPYTER_PREFER_ENV_PATH", "0")
    where = "import os, sys\nprint(sys.executable)"
    which = "print(os.environ['PLAYBOOK_WORKSPACE'], os.environ['HF_HUB_OFFLINE'])"
    assert run_one(tmp_path, notebook(f"{where}\n{which}")).status == "ok"
    printed = read(tmp_path / "out" / "01-small.ipynb").cells[2].outputs[0].text.splitlines()
    assert Path(printed[0]).resolve() == Path(sys.executable).resolve()
    assert printed[1] == f"{tmp_path / 'workspace'} 1"


@pytest.mark.parametrize(
    ("cells", "kind", "number"),
    [
        (("1 / 0", "print('after')"), "error", 2),
        (("assert 1 > 2, 'no'",), "check failed", 2),
        (("x = 1", PLAYBOOK_ERROR), "missing artifact", 3),
        (("raise SystemExit(0)", "print('after')"), "early exit", 2),
        (("import sys; sys.exit(3)",), "early exit", 2),
        (("raise SystemExit(0)",), "early exit", 2),
        (("raise OSError(28, 'No space left on device')",), "disk full", 2),
    ],
)
def test_a_failing_cell_is_classified(tmp_path: Path, cells: tuple[str, ...], kind: str, number: int) -> None:
    result = run_one(tmp_path, notebook(*cells))
    assert result.status == "failed"
    assert result.failure is not None
    assert (result.failure.kind, result.failure.cell) == (kind, number)
    assert result.failure.fix
    assert (tmp_path / "out" / result.notebook).exists()


def test_a_playbook_errors_words_reach_the_record(tmp_path: Path) -> None:
    failure = run_one(tmp_path, notebook(PLAYBOOK_ERROR)).failure
    assert failure is not None
    assert (failure.what, failure.why, failure.fix) == (
        "there is no engine",
        "chapter 03 was not run",
        "run: playbook run 03",
    )


def test_a_dead_kernel_is_reported_in_seconds(tmp_path: Path) -> None:
    result = run_one(tmp_path, notebook("import os, signal; os.kill(os.getpid(), signal.SIGKILL)", "print(1)"))
    assert result.failure is not None
    assert (result.failure.kind, result.failure.cell) == ("dead kernel", 2)
    assert result.seconds < 60  # most of it the start of the kernel, on a busy machine


def test_a_cell_past_its_time_is_ended(tmp_path: Path) -> None:
    result = run_one(tmp_path, notebook("import time; time.sleep(600)"), cell_s=2)
    assert result.failure is not None
    assert (result.failure.kind, result.failure.cell) == ("timeout", 2)
    assert "longer than 2 s" in result.failure.what


def test_a_chapter_past_its_time_is_ended_with_its_children(tmp_path: Path) -> None:
    marker = f"marker-{tmp_path.name}-{os.getpid()}"
    children = CHILDREN.format(marker=marker, log=str(tmp_path / "log"))
    result = run_one(tmp_path, notebook(children, "import time; time.sleep(600)"), chapter_s=20)
    assert result.failure is not None
    assert (result.failure.kind, result.failure.cell) == ("timeout", 3)
    assert marked(marker) == []


def test_what_a_chapter_started_ends_with_it(tmp_path: Path) -> None:
    marker = f"marker-{tmp_path.name}-{os.getpid()}"
    children = CHILDREN.format(marker=marker, log=str(tmp_path / "log"))
    assert run_one(tmp_path, notebook(children)).status == "ok"
    assert marked(marker) == []


def test_after_a_failure_the_rest_is_not_run_unless_told_to_keep_going(tmp_path: Path) -> None:
    write_course(tmp_path, c01_a=notebook("1 / 0"), c02_b=notebook("x = 1"))
    for keep_going, expected in ((False, ["failed", "not run"]), (True, ["failed", "ok"])):
        todo = spec(tmp_path, keep_going=keep_going)
        results = new_results(todo)
        run(todo, results, LineProgress(lambda _: None))
        assert [result.status for result in results] == expected


SKIP = (
    "from serving_base.errors import Skipped\n"
    "raise Skipped('it would cost 63.30 USD/h', why='max_usd_per_hour is 0', fix='-p max_usd_per_hour=64')"
)


def test_a_skipped_chapter_is_no_failure_and_the_course_goes_on(tmp_path: Path) -> None:
    write_course(tmp_path, c01_a=notebook("x = 1", SKIP, "1 / 0"), c02_b=notebook("x = 1"))
    done = subprocess.run(
        [sys.executable, "-m", "playbook", "run", "--out", str(tmp_path / "out")],
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": PYTHON_PATH, "PLAYBOOK_WORKSPACE": str(tmp_path / "workspace")},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
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
    executed = read(tmp_path / "out" / "01-a.ipynb")
    assert not any("papermill-error-cell-tag" in cell.metadata.get("tags", []) for cell in executed.cells)
    assert executed.cells[-1].outputs == []


def test_a_full_disk_is_refused_before_anything_starts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runner, "MIN_FREE_BYTES", 10**18)
    with pytest.raises(EnvironmentProblem, match=r"the disk of .* is full"):
        run_one(tmp_path, notebook("x = 1"))
    assert list((tmp_path / "out").iterdir()) == []


def test_progress_tells_of_chapters_and_slow_cells(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("playbook.course.progress.PLAIN_INTERVAL_S", 0.0)
    write_course(tmp_path, c01_small=notebook("import os\ntotal = count + 1"))
    lines: list[str] = []
    todo = spec(tmp_path)
    run(todo, new_results(todo), LineProgress(lines.append))
    assert lines[0] == "01-small  A small chapter (2 code cells)"
    assert lines[-2] == "01-small  cell 2/2: total = count + 1"
    assert lines[-1].startswith("01-small  ok after ")


def test_a_long_cell_gives_a_sign_of_life(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("playbook.course.progress.SIGN_OF_LIFE_S", 0.2)
    write_course(tmp_path, c01_small=notebook("import time\ntime.sleep(1)"))
    lines: list[str] = []
    todo = spec(tmp_path)
    run(todo, new_results(todo), LineProgress(lines.append))
    assert lines.count("01-small  cell 2/2: time.sleep(1)") >= 2


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


class LivingRun:
    """`playbook run` as a user starts it, in the middle of a chapter that has started children."""

    def __init__(self, folder: Path) -> None:
        self.marker = f"marker-{folder.name}-{os.getpid()}"
        self.out = folder / "out"
        children = CHILDREN.format(marker=self.marker, log=str(folder / "log"))
        write_course(folder, c01_small=notebook(children, "import time; time.sleep(600)"), c02_next=notebook("x = 1"))
        self.process = subprocess.Popen(
            [sys.executable, "-m", "playbook", "run", "--out", str(self.out)],
            cwd=folder,
            env=os.environ | {"PYTHONPATH": PYTHON_PATH, "PLAYBOOK_WORKSPACE": str(folder / "workspace")},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            # whoever runs the tests in the background of a shell has had SIGINT switched off for all children
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
        )
        # The command itself, the guards over it, and the careless one.
        wait_until(lambda: len(marked(self.marker)) == 4)

    def kernel(self) -> psutil.Process:
        everyone = psutil.Process(self.process.pid).children(recursive=True)
        (kernel,) = [process for process in everyone if "ipykernel_launcher" in process.cmdline()]
        return kernel

    def family(self) -> list[psutil.Process]:
        return psutil.Process(self.process.pid).children(recursive=True)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_run_ends_everything_and_keeps_a_true_record(number: signal.Signals, tmp_path: Path) -> None:
    living = LivingRun(tmp_path)
    family = living.family()
    living.process.send_signal(number)
    output, _ = living.process.communicate(timeout=180)
    assert living.process.returncode == 130, output
    assert marked(living.marker) == []
    assert alive(family) == []
    stored = json.loads((living.out / "results.json").read_text())
    assert [item["status"] for item in stored] == ["interrupted", "not run"]
    assert (living.out / "report.html").exists()


def test_a_killed_runner_leaves_no_process(tmp_path: Path) -> None:
    living = LivingRun(tmp_path)
    family = living.family()
    living.process.kill()
    living.process.wait()
    wait_until(lambda: not alive(family))
    assert marked(living.marker) == []
    # The next run into the same folder goes on as if nothing had been.
    write_course(tmp_path, c01_small=notebook("x = 1"))
    again = subprocess.run(
        [sys.executable, "-m", "playbook", "run", "--out", str(living.out)],
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": PYTHON_PATH},
        capture_output=True,
        text=True,
        check=False,
    )
    assert again.returncode == 0, again.stderr
    assert not (living.out / ".scratch").exists()


def test_a_killed_kernel_fails_the_chapter_and_leaves_no_process(tmp_path: Path) -> None:
    living = LivingRun(tmp_path)
    living.kernel().kill()
    output, _ = living.process.communicate(timeout=180)
    assert living.process.returncode == 1
    assert "dead kernel" in output
    assert marked(living.marker) == []


def test_an_output_folder_with_other_files_is_refused(tmp_path: Path) -> None:
    from playbook.cli.selection import output_folder

    (tmp_path / "thesis.txt").write_text("precious")
    with pytest.raises(UsageError, match="holds other files"):
        output_folder(tmp_path)
    assert (tmp_path / "thesis.txt").read_text() == "precious"
