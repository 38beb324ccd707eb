"""The exercises of the chapter on FP8: what an outlier costs, a calibration that spoils, and the mildest format."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from course_exercises.exercise import Exercise, Wrong
from course_exercises.verdict import ExerciseVerdict, Solution

if TYPE_CHECKING:
    from torch import Tensor

SHARE_CLOSE = 0.002
OUTLIERS: Mapping[str, float] = {"no outlier": 0.0, "one outlier of 60": 60.0, "one outlier of -60": -60.0}


def lost(values: list[float]) -> float:
    scale = max(abs(value) for value in values) / 127
    return sum(abs(value) < scale / 2 for value in values) / len(values)


def lost_by_sign(values: list[float]) -> float:
    scale = max(values) / 127
    return sum(abs(value) < scale / 2 for value in values) / len(values)


def lost_by_a_step(values: list[float]) -> float:
    scale = max(abs(value) for value in values) / 127
    return sum(abs(value) < scale for value in values) / len(values)


def count(values: list[float]) -> float:
    return len(values) * lost(values)


def lost_in_448(values: list[float]) -> float:
    scale = max(abs(value) for value in values) / 448
    return sum(abs(value) < scale / 2 for value in values) / len(values)


def check_lost(answer: Callable[[list[float]], float]) -> Solution:
    """``answer(values)``: the share of values that INT8 with one scale rounds to zero; the rounding itself is asked."""
    import torch

    from ptq.numerics import round_int8

    drawn = random.Random(0)
    gaussian = [drawn.gauss(0, 1) for _ in range(2000)]
    verdicts = []
    for given, outlier in OUTLIERS.items():
        values = [*gaussian, outlier] if outlier else gaussian
        yours = float(answer(list(values)))
        expected = float((round_int8(torch.tensor(values)) == 0).float().mean())
        why = f"the largest magnitude, {max(map(abs, values)):.1f}, is 127 steps, and half a step rounds to zero"
        right = abs(yours - expected) < SHARE_CLOSE
        verdicts.append(ExerciseVerdict(given, f"{yours:.1%}", f"{expected:.1%}", why, right))
    return Solution("what an outlier costs INT8", tuple(verdicts))


SPOILED_DB, FORGIVEN_DB, UNFORGIVEN_DB, LEAST_MARGIN = 10.0, 1.0, 6.0, 8


def check_calibration(answer: Mapping[str, float | None], *, values: Tensor) -> Solution:
    """``seen``: a share of the largest value that spoils FP8. ``margin``: how much too large FP8 forgives, INT8 not."""
    from ptq.numerics import round_fp8, round_int8, sqnr_db

    title = "a calibration that spoils"
    seen, margin = answer.get("seen"), answer.get("margin")
    if not seen or not margin:
        return Solution(title, problem="seen and margin are factors of the largest value; one has no number yet")
    amax = float(values.abs().max())

    def loss_db(rounding: Callable[[Tensor, float], Tensor], factor: float) -> float:
        return sqnr_db(values, rounding(values, amax)) - sqnr_db(values, rounding(values, factor * amax))

    spoiled, forgiven, integer = loss_db(round_fp8, seen), loss_db(round_fp8, margin), loss_db(round_int8, margin)
    return Solution(
        title,
        (
            ExerciseVerdict(
                f"seen {seen:g} of the largest",
                f"{spoiled:.1f} dB lost",
                f"at least {SPOILED_DB:g} dB lost",
                "what is larger than the calibration saw is clipped, and only a share well below 1 clips enough",
                seen < 1 and spoiled >= SPOILED_DB,
            ),
            ExerciseVerdict(
                f"margin {margin:g}, FP8",
                f"{forgiven:.1f} dB lost",
                f"at most {FORGIVEN_DB:g} dB lost, with a margin of {LEAST_MARGIN} or more",
                "FP8's step follows the value, so values keep their digits until they fall below 2^-6 of the scale",
                margin >= LEAST_MARGIN and forgiven <= FORGIVEN_DB,
            ),
            ExerciseVerdict(
                f"margin {margin:g}, INT8",
                f"{integer:.1f} dB lost",
                f"at least {UNFORGIVEN_DB:g} dB lost",
                "INT8's steps are even, so each doubling of the scale costs 6 dB",
                integer >= UNFORGIVEN_DB,
            ),
        ),
    )


WAYS: Mapping[str, tuple[str, str]] = {
    "BF16": ("bf16", "bf16"),
    "FP8 weights": ("fp8", "bf16"),
    "FP8 weights and KV cache": ("fp8", "fp8"),
}
"""From the mildest on: what is quantized, as the planner's weights and cache."""
LOADS: Mapping[str, Mapping[str, Any]] = {
    "a": {"model": "llama3-70b", "gpu": "h100-sxm", "tp": 4, "isl": 1000, "osl": 250, "users": 54},
    "b": {"model": "llama3-70b", "gpu": "h100-sxm", "tp": 2, "isl": 1000, "osl": 250, "users": 54},
    "c": {"model": "llama3-70b", "gpu": "h100-sxm", "tp": 1, "isl": 1000, "osl": 250, "users": 30},
    "d": {"model": "llama3-8b", "gpu": "l4", "tp": 1, "isl": 2000, "osl": 500, "users": 20},
}
"""Letter -> the load as the chapter describes it."""


