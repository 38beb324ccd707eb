"""The exercises of the quantization laboratory: each looks at what a learner wrote and says yours, expected and why.

A stub raises ``NotImplementedError``; that is reported loudly and stops nothing, so a course that nobody solves still
runs to its end. Any solution that gives the right values passes, whatever it looks like.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from course_exercises.exercise import Exercise, Wrong
from course_exercises.verdict import ExerciseVerdict, Solution
from ptq.formats import NumberFormat, formats, known
from ptq.metrics import bootstrap, paired_ratio

if TYPE_CHECKING:
    from ptq.laboratory import Laboratory, Texts

ROUNDING_CASES: Mapping[float, str] = {
    1.0: "it is on the grid",
    1.07: "the neighbours are 1 and 1.125, and the nearer one wins",
    -3.3: "between 2 and 4 the step is 0.25; the sign plays no part",
    17.0: "halfway between 16 and 18: the even mantissa wins",
    19.0: "halfway between 18 and 20: the even mantissa wins",
    300.0: "between 256 and 448 the step is 32",
    1000.0: "above 448 a quantizer saturates",
    0.01: "below 2^-6 the grid is even, with steps of 2^-9",
    0.0009: "less than half a step from zero: it becomes zero",
}
"""Value -> why its rounding is what it is."""


def check_rounding(round_e4m3: Callable[[float], float]) -> Solution:
    """Exercise 1: ``round_e4m3`` gives the E4M3 value nearest to a number, ties to even, saturated at 448."""
    import torch

    from ptq.numerics import round_fp8

    title = "E4M3 by hand"
    verdicts = []
    for value, why in ROUNDING_CASES.items():
        expected = float(round_fp8(torch.tensor([value]), amax=448.0)[0])
        try:
            yours = float(round_e4m3(value))
        except NotImplementedError as error:
            return Solution(title, problem=str(error))
        except (TypeError, ValueError, ArithmeticError) as error:
            return Solution(title, problem=f"round_e4m3({value}) raised {type(error).__name__}: {error}")
        verdicts.append(ExerciseVerdict(f"{value:g}", f"{yours:g}", f"{expected:g}", why, yours == expected))
    return Solution(title, tuple(verdicts))


@dataclass(frozen=True)
class Need:
    """A service to find a format for: ``many_users`` makes arithmetic the limit, one user makes the bytes."""

    text: str
    gpu: str
    many_users: bool
    weight_bits: int

    def refusal(self, chosen: NumberFormat) -> str:
        """Why ``chosen`` does not fit; empty where it does."""
        gpu = known(self.gpu)
        if not chosen.runs_on(gpu):
            return f"{gpu.architecture} does not run it; it needs sm{chosen.since}"
        if chosen.weights > self.weight_bits:
            return f"the weights may take {self.weight_bits} bits at most"
        if self.many_users and not chosen.speeds_arithmetic:
            return "products stay in 16 bits, and with many users they are the limit"
        return ""


LOADS: Mapping[str, Need] = {
    "a": Need("8B on an A100, 64 users at once", "a100", many_users=True, weight_bits=8),
    "b": Need("70B on four H100, 128 users at once", "h100", many_users=True, weight_bits=8),
    "c": Need("70B on one A100 of 80 GB, one user", "a100", many_users=False, weight_bits=4),
    "d": Need("8B on an L4, long prompts, and 4-bit weights to make room for the cache", "l4", True, 4),
}


def check_formats(chosen: Mapping[str, str]) -> Solution:
    """Exercise 3: a format for each load; every format that runs there and helps there is right."""
    title = "a format for each load"
    verdicts = []
    for key, load in LOADS.items():
        name = chosen.get(key, "")
        fitting = [one.name for one in formats().values() if not load.refusal(one)]
        if not name:
            return Solution(title, problem=f"load {key} has no format yet")
        unknown = f"no format is called so; there are {', '.join(formats())}"
        why = load.refusal(formats()[name]) if name in formats() else unknown
        verdicts.append(ExerciseVerdict(f"{key}, {load.text}", name, " or ".join(fitting), why, name in fitting))
    return Solution(title, tuple(verdicts))


LARGEST_REPAIR = 0.25
"""A repair leaves a quarter of the damage at most."""


def check_repair(choose: Callable[[Texts, int], Texts], laboratory: Laboratory, texts: Texts, size: int) -> Solution:
    """Exercise 2: ``choose(texts, size)`` returns ``size`` of the texts, and they calibrate better than the first ones.

    Judged by FP8's KL divergence on the held-out windows: at most a quarter of what ``texts[:size]`` gives.
    """
    title = "repair the calibration"
    try:
        chosen = [list(text) for text in choose(texts, size)]
    except NotImplementedError as error:
        return Solution(title, problem=str(error))
    except (TypeError, ValueError, IndexError) as error:
        return Solution(title, problem=f"choose raised {type(error).__name__}: {error}")
    given = [list(text) for text in texts]
    if not 1 <= len(chosen) <= size or any(text not in given for text in chosen):
        return Solution(title, problem=f"return {size} of the texts that you were given, as they are")
    before, after = (laboratory.measure("FP8", each).scores.kl for each in (given[:size], chosen))
    left = paired_ratio(before, after)
    verdict = ExerciseVerdict(
        given=f"{size} of {len(given)} texts",
        yours=f"{left.mean:.0%} of the damage is left",
        expected=f"at most {LARGEST_REPAIR:.0%}",
        why=f"KL {bootstrap(before).mean:.3f} before, {bootstrap(after).mean:.3f} after",
        right=left.high < LARGEST_REPAIR,
    )
    return Solution(title, (verdict,))


def round_e4m3(value: float) -> float:
    size = min(abs(value), 448.0)
    power = max(math.frexp(size)[1] - 1, -6)
    return math.copysign(round(size / 2.0 ** (power - 3)) * 2.0 ** (power - 3), value)


def _by_the_grid(value: float) -> float:
    """The nearest of the grid; of two equally near ones that with the even mantissa, every second from zero on."""
    steps = [2.0**power * (8 + place) / 8 for power in range(-6, 9) for place in range(8)]
    grid = [place * 2.0**-9 for place in range(8)] + steps[:-1]
    size = min(abs(value), grid[-1])
    nearest = min(range(len(grid)), key=lambda place: (abs(grid[place] - size), place % 2))
    return math.copysign(grid[nearest], value)


def _half_up(value: float) -> float:
    power = max(math.frexp(abs(value))[1] - 1, -6)
    return math.copysign(math.floor(abs(value) / 2.0 ** (power - 3) + 0.5) * 2.0 ** (power - 3), value)


def _without_the_even_part(value: float) -> float:
    size = min(abs(value), 448.0)
    power = math.frexp(size)[1] - 1  # nothing ends the exponents
    return math.copysign(round(size / 2.0 ** (power - 3)) * 2.0 ** (power - 3), value)


def choose(texts: list[list[int]], size: int) -> list[list[int]]:
    return sorted(texts, key=lambda text: len(set(text)))[-size:]


CHOSEN = {"a": "int8_sq", "b": "fp8", "c": "int4_awq", "d": "w4a8_awq"}
EXERCISES = (
    Exercise(
        number="12-1",
        title="E4M3 by hand",
        kind="compute",
        minutes=10,
        check=check_rounding,
        solution=round_e4m3,
        also=(_by_the_grid,),
        wrong=(
            Wrong(_half_up, "17: yours 18, expected 16"),
            Wrong(_half_up, "1000: yours 1024, expected 448"),
            Wrong(_without_the_even_part, "less than half a step from zero"),
            Wrong(abs, "the sign plays no part"),
            Wrong(lambda value: None, "TypeError"),
        ),
    ),
    Exercise(
        number="12-2",
        title="Break it and repair it",
        kind="break",
        minutes=10,
        check=check_repair,
        solution=choose,
        wrong=(
            Wrong(lambda texts, size: texts[:size], "of the damage is left"),
            Wrong(lambda texts, size: texts, "as they are"),
            Wrong(lambda texts, size: [[1, 2, 3]] * size, "as they are"),
            Wrong(lambda texts, size: [], "as they are"),
        ),
        row="FP8 answers worse, nothing failed",
        needs="a laboratory that quantizes",
    ),
    Exercise(
        number="12-3",
        title="Choose a format",
        kind="choose",
        minutes=5,
        check=check_formats,
        solution=CHOSEN,
        also=(CHOSEN | {"b": "int8_sq"}, CHOSEN | {"c": "int4_gptq"}, CHOSEN | {"b": "w4a8_awq"}),
        wrong=(
            Wrong(dict.fromkeys(LOADS, ""), "load a has no format yet"),
            Wrong(CHOSEN | {"a": "fp8"}, "needs sm89"),
            Wrong(CHOSEN | {"a": "fp9"}, "no format is called so"),
            Wrong(CHOSEN | {"b": "int8_wo"}, "products stay in 16 bits"),
            Wrong(CHOSEN | {"b": "nvfp4"}, "needs sm100"),
            Wrong(CHOSEN | {"c": "int8_sq"}, "4 bits at most"),
            Wrong(CHOSEN | {"d": "int4_awq"}, "products stay in 16 bits"),
        ),
    ),
)
