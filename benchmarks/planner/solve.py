"""Least squares for a law's constants."""

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import fields
from typing import Any, TypeVar

from benchmarks.planner import tables as t
from serving_planner.cost_model.operations import AllReduceLaw, Chip, DecodeLaw, GemmLaw, PrefillLaw, StreamLaw

SCALE = 0.05  # residuals above it count by their size, no longer by their square
L = TypeVar("L", GemmLaw, DecodeLaw, PrefillLaw, AllReduceLaw, StreamLaw)


def chip(gpu: str, precision: str = "bf16") -> Chip:
    numbers = t.GPUS[gpu]
    return Chip(numbers["bandwidth"], numbers[precision], numbers["bf16"], numbers["link"])


def fit(
    law: type[L], start: Sequence[float], low: Sequence[float], high: Sequence[float], points: Any, **fixed: Any
) -> L:
    """The law whose constants leave the least residuals; ``points``: (measured us, law -> predicted us)."""
    from scipy.optimize import least_squares

    names = [field.name for field in fields(law) if field.name not in fixed]

    def residuals(constants: Sequence[float]) -> list[float]:
        tried = law(**fixed | dict(zip(names, constants, strict=True)))
        return [math.log(predict(tried) / us) for us, predict in points]

    found = least_squares(residuals, start, bounds=(low, high), loss="soft_l1", f_scale=SCALE, max_nfev=60)
    return law(**fixed | {name: round(float(f"{value:.4g}"), 6) for name, value in zip(names, found.x, strict=True)})


def cost(law: Any, points: Iterable[tuple[float, Callable[[Any], float]]]) -> float:
    """What :func:`fit` makes least: twice the sum of its soft absolute residuals, in units of ``SCALE``."""
    squares = ((math.log(predict(law) / us) / SCALE) ** 2 for us, predict in points)
    return sum(2 * (math.sqrt(1 + square) - 1) for square in squares)


def errors(law: Any, points: Iterable[tuple[float, Callable[[Any], float]]]) -> list[float]:
    return [predict(law) / us - 1 for us, predict in points]