def check_mildest(answer: Mapping[str, str]) -> Solution:
    """For each load the way that quantizes least and still holds its users, by the planner's memory."""
    title = "no more than the load needs"
    verdicts = []
    for letter, load in LOADS.items():
        yours = answer.get(letter, "").strip()
        if not yours:
            return Solution(title, problem=f"load {letter} has no format yet")
        if yours not in WAYS:
            return Solution(title, problem=f"load {letter}: {yours!r} is none of {', '.join(WAYS)}")
        held = {way: _held(load, way) for way in WAYS}
        fitting = [way for way, requests in held.items() if requests >= load["users"]]
        expected = fitting[0] if fitting else "nothing that is listed"
        found = ", ".join(f"{way} holds {requests}" for way, requests in held.items())
        verdicts.append(ExerciseVerdict(f"load {letter}", yours, expected, f"{found} [planned]", yours == expected))
    return Solution(title, tuple(verdicts))


def _held(load: Mapping[str, Any], way: str) -> int:
    """Requests of ``load`` that fit at once."""
    from serving_planner import memory_of, parse_case

    weights, kv = WAYS[way]
    case = {key: value for key, value in load.items() if key != "users"}
    return memory_of(parse_case({**case, "weights": weights, "kv": kv})).sequences


def _spiky() -> Mapping[str, Any]:
    import torch

    values = torch.randn(64, 256, generator=torch.Generator().manual_seed(0))
    values[:, :4] *= 64
    return {"values": values}


RIGHT = {"a": "BF16", "b": "FP8 weights", "c": "FP8 weights and KV cache", "d": "FP8 weights"}
EXERCISES = (
    Exercise(
        number="02-1",
        title="What an outlier costs INT8",
        kind="compute",
        minutes=5,
        check=check_lost,
        solution=lost,
        wrong=(
            Wrong(lost_by_sign, "one outlier of -60: yours"),
            Wrong(lost_by_a_step, "half a step rounds to zero"),
            Wrong(lost_in_448, "is 127 steps"),
            Wrong(count, "is 127 steps"),
        ),
    ),
    Exercise(
        number="02-2",
        title="A calibration that spoils",
        kind="break",
        minutes=5,
        check=check_calibration,
        solution={"seen": 0.25, "margin": 16},
        also=({"seen": 0.1, "margin": 8},),
        wrong=(
            Wrong({"seen": None, "margin": 16}, "one has no number yet"),
            Wrong({"seen": 0.99, "margin": 16}, "only a share well below 1 clips enough"),
            Wrong({"seen": 2, "margin": 16}, "seen 2 of the largest"),
            Wrong({"seen": 0.25, "margin": 1}, "with a margin of 8 or more"),
            Wrong({"seen": 0.25, "margin": 1e9}, "until they fall below"),
        ),
        row="answers are worse on unusual inputs",
        context=_spiky,
    ),
    Exercise(
        number="02-3",
        title="No more than the load needs",
        kind="choose",
        minutes=5,
        check=check_mildest,
        solution=RIGHT,
        wrong=(
            Wrong(RIGHT | {"a": ""}, "load a has no format yet"),
            Wrong(RIGHT | {"a": "INT4"}, "is none of BF16"),
            Wrong(RIGHT | {"a": "FP8 weights"}, "load a: yours FP8 weights, expected BF16"),
            Wrong(RIGHT | {"b": "BF16"}, "load b: yours BF16, expected FP8 weights"),
            Wrong(RIGHT | {"c": "FP8 weights"}, "load c: yours FP8 weights, expected FP8 weights and KV cache"),
        ),
    ),
)
