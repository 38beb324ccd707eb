"""The exercises of the chapter on kernels: names read, a step's gain from a share, a kernel that no pattern knows.

The classifier, the captures and their tables say what is right; nothing of it is stored here.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from functools import cache
from typing import TYPE_CHECKING

from pydantic import ValidationError

from course_exercises.exercise import Exercise, Wrong
from course_exercises.verdict import ExerciseVerdict, Solution
from gpu_measurements.sources import UNCLASSIFIED, Pattern, classify, patterns

if TYPE_CHECKING:
    import pandas as pd

NAMES: Mapping[str, str] = {
    "a": "nvjet_sm90_qqtst_128x256_64x4_2x1_v_bz_coopA_TNT",
    "b": "userbuffers_fp16_sum_inplace_gpu_mc_rmsnorm_quant",
    "c": "void tensorrt_llm::kernels::mmha::masked_multihead_attention_kernel<__nv_bfloat16, __nv_fp8_e4m3>",
    "d": "fmha_v2_flash_attention_bf16_64_128_S_128_causal_tma_ws_sm90_kernel",
    "e": "void tensorrt_llm::kernels::generalRmsNorm<__nv_bfloat16, __nv_fp8_e4m3>",
}


def check_names(chosen: Mapping[str, str]) -> Solution:
    """Exercise 1: the class of each kernel, by its name alone."""
    title = "read five names"
    verdicts = []
    for letter, name in NAMES.items():
        yours, found = chosen.get(letter, "").strip().lower(), classify(name)
        if not yours:
            return Solution(title, problem=f"kernel {letter} has no class yet")
        if yours not in patterns().classes:
            return Solution(title, problem=f"kernel {letter}: {yours!r} is none of {', '.join(patterns().classes)}")
        also = f", and the same kernel does {found.fused}" if found.fused else ""
        why = f"{found.regex.pattern} matches it{also}"
        verdicts.append(
            ExerciseVerdict(f"kernel {letter}", yours, found.kernel_class, why, yours == found.kernel_class)
        )
    return Solution(title, tuple(verdicts))


STEPS = (("8b", "prefill4096"), ("8b", "decode1"), ("8b", "decode128"), ("70b-tp2", "decode32"))
FACTORS = (2.0, 1.0, 1e9)
"""FP8's arithmetic, nothing, and GEMMs that take no time at all."""


def check_gain(gain: Callable[[float, float, float], float]) -> Solution:
    """Exercise 2: ``gain(step_us, gemm_us, factor)``: how many times faster a step is, if its GEMMs are ``factor``."""
    verdicts = []
    for model, step in STEPS:
        total, gemms = _microseconds(f"{model}-bf16", step)
        really = total / _microseconds(f"{model}-fp8", step)[0]
        for factor in FACTORS:
            yours, expected = float(gain(total, gemms, factor)), total / (total - gemms + gemms / factor)
            why = f"the GEMMs are {gemms / total:.0%} of the BF16 step, and the rest stays"
            if factor == FACTORS[0]:
                why += f"; the FP8 capture is {really:.2f} times faster"
            right = math.isclose(yours, expected, rel_tol=1e-3)
            given = f"{model}, {step}, GEMMs {factor:g} times as fast"
            verdicts.append(ExerciseVerdict(given, f"{yours:.2f}", f"{expected:.2f}", why, right))
    return Solution("the gain of a step", tuple(verdicts))


@cache
def _microseconds(run: str, step: str) -> tuple[float, float]:
    """Of one step: all kernels, and the GEMMs of its layers."""
    from gpu_measurements.captures import hopper_table
    from gpu_measurements.tables import by_class

    by = by_class(hopper_table(run, step))["us_per_step"]
    return float(by.sum()), float(by["gemm"])


KNOWN_SHARE = 0.9
"""What chapter 09 demands of a capture: nine tenths of its time are classified."""


def check_unknown(answer: Mapping[str, str]) -> Solution:
    """Exercise 3: the GEMMs of a capture get ``name``, which nothing knows; a pattern of the other fields finds them.

    The other fields are those of a line of ``patterns.yml``: class, regex, evidence.
    """
    title = "a kernel that nobody knows"
    name = answer.get("name", "").strip()
    if not name:
        return Solution(title, problem="the kernel has no name yet")
    known = classify(name)
    verdicts = [
        ExerciseVerdict(
            f"the name {name}",
            known.kernel_class,
            UNCLASSIFIED,
            f"{known.regex.pattern} knows it",
            known.kernel_class == UNCLASSIFIED,
        )
    ]
    table = _renamed(name)
    before = 1 - float(table.loc[table["class"] == UNCLASSIFIED, "share"].sum())
    verdicts.append(
        ExerciseVerdict(
            "time that is classified",
            f"{before:.0%}",
            f"less than {KNOWN_SHARE:.0%}",
            "only a name that no pattern knows lowers it",
            before < KNOWN_SHARE,
        )
    )
    try:
        pattern = Pattern.model_validate({key: text for key, text in answer.items() if key != "name"})
    except ValidationError as error:
        lines = "; ".join(f"{'.'.join(map(str, one['loc']))}: {one['msg']}" for one in error.errors())
        return Solution(title, problem=f"this is no line of patterns.yml: {lines}")
    return Solution(title, (*verdicts, *_judged(pattern, name, table)))


