"""Chapter 12: values that its checks accept, and values that they refuse."""

from types import SimpleNamespace as Thing
from typing import Any

from chapter_cells import Case
from ptq import metrics
from ptq.formats import formats

WINDOWS = 8
GRIDS = {"E4M3": [0.0, 2**-9, 1.0, 1.125, 416.0, 448.0], "E5M2": [0.0, 2**-16, 1.0, 1.25, 49152.0, 57344.0]}
TOP = {"E4M3": 448.0, "E5M2": 57344.0}
STEP = {"E4M3": 0.125, "E5M2": 0.25}


def windows(mean: float) -> tuple[float, ...]:
    """Windows around ``mean`` that a bootstrap is sure of."""
    return tuple(mean * (1 + 0.01 * (index % 3 - 1)) for index in range(WINDOWS))


def scored(kl: float, loss: float = 4.0) -> metrics.WindowScores:
    return metrics.WindowScores((loss,) * WINDOWS, windows(kl), (0.9,) * WINDOWS)


KL = {
    "FP8": 0.007,
    "FP8 + FP8 KV": 0.012,
    "INT8 weight-only": 0.0005,
    "INT8": 0.028,
    "INT8 SmoothQuant": 0.0073,
    "INT4 AWQ": 0.05,
    "W4A8 AWQ": 0.056,
    "INT4 GPTQ": 0.033,
    "NVFP4": 0.08,
}
CHANGE = {"FP8": metrics.Interval(0.002, -0.001, 0.005)}


def bench(change: Any = None, **other: float) -> dict[str, Any]:
    """What the table cell leaves; ``other``: KL of a format, its name with ``_`` for a space."""
    kl = KL | {name.replace("_", " "): value for name, value in other.items()}
    return {
        "metrics": metrics,
        "results": {name: Thing(scores=scored(value)) for name, value in kl.items()},
        "kl": {name: metrics.bootstrap(windows(value)) for name, value in kl.items()},
        "change": change or CHANGE,
        "guess": "FP8",
        "first": "INT8 weight-only",
    }


BENCH = bench()
SMOOTH = Thing(
    factor=[2.0, 4.0, 8.0], activation=[2.0, 4.0, 8.0], smoothed=[1.0, 1.0, 1.0], formula=lambda a: [2.0, 4.0, 8.0]
)
OTHER_FORMULA = Thing(**{**vars(SMOOTH), "formula": lambda a: [2.0, 4.0, 4.0]})
STILL_THERE = Thing(**{**vars(SMOOTH), "smoothed": [1.0, 1.0, 5.0]})


def published(before: float = 70.0) -> dict[str, Any]:
    """NVIDIA's table, with this share of right answers in 16 bits."""
    rows = [{"model": "a", "format": "FP8", "FP16": before, "after": 70.0, "loss, %": 0.1}]
    return {"playbook": Thing(laboratory=Thing(published_mmlu=lambda: rows), table=lambda rows: None)}


def apart(**changed: tuple[float, float]) -> dict[str, Any]:
    """Costs of the parts: ``fp8`` and ``int8`` (weights, activations), ``cache`` (keys, values)."""
    parts = {"fp8": (0.003, 0.0044), "int8": (0.0005, 0.0277), "cache": (0.0046, 0.0009)} | changed
    (fp8_w, fp8_a), (int8_w, int8_a), (keys, values) = parts["fp8"], parts["int8"], parts["cache"]
    found = {
        "FP8 + FP8 KV": {"weights": fp8_w, "activations": fp8_a, "keys": keys, "values": values},
        "INT8": {"weights": int8_w, "activations": int8_a},
    }
    every = {name: {kind: scored(kl) for kind, kl in kinds.items()} for name, kinds in found.items()}
    return {"metrics": metrics, "apart": every}


def layers(first: float = 0.02, other: float = 0.002, fp8: float = 0.0015) -> dict[str, Any]:
    per_layer = {
        "q, k, v": [windows(0.0003), windows(0.0003)],
        "down": [windows(first), windows(other)],
        "down, FP8": [windows(fp8), windows(0.0003)],
    }
    return {"metrics": metrics, "layers": range(2), "per_layer": per_layer, "products": ["q, k, v", "down"]}


