"""The exercises of the chapter on attention: which kernel runs, softmax in two parts, and a build that is refused.

A stub raises ``NotImplementedError``; that is reported loudly and stops nothing. Any right solution passes.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from course_exercises.exercise import Exercise, Wrong
from course_exercises.verdict import ExerciseVerdict, Solution
from trtllm_check.attention import AttentionCase, context_kernel, generation_kernel

Part = tuple[float, float, float]
TOLERANCE = 1e-9
SCORES: Mapping[str, tuple[Sequence[float], Sequence[float]]] = {
    "small scores": ((0.1, 0.7, -0.2), (0.4, 0.0)),
    "the larger score comes second": ((1.0, 2.0), (5.0, 3.0)),
    "the larger score comes first": ((9.0, 2.0), (1.0, 3.0)),
    "scores whose exp is too large for a float": ((1000.0, 998.0), (1001.0,)),
    "scores whose exp is zero": ((-1000.0, -1001.0), (-999.0,)),
}


def part_of(scores: Sequence[float], values: Sequence[float]) -> Part:
    """What one tile keeps of its scores: their maximum, the sum of exp(score - maximum), and that sum with values."""
    top = max(scores)
    weights = [math.exp(score - top) for score in scores]
    return top, sum(weights), sum(weight * value for weight, value in zip(weights, values, strict=True))


def check_merge(merge: Callable[[Part, Part], Part]) -> Solution:
    """Exercise 2: ``merge`` joins what two tiles kept. Any maximum will do, if sum and weighted sum belong to it."""
    title = "softmax in two parts"
    verdicts = []
    for given, (first, second) in SCORES.items():
        values = [1.0 + place for place in range(len(first) + len(second))]
        _, total, weighted = part_of([*first, *second], values)
        parts = part_of(first, values[: len(first)]), part_of(second, values[len(first) :])
        try:
            _, your_total, your_weighted = merge(*parts)
            yours = your_weighted / your_total
        except NotImplementedError as error:
            return Solution(title, problem=str(error))
        except (TypeError, ValueError, ArithmeticError) as error:
            return Solution(title, problem=f"merge, {given}: {type(error).__name__}: {error}")
        right = math.isclose(yours, weighted / total, rel_tol=TOLERANCE)
        why = "both sums have to be scaled to the larger maximum before they are added"
        verdicts.append(ExerciseVerdict(given, f"{yours:.6g}", f"{weighted / total:.6g}", why, right))
    return Solution(title, tuple(verdicts))


LOADS: Mapping[str, tuple[str, AttentionCase]] = {
    "a": ("context", AttentionCase(gpu="h100", head_size=80, release="0.8.0")),
    "b": ("context", AttentionCase(gpu="h100", head_size=80, release="0.9.0")),
    "c": (
        "context",
        AttentionCase(
            gpu="a100", fp8_weights=True, kv_cache="fp8", use_fp8_context_fmha=True, release="0.12.0", queries_per_kv=8
        ),
    ),
    "d": ("generation", AttentionCase(gpu="h100", queries_per_kv=4, release="0.10.0")),
    "e": ("generation", AttentionCase(gpu="h100", queries_per_kv=8, kv_cache="fp8", fp8_weights=True)),
}
"""Letter -> the phase, and the case that the chapter describes."""
ANSWERS = ("FMHA", "unfused MHA", "MMHA", "XQA", "refused")


def check_kernels(chosen: Mapping[str, str]) -> Solution:
    """Exercise 1: which kernel runs in each case, or that the build refuses it; upper and lower case are equal."""
    title = "which kernel runs"
    verdicts = []
    for letter, (phase, case) in LOADS.items():
        yours = chosen.get(letter, "").strip()
        if not yours:
            return Solution(title, problem=f"case {letter} has no kernel yet")
        if yours.lower() not in [answer.lower() for answer in ANSWERS]:
            return Solution(title, problem=f"case {letter}: {yours!r} is none of {', '.join(ANSWERS)}")
        found = context_kernel(case) if phase == "context" else generation_kernel(case)
        right = yours.lower() == found.kernel.lower()
        verdicts.append(ExerciseVerdict(f"case {letter}", yours, found.kernel, found.reason, right))
    return Solution(title, tuple(verdicts))


KEPT = ("gpu", "head_size", "queries_per_kv", "release")
"""What a repair may not change: the machine, the model, the release."""


def check_refused(answer: Mapping[str, Mapping[str, Any]]) -> Solution:
    """Exercise 3: two builds as fields of an :class:`AttentionCase`; the first is refused, the second runs fused."""
    title = "a build that is refused"
    if not all(answer.get(word) for word in ("broken", "mended")):
        return Solution(title, problem="one is still empty")
    broken, mended = AttentionCase(**answer["broken"]), AttentionCase(**answer["mended"])
    changed = [name for name in AttentionCase.model_fields if getattr(broken, name) != getattr(mended, name)]
    verdicts = []
    for word, case, expected in (("broken", broken, "refused"), ("mended", mended, "FMHA")):
        found = context_kernel(case)
        verdicts.append(ExerciseVerdict(word, found.kernel, expected, found.reason, found.kernel == expected))
    why = "a repair keeps the machine, the model and the release, and changes what is wrong"
    right = len(changed) == 1 and changed[0] not in KEPT
    verdicts.append(ExerciseVerdict("what differs", ", ".join(changed) or "nothing", "one flag or format", why, right))
    return Solution(title, tuple(verdicts))


def merge(first: tuple[float, float, float], second: tuple[float, float, float]) -> tuple[float, float, float]:
    top = max(first[0], second[0])
    scales = [math.exp(part[0] - top) for part in (first, second)]
    total = first[1] * scales[0] + second[1] * scales[1]
    return top, total, first[2] * scales[0] + second[2] * scales[1]


def _by_one_scale(first: Part, second: Part) -> Part:
    if first[0] < second[0]:
        first, second = second, first
    gap = math.exp(second[0] - first[0])
    return first[0], first[1] + gap * second[1], first[2] + gap * second[2]


def _without_scaling(first: Part, second: Part) -> Part:
    return max(first[0], second[0]), first[1] + second[1], first[2] + second[2]


def _scaled_to_zero(first: Part, second: Part) -> Part:
    scales = [math.exp(part[0]) for part in (first, second)]
    return 0.0, first[1] * scales[0] + second[1] * scales[1], first[2] * scales[0] + second[2] * scales[1]


def _scaled_the_wrong_way(first: Part, second: Part) -> Part:
    top = max(first[0], second[0])
    scales = [math.exp(top - part[0]) for part in (first, second)]
    return top, first[1] * scales[0] + second[1] * scales[1], first[2] * scales[0] + second[2] * scales[1]


ON_AMPERE = {"gpu": "a100", "fp8_weights": True, "kv_cache": "fp8", "use_fp8_context_fmha": True}
FLAG_OFF = {"use_fp8_context_fmha": False}
HALF = {"gpu": "h100", "fp8_weights": True, "use_fp8_context_fmha": True}
REFUSED = {"broken": ON_AMPERE, "mended": ON_AMPERE | FLAG_OFF}
KERNELS = {"a": "unfused MHA", "b": "FMHA", "c": "refused", "d": "MMHA", "e": "XQA"}
EXERCISES = (
    Exercise(
        number="11-1",
        title="Which kernel runs?",
        kind="predict",
        minutes=5,
        check=check_kernels,
        solution=KERNELS,
        also=({letter: kernel.upper() for letter, kernel in KERNELS.items()},),
        wrong=(
            Wrong(dict.fromkeys(LOADS, ""), "case a has no kernel yet"),
            Wrong(KERNELS | {"a": "FlashAttention"}, "is none of"),
            Wrong(KERNELS | {"a": "FMHA"}, "case a: yours FMHA, expected unfused MHA"),
            Wrong(KERNELS | {"b": "unfused MHA"}, "case b: yours unfused MHA, expected FMHA"),
            Wrong(KERNELS | {"c": "FMHA"}, "case c: yours FMHA, expected refused"),
            Wrong(KERNELS | {"d": "XQA"}, "case d: yours XQA, expected MMHA"),
            Wrong(KERNELS | {"e": "MMHA"}, "case e: yours MMHA, expected XQA"),
        ),
    ),
    Exercise(
        number="11-2",
        title="Softmax in two parts",
        kind="compute",
        minutes=15,
        check=check_merge,
        solution=merge,
        also=(_by_one_scale,),
        wrong=(
            Wrong(_without_scaling, "scaled to the larger maximum"),
            Wrong(_scaled_to_zero, "OverflowError"),
            Wrong(_scaled_the_wrong_way, "small scores: yours"),
            Wrong(lambda first, second: None, "TypeError"),
        ),
    ),
    Exercise(
        number="11-3",
        title="A build that is refused",
        kind="break",
        minutes=5,
        check=check_refused,
        solution=REFUSED,
        also=({"broken": HALF, "mended": HALF | {"kv_cache": "fp8"}}, {"broken": HALF, "mended": HALF | FLAG_OFF}),
        wrong=(
            Wrong({"broken": {}, "mended": {}}, "one is still empty"),
            Wrong(REFUSED | {"broken": ON_AMPERE | FLAG_OFF}, "broken: yours FMHA, expected refused"),
            Wrong(REFUSED | {"mended": ON_AMPERE}, "sm80 has no FP8 context FMHA"),
            Wrong(REFUSED | {"mended": ON_AMPERE | {"gpu": "h100"}}, "keeps the machine"),
            Wrong(REFUSED | {"mended": {"gpu": "a100"}}, "expected one flag or format"),
            Wrong(REFUSED | {"mended": {"gpu": "a100", "fp8": True}}, "fp8"),
        ),
        row="the build says that FP8 context FMHA is not supported",
    ),
)
