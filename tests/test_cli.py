"""The command line: exit statuses, messages without tracebacks, and nothing lost to a wrong word."""

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from checkout import PYTHON_PATH, ROOT
from notebook_factory import notebook, write_course
from playbook.cli.app import TWO_AT_A_TIME


def playbook(folder: Path, *words: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [sys.executable, "-m", "playbook", *words],
        cwd=folder,
        env=os.environ | {"PYTHONPATH": PYTHON_PATH, "COLUMNS": "120"},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.fixture
def course(tmp_path: Path) -> Path:
    return write_course(tmp_path, c01_good=notebook("print(count)"), c02_bad=notebook("1 / 0", title="# 02 · Bad"))


def test_a_run_that_succeeds_exits_with_0_and_writes_its_report(course: Path) -> None:
    done = playbook(course, "run", "01", "-p", "count=5")
    assert done.returncode == 0, done.stderr
    (folder,) = (course / "runs").iterdir()
    assert str(folder / "report.html") in done.stdout
    assert json.loads((folder / "run.json").read_text())["parameters"] == {"count": "5"}


def test_a_failed_chapter_exits_with_1_and_says_what_and_how(course: Path) -> None:
    done = playbook(course, "run", "--out", "out")
    assert done.returncode == 1
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
    done = playbook(course, "run", *words)
    assert done.returncode == 2, done.stderr
    assert complaint in done.stderr
    assert "Traceback" not in done.stderr
    assert not (course / "runs").exists()


def test_an_environment_problem_exits_with_3(course: Path) -> None:
    full = "import playbook.course.runner as r, playbook.cli.app as c; r.MIN_FREE_BYTES = 10**18; c.app()"
    done = subprocess.run(
        [sys.executable, "-c", full, "run", "01"],
        cwd=course,
        env=os.environ | {"PYTHONPATH": PYTHON_PATH},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 3
    assert "is full" in done.stderr
    assert "Traceback" not in done.stderr


def test_from_skips_the_chapters_before(course: Path) -> None:
    playbook(course, "run", "--from", "02", "--out", "out")
    assert [item["chapter"] for item in json.loads((course / "out" / "results.json").read_text())] == ["02-bad"]


def test_chapters_are_listed(course: Path) -> None:
    assert playbook(course, "chapters").stdout.splitlines() == ["01  A small chapter", "02  Bad"]


def test_params_shows_names_types_defaults_and_meaning(course: Path) -> None:
    shown = playbook(course, "params", "1").stdout
    assert re.search(r"count +int +3 +how many", shown)
    assert re.search(r"sizes +list\[int\] +\[1, 2\] +which sizes", shown)
    wrong = playbook(course, "params", "7")
    assert (wrong.returncode, "no chapter '7'" in wrong.stderr) == (2, True)


def test_clean_removes_what_runs_leave_and_nothing_else(course: Path) -> None:
    for name in ("workspace/local", "runs/one", ".venv", ".envs/triton", "mine"):
        (course / name).mkdir(parents=True)
    assert playbook(course, "clean").returncode == 0
    assert sorted(path.name for path in course.iterdir()) == [".envs", ".venv", "mine", "notebooks"]
    assert playbook(course, "clean", "--all").returncode == 0
    assert sorted(path.name for path in course.iterdir()) == ["mine", "notebooks"]


def test_clean_does_not_follow_a_link(course: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    precious = tmp_path_factory.mktemp("precious")
    (precious / "model").write_text("weights")
    (course / "workspace").symlink_to(precious)
    assert "left alone" in playbook(course, "clean").stdout
    assert (precious / "model").exists()


def test_the_tests_command_fails_when_one_check_fails(course: Path) -> None:
    (course / "pyproject.toml").write_text("[tool.ruff]\n")
    (course / "wrong.py").write_text("import os\n")
    done = playbook(course, "test", "--collect-only")
    assert done.returncode == 1
    assert "ruff check" in done.stderr
    assert "$ " in done.stdout


def test_two_workers_share_no_file_and_measure_last(tmp_path: Path) -> None:
    """Files of these names under the suite's own conftest: xdist's own groups fail without a word."""
    folder = tmp_path / "tests"
    folder.mkdir()
    shutil.copy(ROOT / "tests" / "conftest.py", folder)
    files = ("aiperf", "client_faults", "load", "nbval", "prices", "triton_server")
    for name in files:
        again = "def test_b():\n    pass\n" if name == "aiperf" else ""
        (folder / f"test_{name}.py").write_text(f"def test_a():\n    pass\n{again}")
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *TWO_AT_A_TIME, "-v", "-p", "no:cacheprovider"],
        cwd=tmp_path, env=os.environ | {"PYTHONPATH": PYTHON_PATH}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    ran = re.findall(r"^\[(gw\d)\].*PASSED tests/test_(\w+)\.py", done.stdout, re.MULTILINE)
    workers = {name: {worker for worker, of in ran if of == name} for _, name in ran}
    assert len(workers) == len(files)
    assert all(len(used) == 1 for used in workers.values())
    assert workers["client_faults"] == workers["triton_server"]
    assert workers["nbval"] == workers["aiperf"]
    own = [name for worker, name in ran if {worker} == workers["aiperf"]]
    assert own[-3:] == ["nbval", "aiperf", "aiperf"]


def test_without_a_command_there_is_help(course: Path) -> None:
    shown = playbook(course, "--help").stdout
    for command in ("run", "params", "chapters", "record", "lab", "test", "clean"):
        assert re.search(rf"^ +{command} ", shown, re.MULTILINE)
