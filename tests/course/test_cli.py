"""The command line: exit statuses, messages without tracebacks, and nothing lost to a wrong word."""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from checkout import PYTHON_PATH, ROOT
from notebook_factory import notebook, write_course
from plain_chapter import run_without_kernels
from playbook.cli.app import SIDE_BY_SIDE, app
from playbook.course import runner


@pytest.fixture
def course(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The working directory, and a command line whose chapters need no kernels."""
    run_without_kernels(monkeypatch)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "120")
    handlers = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGHUP)}
    yield write_course(tmp_path, c01_good=notebook("print(count)"), c02_bad=notebook("1 / 0", title="# 02 · Bad"))
    for number, handler in handlers.items():  # the command line sets its own
        signal.signal(number, handler)


def playbook(*words: str) -> Result:
    """A command in this process; an error that it does not tell in its own words is raised."""
    done = CliRunner().invoke(app, list(words))
    if done.exception is not None and not isinstance(done.exception, SystemExit):
        raise done.exception
    return done


def test_a_run_that_succeeds_exits_with_0_and_writes_its_report(course: Path) -> None:
    """As a user starts it, in a process and with a kernel."""
    done = subprocess.run(
        [sys.executable, "-m", "playbook", "run", "01", "-p", "count=5"],
        cwd=course,
        env=os.environ | {"PYTHONPATH": PYTHON_PATH},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    (folder,) = (course / "runs").iterdir()
    assert str(folder / "report.html") in done.stdout
    assert json.loads((folder / "run.json").read_text())["parameters"] == {"count": "5"}


def test_a_failed_chapter_exits_with_1_and_says_what_and_how(course: Path) -> None:
    done = playbook("run", "--out", "out")
    assert done.exit_code == 1
    assert "02-bad failed in code cell 2 (error): ZeroDivisionError: division by zero" in done.stderr
    assert "fix: " in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (["09"], "no chapter '09'"),
        (["01", "-p", "cout=5"], "did you mean 'count'"),
        (["01", "-p", "count=five"], "is not of type int"),
        (["01", "-p", "count"], "is not name=value"),
        (["01", "--profile", "p6"], "no profile 'p6'"),
        (["01", "--profile", "p5", "-p", "profile=p5"], "given as --profile and as -p profile="),
        (["01", "--from", "02"], "no chapter is left"),
        (["01", "--release", "9.9.9"], "9.9.9"),
    ],
)
def test_wrong_usage_exits_with_2_before_anything_starts(course: Path, words: list[str], complaint: str) -> None:
    done = playbook("run", *words)
    assert done.exit_code == 2, done.stderr
    assert complaint in done.stderr
    assert "Traceback" not in done.stderr
    assert not (course / "runs").exists()


@pytest.mark.usefixtures("course")
def test_an_environment_problem_exits_with_3(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runner, "MIN_FREE_BYTES", 10**18)
    done = playbook("run", "01")
    assert done.exit_code == 3
    assert "is full" in done.stderr
    assert "Traceback" not in done.stderr


def test_from_skips_the_chapters_before(course: Path) -> None:
    playbook("run", "--from", "02", "--out", "out")
    assert [item["chapter"] for item in json.loads((course / "out" / "results.json").read_text())] == ["02-bad"]


def test_chapters_are_listed(course: Path) -> None:
    assert playbook("chapters").stdout.splitlines() == ["01  A small chapter", "02  Bad"]


def test_params_shows_names_types_defaults_and_meaning(course: Path) -> None:
    shown = playbook("params", "1").stdout
    assert re.search(r"count +int +3 +how many", shown)
    assert re.search(r"sizes +list\[int\] +\[1, 2\] +which sizes", shown)
    wrong = playbook("params", "7")
    assert (wrong.exit_code, "no chapter '7'" in wrong.stderr) == (2, True)


def test_clean_removes_what_runs_leave_and_nothing_else(course: Path) -> None:
    for name in ("workspace/local", "runs/one", ".venv", ".envs/triton", "mine"):
        (course / name).mkdir(parents=True)
    assert playbook("clean").exit_code == 0
    assert sorted(path.name for path in course.iterdir()) == [".envs", ".venv", "mine", "notebooks"]
    assert playbook("clean", "--all").exit_code == 0
    assert sorted(path.name for path in course.iterdir()) == ["mine", "notebooks"]


def test_clean_does_not_follow_a_link(course: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    precious = tmp_path_factory.mktemp("precious")
    (precious / "model").write_text("weights")
    (course / "workspace").symlink_to(precious)
    assert "left alone" in playbook("clean").stdout
    assert (precious / "model").exists()


def test_the_tests_command_runs_every_check_and_fails_when_one_fails(
    course: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """ruff really runs, and fails; the others are noted."""
    (course / "pyproject.toml").write_text("[tool.ruff]\n")
    (course / "wrong.py").write_text("import os\n")
    noted: list[str] = []

    def note(argv: Sequence[str], **options: Any) -> "subprocess.CompletedProcess[str]":
        noted.append(" ".join(Path(word).name for word in argv[-1:] if argv[0] != sys.executable) or " ".join(argv[2:]))
        return real(argv, **options) if "ruff" in argv else subprocess.CompletedProcess(argv, 0)

    real = subprocess.run
    monkeypatch.setattr(subprocess, "run", note)
    done = playbook("test", "--collect-only")
    assert done.exit_code == 1
    assert done.stderr.count("failed: ") == 1
    assert "ruff check" in done.stderr
    assert "$ " in done.stdout
    assert "F401" in capfd.readouterr().out
    pytest_words = " ".join(("pytest", *SIDE_BY_SIDE, "--collect-only"))
    noted.remove("mypy")  # whenever it was: it runs beside the others
    assert noted == ["ruff check", "ruff format --check", "lint-imports", pytest_words]


def test_what_mypy_says_beside_the_tests_is_shown_and_fails_the_command(
    course: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def say(argv: Sequence[str], **options: Any) -> "subprocess.CompletedProcess[str]":
        wrong = argv[-1] == "mypy"
        return subprocess.CompletedProcess(argv, int(wrong), "x.py:1: error: no\n" if wrong else None, None)

    monkeypatch.setattr(subprocess, "run", say)
    done = playbook("test")
    assert (done.exit_code, done.stderr.count("failed: ")) == (1, 1)
    assert "-m mypy\nx.py:1: error: no\n" in done.stdout
    assert done.stderr.endswith("-m mypy\n")


def test_workers_share_no_file_and_servers_have_one(tmp_path: Path) -> None:
    """Files of these names under the suite's own conftest: xdist's own groups fail without a word."""
    folder = tmp_path / "tests"
    folder.mkdir()
    shutil.copy(ROOT / "tests" / "conftest.py", folder)
    for name in ("client_faults", "load", "prices", "triton_server", "aiperf", "nbval"):
        (folder / f"test_{name}.py").write_text("".join(f"def test_{test}():\n    pass\n" for test in "ab"))
    path = os.pathsep.join([PYTHON_PATH, str(ROOT / "tests")])
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *SIDE_BY_SIDE, "-v", "-p", "no:cacheprovider", "-p", "xdist"],
        cwd=tmp_path, env=os.environ | {"PYTHONPATH": path, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    ran = re.findall(r"^\[(gw\d)\].*PASSED tests/test_(\w+)\.py::test_(\w+)", done.stdout, re.MULTILINE)
    assert len(ran) == 12
    workers = {name: {worker for worker, file, _ in ran if file == name} for _, name, _ in ran}
    assert {name for name, found in workers.items() if len(found) > 1} == set()
    assert workers["client_faults"] == workers["triton_server"]


def test_a_run_that_does_not_end_names_its_tests(tmp_path: Path) -> None:
    """A worker that somebody stopped hears no signal and has no clock."""
    (tmp_path / "conftest.py").write_text(
        "from running import Running\ndef pytest_configure(config):\n"
        "    if not hasattr(config, 'workerinput'):\n        config.pluginmanager.register(Running(config, 15))\n"
    )
    stopped = "import os, signal\ndef test_stopped(): os.kill(os.getpid(), signal.SIGSTOP)\ndef test_rest(): pass\n"
    (tmp_path / "test_a.py").write_text(stopped)
    (tmp_path / "test_b.py").write_text("def test_one(): pass\ndef test_two(): pass\n")
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *SIDE_BY_SIDE, "-p", "no:cacheprovider", "."],
        cwd=tmp_path, env=os.environ | {"PYTHONPATH": os.pathsep.join([PYTHON_PATH, str(ROOT / "tests")])},
        capture_output=True, text=True, check=False, timeout=300,
    )  # fmt: skip
    assert done.returncode == 1
    assert "still running:\n  test_a.py::test_stopped\n" in done.stdout
    assert "(stopped)" in done.stdout and "test_b" not in done.stdout.partition("still running")[2]


def test_a_worker_that_dies_ends_the_run_with_the_name_of_its_test(tmp_path: Path) -> None:
    """Another worker would die of it, too, and near the end of a run xdist 3.8 waits for it without end."""
    for name in "abc":
        (tmp_path / f"test_{name}.py").write_text("def test_one(): pass\ndef test_two(): pass\n")
    dying = "import os\ndef test_first(): pass\ndef test_dies(): os._exit(1)\ndef test_rest(): pass\n"
    (tmp_path / "test_d.py").write_text(dying)
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *SIDE_BY_SIDE, "-p", "no:cacheprovider", "."],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert done.returncode == 1
    assert "crashed while running 'test_d.py::test_dies'" in done.stdout
    assert done.stdout.count("node down") == 1


def test_without_a_command_there_is_help(course: Path) -> None:
    shown = playbook("--help").stdout
    for command in ("run", "params", "chapters", "record", "lab", "test", "clean"):
        assert re.search(rf"^ +{command} ", shown, re.MULTILINE)
