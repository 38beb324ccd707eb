"""Each row of a chapter's table "If it went wrong" is provoked by a cell, an exercise or a test, or says what it takes.

``tests/symptoms.yml`` names it. ``cell``: it shows the symptom when it runs. ``check``: its check fails then, as a case
of ``chapter_checks`` proves. ``exercise``, ``test``. ``only``: the machine or service that it takes.
"""

import json
import re
from pathlib import Path
from typing import Any

import pytest

from course_exercises.exercise import exercises
from serving_base.errors import UsageError
from serving_base.yaml_files import read_yaml
from trtllm_check.releases.load import load_release
from trtllm_check.releases.release import check_arguments

TESTS = Path(__file__).parents[1]
NOTEBOOKS = {path.name[:2]: path for path in sorted((TESTS.parent / "notebooks").glob("[0-9][0-9]-*.ipynb"))}
PROVOKED: dict[str, list[dict[str, str]]] = read_yaml(TESTS / "symptoms.yml")
MOST_LEFT = 20
"""Rows that nothing here provokes: fewer is better."""


def cells(chapter: str, kind: str) -> dict[str, str]:
    """The sources of the chapter's cells of one kind, by id."""
    loaded: list[dict[str, Any]] = json.loads(NOTEBOOKS[chapter].read_text(encoding="utf-8"))["cells"]
    return {cell["id"]: "".join(cell["source"]) for cell in loaded if cell["cell_type"] == kind}


def symptoms(chapter: str) -> list[str]:
    """The first column of the chapter's table."""
    (text,) = (text for text in cells(chapter, "markdown").values() if "## If it went wrong" in text)
    table = text.split("## If it went wrong")[1].split("\n## ")[0]
    return [re.split(r"(?<!\\)\|", line)[1].strip() for line in table.splitlines() if line.startswith("|")][2:]


def missing(chapter: str, row: str, kind: str, name: str) -> str:
    """What is wrong with an entry; empty if what it names is there."""
    if kind == "cell":
        there = name in cells(chapter, "code")
    elif kind == "check":
        there = f'Case("{name}"' in (TESTS / "chapter_checks" / f"chapter_{chapter}.py").read_text(encoding="utf-8")
    elif kind == "exercise":
        one = exercises().get(name)
        there = one is not None and name.startswith(chapter) and (one.kind != "break" or one.row in row)
    elif kind == "test":
        file, _, test = name.partition("::")
        path = TESTS / file
        there = (
            path.is_file() and re.search(rf"(?m)^(async )?def {test}\(", path.read_text(encoding="utf-8")) is not None
        )
    else:
        there = kind == "only" and len(name.split()) > 4
    return "" if there else f"{row}: no {kind} {name}"


@pytest.mark.parametrize("chapter", NOTEBOOKS)
def test_every_row_of_the_table_is_provoked_or_says_what_it_takes(chapter: str) -> None:
    entries = PROVOKED[chapter]
    assert [entry["row"] for entry in entries] == symptoms(chapter)
    problems = []
    for entry in entries:
        ((kind, name),) = ((kind, name) for kind, name in entry.items() if kind != "row")
        problems.append(missing(chapter, entry["row"], kind, name))
    assert [problem for problem in problems if problem] == []


def test_few_rows_are_left_to_other_machines() -> None:
    left = [entry["row"] for entries in PROVOKED.values() for entry in entries if "only" in entry]
    assert len(left) <= MOST_LEFT, left


@pytest.mark.parametrize(
    ("release", "flag"),
    [("0.16.0", ["--enable_xqa", "enable"]), ("0.12.0", ["--tp_size", "8"]), ("0.12.0", ["--pp_size", "2"])],
)
def test_a_release_refuses_a_flag_that_it_does_not_have(release: str, flag: list[str]) -> None:
    """Rows of chapters 11 and 14; without the flag the same command is taken."""
    build = ["--checkpoint_dir", "c", "--output_dir", "e"]
    check_arguments(load_release(release), "trtllm-build", build)
    with pytest.raises(UsageError) as caught:
        check_arguments(load_release(release), "trtllm-build", build + flag)
    assert flag[0] in caught.value.why


@pytest.mark.parametrize(
    ("kind", "name"),
    [
        ("cell", "11-999"),
        ("cell", "11-00"),
        ("check", "11-03"),
        ("exercise", "12-2"),
        ("exercise", "11-9"),
        ("exercise", "11-3"),
        ("test", "unit/test_symptoms.py::test_that_is_not_there"),
        ("test", "unit/test_nowhere.py::test_x"),
        ("only", "a GPU"),
        ("guess", "11-3"),
    ],
)
def test_what_is_not_there_is_found(kind: str, name: str) -> None:
    assert missing("11", "another row", kind, name)


def test_what_is_there_is_found() -> None:
    row = "the build says that FP8 context FMHA is not supported"
    assert not missing("11", row, "exercise", "11-3")
    assert not missing("11", row, "test", "unit/test_symptoms.py::test_what_is_there_is_found")