def sets(
    fp8: tuple[float, float, float] = (0.007, 0.0071, 0.3),
    smooth: tuple[float, float, float] = (0.007, 0.024, 4.7),
    sizes: tuple[float, float, float, float] = (0.0070, 0.0072, 0.12, 0.007),
) -> dict[str, Any]:
    names = ("real texts", "random tokens", "one repeated token")
    wrong = {
        name: dict(zip(names, map(windows, values), strict=True))
        for name, values in (("FP8", fp8), ("INT8 SmoothQuant", smooth))
    }
    few_fp8, many_fp8, few_smooth, many_smooth = map(windows, sizes)
    by_size = {"FP8": [few_fp8, many_fp8], "INT8 SmoothQuant": [few_smooth, many_smooth]}
    return {"metrics": metrics, "wrong": wrong, "sizes": [1, 16], "by_size": by_size}


def runs(**changed: set[str]) -> dict[str, Any]:
    """The cell's names, with GPUs that run what ``changed`` says."""
    able = table(changed)
    fake = {name: Thing(runs_on=lambda gpu, name=name: name in able[gpu]) for name in formats()}
    course = Thing(laboratory=Thing(formats=lambda: fake, known=lambda name: name))
    return {"gpus": ("a100", "h100"), "playbook": course}


def table(changed: dict[str, set[str]]) -> dict[str, set[str]]:
    old = {"int8_wo", "int8_sq", "int4_awq", "int4_gptq"}
    return {"a100": old, "h100": old | {"fp8", "w4a8_awq"}} | changed


NUMBERS = {"grids": GRIDS, "top": TOP, "step": STEP}
INFINITE = {"top": TOP | {"E4M3": 480.0}}
SPILLED = {"step": STEP | {"E4M3": 0.25}}
GUESS = {"guess": "FP8"}
NEW = {gpu: names | {"nvfp4"} for gpu, names in table({}).items()}

CASES = [
    Case("12-06", "E4M3 ends at 448 and E5M2 at 57344", NUMBERS, INFINITE),
    Case("12-06", "E4M3 halves the step near 1", NUMBERS, SPILLED),
    Case("12-11", "the guess is a format of the bench", GUESS, {"guess": "INT9"}),
    Case("12-17", "FP8 costs less than 2 %", BENCH, bench(change={"FP8": metrics.Interval(0.01, 0.0, 0.03)})),
    Case("12-17", "FP8 moves more than weight-only INT8", BENCH, bench(FP8=0.001)),
    Case("12-17", "INT8 activations with one scale move more than FP8", BENCH, bench(INT8=0.008)),
    Case("12-17", "SmoothQuant repairs them", BENCH, bench(INT8_SmoothQuant=0.025)),
    Case("12-17", "four bits move more than eight", BENCH, bench(W4A8_AWQ=0.012)),
    Case("12-17", "GPTQ moves less than AWQ", BENCH, bench(INT4_GPTQ=0.05)),
    Case("12-20", "modelopt's factors are the paper's", {"smooth": SMOOTH}, {"smooth": OTHER_FORMULA}),
    Case("12-20", "the outliers are gone", {"smooth": SMOOTH}, {"smooth": STILL_THERE}),
    Case("12-23", "in INT8 the activations cost over ten times", apart(), apart(int8=(0.01, 0.02))),
    Case("12-23", "in FP8 neither is ten times the other", apart(), apart(fp8=(0.001, 0.02))),
    Case("12-23", "in FP8 neither is ten times the other", apart(), apart(fp8=(0.02, 0.001))),
    Case("12-23", "an FP8 cache loses more by its keys", apart(), apart(cache=(0.001, 0.001))),
    Case("12-26b", "it costs INT8 more than any other product", layers(), layers(other=0.019)),
    Case("12-26b", "in FP8 that product costs less", layers(), layers(fp8=0.015)),
    Case("12-31", "FP8 takes random tokens for text", sets(), sets(fp8=(0.007, 0.02, 0.3))),
    Case("12-31", "SmoothQuant does not", sets(), sets(smooth=(0.007, 0.007, 4.7))),
    Case("12-31", "one repeated token breaks both", sets(), sets(fp8=(0.007, 0.007, 0.01))),
    Case("12-31", "one repeated token breaks both", sets(), sets(smooth=(0.007, 0.024, 0.01))),
    Case("12-31", "FP8 is calibrated by one text", sets(), sets(sizes=(0.02, 0.007, 0.12, 0.007))),
    Case("12-31", "SmoothQuant is not", sets(), sets(sizes=(0.007, 0.007, 0.008, 0.007))),
    Case("12-36", "MMLU's own error is larger", published(), published(before=99.0)),
    Case("12-39", "an A100 has no FP8", runs(), runs(a100={"fp8", "w4a8_awq"})),
    Case("12-39", "none of these runs NVFP4", runs(), runs(**NEW)),
]
