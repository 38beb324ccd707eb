"""Where two answers part, and what a bfloat16 can tell apart."""

import pytest

from benchmarks.exactness.differences import Parting, bfloat16_step, explained, parting


def test_equal_answers_do_not_part() -> None:
    assert parting(0, (1, 2), (1, 2)) is None


@pytest.mark.parametrize(
    ("expected", "found", "part"),
    [
        ((1, 2, 3), (1, 5, 3), Parting(7, 1, (2, 5))),
        ((1, 2), (1, 2, 3), Parting(7, 2, (None, 3))),
        ((1, 2), (), Parting(7, 0, (1, None))),
    ],
)
def test_answers_part_at_the_first_token_that_differs(
    expected: tuple[int, ...], found: tuple[int, ...], part: Parting
) -> None:
    assert parting(7, expected, found) == part


def test_a_step_is_the_distance_to_the_next_bfloat16() -> None:
    torch = pytest.importorskip("torch")
    for value in (1.0, 14.5625, 17.0, 0.375, 100.0):
        nearest = torch.tensor(value, dtype=torch.bfloat16)
        following = torch.nextafter(nearest, torch.tensor(torch.inf, dtype=torch.bfloat16))
        assert bfloat16_step(value) == float(following) - float(nearest)


def test_a_gap_within_a_step_is_a_tie_and_a_larger_one_is_not() -> None:
    part = Parting(3, 6, (23, None))
    assert "a tie for bfloat16 (0.125)" in explained(part, [17.0, 16.9], [17.0, 17.0])
    assert "7.9 steps of bfloat16 (0.125)" in explained(part, [17.0428, 16.057], [17.125, 16.0])
    assert explained(part, [17.0, 16.9], [17.0, 17.0]).startswith("question 3 parts at token 6: 23 and None;")
