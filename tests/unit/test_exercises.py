"""Every exercise: its check takes the solution, refuses the typical wrong answers with a reason, and a stub is loud."""

import inspect
import re
from typing import Any

import pytest

from checkout import ROOT
from course_exercises.exercise import Exercise, checked, exercise, exercises, shown, stub
from course_exercises.verdict import NOT_SOLVED, ExerciseVerdict, Solution
from exercise_contexts import CONTEXTS
from playbook.course.notebooks import chapters, read
from serving_base.errors import UsageError

ALL = list(exercises().values())
HERE = [one for one in ALL if not one.needs]
CELLS = {item.number: [cell.source for cell in read(item.path).cells] for item in chapters(ROOT / "notebooks")}


def context(one: Exercise) -> dict[str, Any]:
    """What a chapter passes by name."""
    return {**one.context(), **CONTEXTS.get(one.number, {})}


def double(value: int) -> int:
    return 2 * value


def check_double(answer: Any) -> Solution:
    verdict = ExerciseVerdict("3", str(answer(3)), "6", "twice three", answer(3) == 6)
    return Solution("double", (verdict,))


@pytest.mark.parametrize("one", HERE, ids=lambda one: one.number)
def test_the_check_takes_the_solution_and_every_other_right_answer(one: Exercise) -> None:
    for answer in (one.solution, *one.also):
        found = checked(one.number, answer, **context(one))
        assert found.solved, str(found)


@pytest.mark.parametrize("one", HERE, ids=lambda one: one.number)
def test_the_check_refuses_typical_wrong_answers_and_says_why(one: Exercise) -> None:
    for wrong in one.wrong:
        found = checked(one.number, wrong.answer, **context(one))
        assert not found.solved, wrong.says
        assert wrong.says in str(found), str(found)


@pytest.mark.parametrize("one", ALL, ids=lambda one: one.number)
def test_there_are_three_wrong_answers_at_least(one: Exercise) -> None:
    assert len(one.wrong) >= 3


def test_only_the_compiler_and_the_laboratory_are_left_to_the_tests_of_the_lane() -> None:
    assert [one.number for one in ALL if one.needs] == ["12-2", "13-1", "13-2", "13-3", "13-4"]


@pytest.mark.parametrize("one", ALL, ids=lambda one: one.number)
def test_a_chapter_has_the_exercise_with_the_stub_of_its_solution(one: Exercise) -> None:
    sources = CELLS[one.chapter]
    assert any(f'lab.exercise("{one.number}"' in source for source in sources)
    if inspect.isfunction(one.solution):
        assert any(stub(one.solution) in source for source in sources), stub(one.solution)
    headings = [source for source in sources if re.search(rf"^### Exercise {one.number.split('-')[1]} ", source, re.M)]
    assert len(headings) == 1
    assert one.title in headings[0] and "<details><summary>Hint" in headings[0]


@pytest.mark.parametrize("chapter", sorted(CELLS))
def test_the_exercises_of_a_chapter_are_numbered_in_the_order_in_which_they_stand(chapter: str) -> None:
    numbers = re.findall(r"^### Exercise (\d) ", "\n\n".join(CELLS[chapter]), re.M)
    assert numbers == [str(number) for number in range(1, len(numbers) + 1)]


@pytest.mark.parametrize("one", [one for one in ALL if one.kind == "break"], ids=lambda one: one.number)
def test_what_is_broken_is_a_row_of_the_chapters_table(one: Exercise) -> None:
    assert one.row and any(f"| {one.row}" in source for source in CELLS[one.chapter])


def test_a_stub_is_loud_and_stops_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    made = Exercise(
        number="00-9", title="double", kind="compute", minutes=1, check=check_double, solution=double, wrong=()
    )
    monkeypatch.setattr("course_exercises.exercise.exercises", lambda: {"00-9": made})
    source = stub(double)
    assert source.startswith("def double(value: int) -> int:\n    raise NotImplementedError")
    names: dict[str, Any] = {}
    exec(source, names)
    assert str(checked("00-9", names["double"])).startswith(f"{NOT_SOLVED}: double: write double")
    assert "raised ZeroDivisionError" in str(checked("00-9", lambda value: value / 0))
    assert "yours 4, expected 6. twice three" in str(checked("00-9", lambda value: value + 1))
    assert checked("00-9", double).solved
    assert shown("00-9") == "def double(value: int) -> int:\n    return 2 * value\n"


def test_an_unknown_exercise_names_the_known_ones() -> None:
    with pytest.raises(UsageError, match="there is no exercise '99-1'"):
        exercise("99-1")
