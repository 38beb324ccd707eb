"""Errors are told as classes of failure, with what to do."""

import pytest
from nbformat.v4 import new_output

from notebook_factory import notebook
from playbook.course.failures import Failure, classify, split_message, unfinished
from serving_base.errors import MissingArtifact, PlaybookError


@pytest.mark.parametrize(
    ("name", "message", "kind"),
    [
        ("MissingArtifact", "there is no engine", "missing artifact"),
        ("ForeignArtifact", "made for another GPU", "missing artifact"),
        ("CheckFailed", "check failed: 2 > 1", "check failed"),
        ("AssertionError", "", "check failed"),
        ("OSError", "[Errno 28] No space left on device: '/x'", "disk full"),
        ("MemoryError", "", "memory"),
        ("torch.OutOfMemoryError", "CUDA out of memory. Tried to allocate 2 GiB", "memory"),
        ("RuntimeError", "std::bad_alloc", "memory"),
        ("OSError", "[Errno 98] Address already in use", "port taken"),
        ("EnvironmentProblem", "port 8000 is taken by python", "port taken"),
        ("ConnectError", "[Errno -3] Temporary failure in name resolution", "network"),
        ("ServerError", "tritonserver did not become ready", "server"),
        ("Unreachable", "the server does not answer", "server"),
        ("ModuleNotFoundError", "No module named 'torch'", "environment"),
        ("ProfileError", "no profile 'p6'", "usage"),
        ("SystemExit", "3", "early exit"),
        ("Skipped", "it would cost 63 USD/h: out of memory", "skipped"),
        ("ZeroDivisionError", "division by zero", "error"),
    ],
)
def test_the_class_of_a_failure(name: str, message: str, kind: str) -> None:
    failure = classify(name, message, cell=4)
    assert (failure.kind, failure.cell) == (kind, 4)
    assert failure.fix


def test_a_playbook_errors_own_words_are_kept() -> None:
    error = MissingArtifact("there is no engine\n  in local/", why="chapter 03 was not run", fix="run it\nfirst")
    failure = classify("MissingArtifact", str(error))
    assert failure == Failure(
        "missing artifact", "there is no engine\n  in local/", "chapter 03 was not run", "run it\nfirst"
    )


@pytest.mark.parametrize(("why", "fix"), [("", ""), ("a", ""), ("", "b"), ("a", "b")])
def test_splitting_undoes_str(why: str, fix: str) -> None:
    assert split_message(str(PlaybookError("what", why=why, fix=fix))) == ("what", why, fix)


def test_a_foreign_error_is_shown_with_its_name() -> None:
    assert classify("KeyError", "'x'").what == "KeyError: 'x'"


def test_an_unfinished_notebook_is_a_failure() -> None:
    nb = notebook("x = 1", "x = 2")
    for count, cell in enumerate((cell for cell in nb.cells if cell.cell_type == "code"), start=1):
        cell.execution_count = count
    assert unfinished(nb) is None
    nb.cells[-1].execution_count = None
    failure = unfinished(nb)
    assert failure is not None
    assert (failure.kind, failure.cell) == ("early exit", 2)


def test_an_exit_in_the_last_cell_is_early_too() -> None:
    nb = notebook("raise SystemExit(0)")
    for count, cell in enumerate((cell for cell in nb.cells if cell.cell_type == "code"), start=1):
        cell.execution_count = count
    nb.cells[-1].outputs = [new_output("error", ename="SystemExit", evalue="0", traceback=[])]  # type: ignore[no-untyped-call]
    failure = unfinished(nb)
    assert failure is not None
    assert failure.cell == 2
