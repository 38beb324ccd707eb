"""nbval runs the course again and compares. Here the course is judged, and then the judge."""

import os
import re
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import nbformat
import pytest
from nbformat import NotebookNode
from nbval.plugin import get_sanitize_patterns

from checkout import PYTHON_PATH, ROOT
from compiler_here import needs_compiler
from made_once import SHARED, made_once
from own_network import without_network
from playbook.course.notebooks import Chapter, chapter, chapters, read, tags

FIXTURES = Path(__file__).parents[1] / "fixtures" / "notebooks"
SANITIZE = Path(__file__).parents[1] / "nbval_sanitize.cfg"
COURSE = chapters(ROOT / "notebooks")
IGNORED = {"nbval-ignore-output", "nbval-skip"}
FAR_AWAY = ("--nbval-sanitize-with", str(SANITIZE), "--nbval-current-env")  # outside the project, without conftest.py
LIMIT_S = 1500  # below the faulthandler_timeout of pyproject.toml
COMPILING = "13"
"""The chapter that needs NVIDIA's compiler, which is not everywhere."""


def nbval(
    *paths: Path, more: tuple[str, ...] = (), prefix: tuple[str, ...] = (), workspace: Path | None = None
) -> "subprocess.CompletedProcess[str]":
    """Plain `pytest --nbval PATH ...` in the project's root, as a user would type it."""
    env = {key: value for key, value in os.environ.items() if key not in ("PYTEST_ADDOPTS", "PLAYBOOK_WORKSPACE")}
    chosen = {"PLAYBOOK_WORKSPACE": str(workspace)} if workspace else {}
    return subprocess.run(
        [*prefix, sys.executable, "-m", "pytest", "--nbval", *map(str, paths), "-q", "-p", "no:cacheprovider", *more],
        cwd=ROOT,
        env=env | {"PYTHONPATH": PYTHON_PATH} | chosen,
        capture_output=True,
        text=True,
        check=False,
        timeout=LIMIT_S,
    )


def printed(cell: NotebookNode) -> str:
    """What a cell shows as text; a drawing alone is not text."""
    texts = []
    for output in cell.get("outputs", []):
        if output.output_type == "stream":
            texts.append(output.text)
        texts += [str(value) for kind, value in output.get("data", {}).items() if not kind.startswith("image/")]
    return "".join(text for text in texts if not text.startswith("<Figure size"))


def printing_cells(course: list[Chapter]) -> Iterator[tuple[str, NotebookNode]]:
    for item in course:
        for cell in read(item.path).cells:
            if cell.cell_type == "code" and printed(cell):
                yield item.name, cell


def is_compared(cell: NotebookNode) -> bool:
    return not IGNORED & set(tags(cell))


def sanitize(text: str) -> str:
    for pattern, replacement in get_sanitize_patterns(SANITIZE.read_text()):
        text = re.sub(pattern, replacement, text)
    return text


def other_digit(digit: str) -> str:
    return str((int(digit) + 1) % 10)


# The course.


def assert_true(numbers: Sequence[str], workspace: Path) -> None:
    """These chapters show again, in this workspace and without a network, what they store."""
    done = nbval(*(chapter(number, COURSE).path for number in numbers), prefix=without_network(), workspace=workspace)
    assert done.returncode == 0, done.stdout[-8000:] + done.stderr[-2000:]
    assert re.search(r"^\d+ passed", done.stdout, re.MULTILINE), done.stdout[-2000:]


def course_workspace() -> Path:
    """The workspace of the course, run by the first who asks. It may not be moved."""
    workspace = Path(os.environ[SHARED], "course", "workspace")
    begun = Path(os.environ[SHARED], "course-begun")

    def run(note: Path) -> None:
        if begun.exists():  # minutes for the same message
            pytest.fail("the course is not true: another test says where")
        begun.touch()
        assert_true([item.number for item in COURSE if item.number != COMPILING], workspace)
        note.mkdir()

    made_once("course-is-true", run)
    return workspace


@pytest.mark.slow
@pytest.mark.server
@pytest.mark.timeout(LIMIT_S + 60)
def test_the_courses_stored_outputs_are_true_and_need_no_network() -> None:
    course_workspace()


@pytest.mark.slow
@pytest.mark.server
@pytest.mark.timeout(LIMIT_S + 60)
@needs_compiler
def test_the_compiling_chapters_stored_outputs_are_true_and_need_no_network() -> None:
    assert_true([COMPILING], course_workspace())


def test_most_cells_that_print_are_compared() -> None:
    cells = list(printing_cells(COURSE))
    compared = [cell for _, cell in cells if is_compared(cell)]
    assert len(cells) > 30
    assert len(compared) / len(cells) >= 0.7, f"{len(compared)} of {len(cells)}"


def test_every_printed_digit_is_compared_outside_the_tagged_cells() -> None:
    """No sanitizer may swallow a digit: such a cell belongs under the tags `timing` and `nbval-ignore-output`."""
    unseen = []
    for name, cell in printing_cells(COURSE):
        text = printed(cell)
        for match in re.finditer(r"\d", text) if is_compared(cell) else ():
            changed = text[: match.start()] + other_digit(match[0]) + text[match.end() :]
            if sanitize(changed) == sanitize(text):
                unseen.append(f"{name} {cell.id}: {text[max(0, match.start() - 30) : match.end() + 10]!r}")
    assert unseen == []


def test_a_tag_for_varying_output_is_used_with_its_reason() -> None:
    """`nbval-ignore-output` is what nbval reads; `timing` says why. Cells that print nothing need neither."""
    for item in COURSE:
        for cell in read(item.path).cells:
            assert ("timing" in tags(cell)) <= ("nbval-ignore-output" in tags(cell)), f"{item.name} {cell.get('id')}"
            assert "nbval-skip" not in tags(cell), f"{item.name} {cell.get('id')}"


# The judge.


def with_another_digit(cell: str) -> NotebookNode:
    """The clean fixture, with one printed digit changed in this cell."""
    notebook = read(FIXTURES / "clean.ipynb")
    (target,) = [other for other in notebook.cells if other.id == cell]
    assert ("timing" in tags(target)) is (cell == "c2")
    output = target.outputs[0]
    output.text = re.sub(r"\d", lambda match: other_digit(match[0]), output.text, count=1)
    return notebook


def test_a_changed_digit_is_caught_except_under_timing(tmp_path: Path) -> None:
    notebooks = {"true": read(FIXTURES / "clean.ipynb"), "changed": with_another_digit("c1")}
    notebooks["timing"] = with_another_digit("c2")
    for name, notebook in notebooks.items():
        nbformat.write(notebook, tmp_path / f"{name}.ipynb")  # type: ignore[no-untyped-call]
    done = nbval(tmp_path, more=FAR_AWAY)
    assert re.findall(r"^FAILED .*?(\w+)\.ipynb::", done.stdout, re.MULTILINE) == ["changed"], done.stdout
    assert "1 failed, 11 passed" in done.stdout


def test_a_lying_notebook_is_caught() -> None:
    """With the project's own settings."""
    done = nbval(FIXTURES / "lying.ipynb")
    assert done.returncode == 1
    assert "the sum is 7" in done.stdout


def test_the_workspace_may_lie_anywhere_and_its_contents_may_not_differ() -> None:
    assert sanitize("wrote /tmp/x-1/workspace/local/engine") == "wrote workspace/local/engine"
    assert sanitize("wrote workspace/local/engine") == "wrote workspace/local/engine"
    assert sanitize("/a/workspace/rank0") != sanitize("/a/workspace/rank1")
    assert sanitize("/a/workspace2/x") != sanitize("/a/workspace3/x")