def _judged(pattern: Pattern, name: str, table: pd.DataFrame) -> list[ExerciseVerdict]:
    others = [kernel for kernel in table["kernel"] if kernel != name and pattern.regex.search(str(kernel))]
    missed = table["kernel"].map(lambda kernel: pattern.regex.search(str(kernel)) is None)
    left = float(table.loc[missed & (table["class"] == UNCLASSIFIED), "share"].sum())
    return [
        ExerciseVerdict(
            "with your pattern",
            f"{1 - left:.0%}",
            f"at least {KNOWN_SHARE:.0%}",
            f"the expression is searched in {name}",
            1 - left >= KNOWN_SHARE,
        ),
        ExerciseVerdict("its class", pattern.kernel_class, "gemm", "they are GEMMs", pattern.kernel_class == "gemm"),
        ExerciseVerdict(
            "other kernels that it takes",
            str(len(others)),
            "0",
            f"the first pattern that matches decides, and yours also takes {', '.join(others[:1])[:60]}",
            not others,
        ),
        ExerciseVerdict(
            "its evidence",
            pattern.evidence.strip() or "none",
            "where you read the name",
            "a pattern without a source is a guess",
            bool(pattern.evidence.strip()),
        ),
    ]


@cache
def _renamed(name: str) -> pd.DataFrame:
    """The table of an FP8 decode step whose layer GEMMs have another name."""
    from gpu_measurements.captures import hopper_capture
    from gpu_measurements.sources import read_capture
    from gpu_measurements.tables import kernel_table

    events = read_capture(hopper_capture("8b-fp8", "decode32"))
    names = [name if classify(kernel).kernel_class == "gemm" else kernel for kernel in events["kernel"]]
    return kernel_table(events.assign(kernel=names), phase="decode")


def gain(step_us: float, gemm_us: float, factor: float) -> float:
    share = gemm_us / step_us
    return 1 / (1 - share + share / factor)


CLASSES = {"a": "gemm", "b": "all_reduce", "c": "decode_attention", "d": "context_attention", "e": "norm"}
UNKNOWN = {"name": "acme_fp8_matmul_v2", "class": "gemm", "regex": "^acme_.*matmul", "evidence": "this exercise"}
EXERCISES = (
    Exercise(
        number="09-1",
        title="Read five names",
        kind="predict",
        minutes=5,
        check=check_names,
        solution=CLASSES,
        wrong=(
            Wrong(dict.fromkeys(NAMES, ""), "kernel a has no class yet"),
            Wrong(CLASSES | {"a": "matmul"}, "is none of gemm"),
            Wrong(CLASSES | {"b": "norm"}, "the same kernel does norm, quantize"),
            Wrong(CLASSES | {"c": "context_attention"}, "kernel c: yours context_attention, expected decode_attention"),
            Wrong(CLASSES | {"e": "quantize"}, "the same kernel does quantize"),
        ),
    ),
    Exercise(
        number="09-2",
        title="From a share to a gain",
        kind="compute",
        minutes=10,
        check=check_gain,
        solution=gain,
        also=(lambda step_us, gemm_us, factor: step_us / (step_us - gemm_us * (1 - 1 / factor)),),
        wrong=(
            Wrong(lambda step_us, gemm_us, factor: factor, "and the rest stays"),
            Wrong(lambda step_us, gemm_us, factor: 1 + gemm_us / step_us * (factor - 1), "the FP8 capture is"),
            Wrong(lambda step_us, gemm_us, factor: gemm_us / step_us * factor, "GEMMs 1 times as fast: yours 0."),
            Wrong(lambda step_us, gemm_us, factor: 1 - gemm_us / step_us + gemm_us / step_us / factor, "yours 0."),
        ),
    ),
    Exercise(
        number="09-3",
        title="A kernel that nobody knows",
        kind="break",
        minutes=5,
        check=check_unknown,
        solution=UNKNOWN,
        also=(UNKNOWN | {"regex": re.escape("acme_fp8_matmul")},),
        wrong=(
            Wrong(dict.fromkeys(UNKNOWN, ""), "the kernel has no name yet"),
            Wrong(UNKNOWN | {"name": "nvjet_qqtst_acme"}, "knows it"),
            Wrong(UNKNOWN | {"regex": "."}, "and yours also takes"),
            Wrong(UNKNOWN | {"regex": "bcme"}, "is searched in"),
            Wrong(UNKNOWN | {"class": "norm"}, "its class: yours norm, expected gemm"),
            Wrong(UNKNOWN | {"evidence": " "}, "without a source is a guess"),
            Wrong(UNKNOWN | {"regex": "("}, "no line of patterns.yml: regex"),
        ),
        row="`nine tenths of the time are classified` fails",
    ),
)
