"""The loop inside a test: it must catch what parametrize catches, and say for which value."""

from inspect import signature
from pathlib import Path

import pytest

from each import each


def test_every_value_is_tried_and_each_that_fails_is_named() -> None:
    tried = []

    @each("number", [1, 2, 3])
    def test_is_odd(number: int) -> None:
        tried.append(number)
        if number == 2:
            pytest.fail("not odd")
        assert number < 3

    with pytest.raises(BaseExceptionGroup, match="2 of 3 fail: test_is_odd") as caught:
        test_is_odd()
    assert tried == [1, 2, 3]
    assert [error.__notes__ for error in caught.value.exceptions] == [["with number = 2"], ["with number = 3"]]


def test_what_passes_for_all_passes_and_what_gets_no_value_is_refused() -> None:
    @each(("one", "other"), [(1, 1), (2, 2)])
    def test_equal(one: int, other: int) -> None:
        assert one == other

    test_equal()
    with pytest.raises(AssertionError, match="no value for one"):
        each("one", [])


def test_fixtures_go_on_and_every_value_has_a_folder_of_its_own(tmp_path: Path) -> None:
    @each("name", ["a", "b"])
    def test_writes(tmp_path: Path, name: str) -> None:
        assert list(tmp_path.iterdir()) == []
        (tmp_path / name).touch()

    assert list(signature(test_writes).parameters) == ["tmp_path"]
    test_writes(tmp_path=tmp_path)
    assert sorted(str(path.relative_to(tmp_path)) for path in tmp_path.rglob("?/?")) == ["0/a", "1/b"]


@pytest.mark.parametrize("left", [1, 2])
@each("right", [3, 4])
def test_pytest_gives_the_other_arguments(left: int, right: int) -> None:
    assert left < right
