"""nbval runs the course again and compares. Here the course is judged, and then the judge."""

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import nbformat
import pytest
from nbformat import NotebookNode
from nbval.plugin import get_sanitize_patterns

from checkout import PYTHON_PATH, ROOT
from playbook.course.notebooks import Chapter, chapters, read, tags

FIXTURES = Path(__file__).parent / "fixtures" / "notebooks"
SANITIZE = Path(__file__).parent / "nbval_sanitize.cfg"
COURSE = chapters(ROOT / "notebooks")
IGNORED = {"nbval-ignore-output", "nbval-skip"}
FAR_AWAY = ("--nbval-sanitize-with", str(SANITIZE), "--nbval-current-env")  # outside the project, without conftest.py
LIMIT_S = 2400


def nbval(path: Path, *more: str, prefix: tuple[str, ...] = ()) -> "subprocess.CompletedProcess[str]":
    """Plain `pytest --nbval PATH` in the project's root, as a user would type it."""
    env = {key: value for key, value in os.environ.items() if key not in ("PYTEST_ADDOPTS", "PLAYBOOK_WORKSPACE")}
    return subprocess.run(
        [*prefix, sys.executable, "-m", "pytest", "--nbval", str(path), "-q", "-p", "no:cacheprovider", *more],
        cwd=ROOT,
        env=env | {"PYTHONPATH": PYTHON_PATH},
        capture_output=True,
        text=True,
        check=False,
        timeout=LIMIT_S,
    )


def without_network() -> tuple[str, ...]:
    """A prefix that leaves a command only the loopback, where the kernel lets us; else none."""
    prefix = ("unshare", "-rn", "sh", "-c", 'ip link set lo up && exec "$@"', "sh")
    try:
        allowed = subprocess.run([*prefix, "true"], capture_output=True, check=False).returncode == 0
    except FileNotFoundError:
        return ()
    return prefix if allowed else ()


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


@pytest.mark.slow
@pytest.mark.server
@pytest.mark.timeout(LIMIT_S + 60)
def test_the_courses_stored_outputs_are_true_and_need_no_network() -> None:
    done = nbval(ROOT / "notebooks", prefix=without_network())
    assert done.returncode == 0, done.stdout[-8000:] + done.stderr[-2000:]
    assert re.search(r"^\d+ passed", done.stdout, re.MULTILINE), done.stdout[-2000:]


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


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """A copy of the clean fixture."""
    path = tmp_path / "copy.ipynb"
    path.write_bytes((FIXTURES / "clean.ipynb").read_bytes())
    return path


def test_a_true_notebook_passes(copy: Path) -> None:
    done = nbval(copy, *FAR_AWAY)
    assert done.returncode == 0, done.stdout
    assert "4 passed" in done.stdout


def test_a_lying_notebook_is_caught() -> None:
    done = nbval(FIXTURES / "lying.ipynb")
    assert done.returncode == 1
    assert "the sum is 7" in done.stdout


@pytest.mark.parametrize(("cell", "caught"), [("c1", True), ("c2", False)])
def test_a_changed_digit_is_caught_except_under_timing(copy: Path, cell: str, caught: bool) -> None:
    notebook = read(copy)
    (target,) = [other for other in notebook.cells if other.id == cell]
    assert ("timing" in tags(target)) is not caught
    output = target.outputs[0]
    output.text = re.sub(r"\d", lambda match: other_digit(match[0]), output.text, count=1)
    nbformat.write(notebook, copy)
    assert nbval(copy, *FAR_AWAY).returncode == (1 if caught else 0)


def test_the_workspace_may_lie_anywhere_and_its_contents_may_not_differ() -> None:
    assert sanitize("wrote /tmp/x-1/workspace/local/engine") == "wrote workspace/local/engine"
    assert sanitize("wrote workspace/local/engine") == "wrote workspace/local/engine"
    assert sanitize("/a/workspace/rank0") != sanitize("/a/workspace/rank1")
    assert sanitize("/a/workspace2/x") != sanitize("/a/workspace3/x")
