"""Any right solution of the chapter on attention passes, wrong ones say why, and a stub is loud."""

import math

import pytest

from course_exercises.attention import ANSWERS, LOADS, Part, check_kernels, check_merge
from course_exercises.verdict import NOT_SOLVED
from trtllm_check.attention import context_kernel, generation_kernel

RIGHT = {
    letter: (context_kernel(case) if phase == "context" else generation_kernel(case)).kernel
    for letter, (phase, case) in LOADS.items()
}


def to_the_larger(first: Part, second: Part) -> Part:
    top = max(first[0], second[0])
    scales = [math.exp(part[0] - top) for part in (first, second)]
    total = first[1] * scales[0] + second[1] * scales[1]
    return top, total, first[2] * scales[0] + second[2] * scales[1]


def by_logarithms(first: Part, second: Part) -> Part:
    if first[0] < second[0]:
        first, second = second, first
    gap = math.exp(second[0] - first[0])
    return first[0], first[1] + gap * second[1], first[2] + gap * second[2]


@pytest.mark.parametrize("merge", [to_the_larger, by_logarithms])
def test_any_right_merge_solves_the_exercise(merge: object) -> None:
    assert check_merge(merge).solved  # type: ignore[arg-type]


def test_adding_without_scaling_is_wrong_and_told_why() -> None:
    found = check_merge(lambda first, second: (0.0, first[1] + second[1], first[2] + second[2]))
    assert not found.solved
    assert "scaled to the larger maximum" in str(found)


def test_scaling_to_zero_overflows() -> None:
    def merge(first: Part, second: Part) -> Part:
        scales = [math.exp(part[0]) for part in (first, second)]
        return 0.0, first[1] * scales[0] + second[1] * scales[1], first[2] * scales[0] + second[2] * scales[1]

    assert "OverflowError" in str(check_merge(merge))


def test_a_stub_is_loud() -> None:
    def merge(first: Part, second: Part) -> Part:
        raise NotImplementedError("write merge")

    assert str(check_merge(merge)).startswith(NOT_SOLVED)
    assert str(check_kernels(dict.fromkeys(LOADS, ""))).startswith(NOT_SOLVED)


def test_the_exercise_on_kernels_knows_every_kernel_and_takes_each_spelling() -> None:
    assert set(RIGHT.values()) == set(ANSWERS)
    assert check_kernels({letter: kernel.upper() for letter, kernel in RIGHT.items()}).solved


@pytest.mark.parametrize("letter", LOADS)
def test_a_wrong_kernel_is_told_the_reason(letter: str) -> None:
    wrong = next(answer for answer in ANSWERS if answer != RIGHT[letter])
    found = check_kernels(RIGHT | {letter: wrong})
    assert not found.solved and f"case {letter}" in str(found) and RIGHT[letter] in str(found)


def test_a_word_that_is_no_kernel_is_refused() -> None:
    assert "is none of" in str(check_kernels(RIGHT | {"a": "FlashAttention"}))
