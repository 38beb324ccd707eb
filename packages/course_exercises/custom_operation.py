"""The exercises of the chapter on operations of one's own: a norm, a scale for each token, and a fault that hides."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np

from course_exercises.exercise import Exercise, Wrong
from course_exercises.verdict import ExerciseVerdict, Solution
from cpu_serving import custom_operations
from cpu_serving.custom_graph import OperationBench, open_bench
from cpu_serving.custom_mistakes import NORM_MISTAKES
from cpu_serving.custom_operations import INT8_MAX, RMS_NORM, run_operation

EXACT = 1e-5
"""Of the largest value. Float32 keeps 24 bits, and a sum over a few hundred of them loses two or three."""
IDS = tuple(range(300, 340))


def rms_norm(x: np.ndarray, gain: np.ndarray, epsilon: float) -> np.ndarray:
    result: np.ndarray = x / np.sqrt(np.mean(x**2, axis=-1, keepdims=True) + epsilon) * gain
    return result


def check_rms_norm(answer: Callable[..., Any]) -> Solution:
    """Exercise 1: the kernel in numpy, and then as a node of a graph that OpenVINO compiles."""
    made = np.random.default_rng(16)
    rows = made.standard_normal((2, 3, 8)).astype(np.float32)
    gain = made.uniform(0.5, 2, 8).astype(np.float32)
    cases = {
        "rows of one size": (rows, "the mean goes over the last axis, for each token apart"),
        "rows that lie off zero": (rows + 3, "RMSNorm subtracts no mean"),
        "rows of very small values": (rows * np.float32(1e-3), "epsilon is added to the mean, below the root"),
        "a row of zeros": (np.zeros((1, 1, 8), np.float32), "epsilon is there so that nothing is divided by zero"),
    }
    verdicts = []
    for given, (x, why) in cases.items():
        with np.errstate(all="ignore"):
            yours = np.asarray(answer(x.copy(), gain.copy(), 1e-5))
        exact = x / np.sqrt((x.astype(np.float64) ** 2).mean(-1, keepdims=True) + 1e-5) * gain
        off = _off(yours, exact)
        verdicts.append(ExerciseVerdict(given, f"off by {off:.2g}", f"at most {EXACT:g}", why, off <= EXACT))
    if all(verdict.right for verdict in verdicts):
        node = run_operation(replace(RMS_NORM, kernel=answer), rows, gain, epsilon=1e-5)
        off = _off(node, custom_operations.rms_norm(rows, gain, 1e-5))
        why = "the graph gives float32 arrays, and wants an array of the input's shape"
        verdicts.append(ExerciseVerdict("as a node", f"off by {off:.2g}", f"at most {EXACT:g}", why, off <= EXACT))
    return Solution("RMSNorm as a kernel", tuple(verdicts))


def quantize_per_token(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    scales = np.abs(x).max(axis=-1, keepdims=True) / 127
    scales = np.where(scales == 0, 1, scales)
    values = np.clip(np.rint(x / scales), -127, 127).astype(np.int8)
    return values, scales


def check_quantize(answer: Callable[..., Any]) -> Solution:
    """Exercise 2: values int8 [tokens, in] and scales [tokens, 1]; their product is x, off by half a step at most."""
    made = np.random.default_rng(17)
    x = (made.standard_normal((4, 16)) * np.array([[0.01], [1], [30], [0]])).astype(np.float32)
    with np.errstate(all="ignore"):
        values, scales = (np.asarray(part) for part in answer(x.copy()))
    fits = scales.shape in ((4, 1), (4,)) and values.shape == x.shape
    verdicts = [
        ExerciseVerdict("values", f"{values.dtype} {values.shape}", "int8 (4, 16)", "", values.dtype == np.int8),
        ExerciseVerdict("scales", str(scales.shape), "(4, 1)", "each token has a scale of its own", fits),
    ]
    if fits:
        column = scales.reshape(4, 1).astype(np.float64)
        step = np.abs(x).max(axis=-1, keepdims=True) / INT8_MAX
        error = np.abs(values * column - x)
        with np.errstate(all="ignore"):
            worst = float(
                np.nan_to_num(np.where(step > 0, error / np.where(step > 0, step, 1), error), nan=np.inf).max()
            )
        why = "rounding is off by half a step at most, and the step of a token is its largest value over 127"
        verdicts.append(ExerciseVerdict("values x scales", f"off by {worst:.2f} steps", "0.50", why, worst <= 0.501))
    return Solution("a scale for each token", tuple(verdicts))


@cache
def _bench() -> OperationBench:
    return open_bench()


def hidden_fault(x: np.ndarray, gain: np.ndarray, epsilon: float) -> np.ndarray:
    result: np.ndarray = x / (np.sqrt(np.mean(x**2, axis=-1, keepdims=True)) + epsilon) * gain
    return result


def check_hidden(answer: Callable[..., Any], bench: OperationBench, ids: Sequence[int]) -> Solution:
    """Exercise 3: a wrong RMSNorm that changes no greedy token of a text, and that a comparison of tensors finds."""
    x = np.random.default_rng(18).standard_normal((1, 2, 8)).astype(np.float32)
    given = np.asarray(answer(x, np.ones(8, np.float32), 1e-5))
    if given.shape != x.shape:
        return Solution("a fault that hides", problem=f"the output has shape {given.shape}, the input {x.shape}")
    found = bench.compare_norms(replace(RMS_NORM, kernel=answer), ids)
    worst = max(found.norms, key=lambda name: found.norms[name])
    return Solution(
        "a fault that hides",
        (
            ExerciseVerdict(
                "greedy tokens",
                f"{found.same_tokens:.0%} the same",
                "100% the same",
                "the fault has to be smaller than the distance between the first two logits, everywhere",
                found.same_tokens == 1,
            ),
            ExerciseVerdict(
                "the norm that differs most",
                f"{worst}, by {found.norms[worst]:.1e}",
                f"more than {EXACT:g}",
                "within the tolerance there is no fault: look where a norm's input is smallest",
                found.norms[worst] > EXACT,
            ),
        ),
    )


def _context() -> dict[str, Any]:
    return {"bench": _bench(), "ids": IDS}


def _off(found: np.ndarray, exact: np.ndarray) -> float:
    if found.shape != exact.shape or not np.isfinite(found).all():
        return float("inf")
    largest = float(np.abs(exact).max())
    return float(np.abs(found - exact).max()) / (largest or 1.0)


def _per_tensor(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    scale = np.abs(x).max() / 127
    return np.rint(x / scale).astype(np.int8), np.full((len(x), 1), scale)


def _truncated(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    scales = np.maximum(np.abs(x).max(-1, keepdims=True), 1e-9) / 127
    return (x / scales).astype(np.int8), scales


def _per_channel(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    scales = np.abs(x).max(0, keepdims=True) / 127
    return np.rint(x / scales).astype(np.int8), scales


def _inverted(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    values, scales = custom_operations.quantize_per_token(x)
    return values, 1 / scales


def _still_floats(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    values, scales = custom_operations.quantize_per_token(x)
    return values.astype(np.float32), scales


def _mean_of_all(x: np.ndarray, gain: np.ndarray, epsilon: float) -> np.ndarray:
    result: np.ndarray = x / np.sqrt((x**2).mean() + epsilon) * gain
    return result


EXERCISES: tuple[Exercise, ...] = (
    Exercise(
        number="16-1",
        title="RMSNorm as a kernel",
        kind="compute",
        minutes=5,
        check=check_rms_norm,
        solution=rms_norm,
        also=(custom_operations.rms_norm,),
        wrong=(
            Wrong(NORM_MISTAKES["epsilon is forgotten"], "epsilon is there"),
            Wrong(NORM_MISTAKES["the mean goes over the tokens"], "the mean goes over the last axis"),
            Wrong(NORM_MISTAKES["the mean is subtracted (LayerNorm)"], "RMSNorm subtracts no mean"),
            Wrong(_mean_of_all, "for each token apart"),
            Wrong(hidden_fault, "below the root"),
        ),
    ),
    Exercise(
        number="16-2",
        title="A scale for each token",
        kind="compute",
        minutes=5,
        check=check_quantize,
        solution=quantize_per_token,
        also=(custom_operations.quantize_per_token,),
        wrong=(
            Wrong(_per_tensor, "off by"),
            Wrong(_truncated, "half a step"),
            Wrong(_per_channel, "each token has a scale"),
            Wrong(_inverted, "off by"),
            Wrong(_still_floats, "float32"),
        ),
    ),
    Exercise(
        number="16-3",
        title="A fault that hides",
        kind="break",
        minutes=10,
        check=check_hidden,
        solution=hidden_fault,
        also=(NORM_MISTAKES["epsilon is forgotten"],),
        row="the tokens are right, a tensor is not",
        wrong=(
            Wrong(custom_operations.rms_norm, "there is no fault"),
            Wrong(NORM_MISTAKES["the gain is left out"], "smaller than the distance"),
            Wrong(NORM_MISTAKES["the mean goes over the tokens"], "smaller than the distance"),
            Wrong(lambda x, gain, epsilon: x.mean(-1), "has shape"),
        ),
        context=_context,
    ),
)
