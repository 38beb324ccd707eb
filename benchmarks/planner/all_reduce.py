"""The all-reduce law with no more ways than the measured sizes tell apart."""

from collections.abc import Callable, Iterator, Sequence
from statistics import linear_regression

from benchmarks.planner import tables as t
from benchmarks.planner.solve import chip, cost, fit
from serving_planner.cost_model.operations import AllReduceLaw, Chip

WAYS = ("one_shot", "two_shot", "nccl")
TRIED = (("nccl",), ("one_shot", "nccl"), ("two_shot", "nccl"), WAYS)  # messages of a GiB go over NCCL everywhere
LOW, HIGH = (1.0, 0.01), (200.0, 1.0)  # microseconds, efficiency
SHOWN_BY = 3  # sizes: a way that is the fastest at fewer leaves its two constants, or itself, to chance
BETTER = 0.95  # of the cost without it: what a further way must reach, or it is left out
Points = list[tuple[float, Callable[[AllReduceLaw], float]]]


def points(gpu: str, engine: str, gpus: int) -> Points:
    """(measured us, law -> predicted us), by rising message."""
    at = chip(gpu)
    return [(us, lambda law, size=size: law.us(size, at)) for size, us in sizes(gpu, engine, gpus)]  # type: ignore[misc]


def sizes(gpu: str, engine: str, gpus: int) -> list[tuple[int, float]]:
    """(bytes, us) from 4 KiB on, by rising message."""
    return sorted((size, us) for size, us in t.all_reduce(gpu, engine, gpus).items() if size >= 4096)


def all_reduce_law(gpu: str, engine: str, gpus: int) -> AllReduceLaw | None:
    """The best law of those whose every way is the fastest at ``SHOWN_BY`` sizes or more.

    A way that never wins is in no prediction: its constants would be what the optimizer left, another on each
    processor. Of laws that fit alike, the one with fewer ways, and of those the first.
    """
    measured = sizes(gpu, engine, gpus)
    if not measured:
        return None
    at, given = chip(gpu), points(gpu, engine, gpus)
    laws = [_fitted(ways, gpus, measured, at, given) for ways in TRIED]
    shown = [law for law in laws if min(wins(law, measured, at).values()) >= SHOWN_BY]
    best = shown[0]
    for law in shown[1:]:
        if cost(law, given) < BETTER * cost(best, given):
            best = law
    return best


def wins(law: AllReduceLaw, measured: Sequence[tuple[int, float]], at: Chip) -> dict[str, int]:
    """At how many sizes each way that the law has is the fastest."""
    fastest = [min(law.ways(size, at).items(), key=lambda way: way[1])[0] for size, _ in measured]
    return {name: fastest.count(name) for name in law.ways(measured[0][0], at)}


def _fitted(
    ways: Sequence[str], gpus: int, measured: Sequence[tuple[int, float]], at: Chip, given: Points
) -> AllReduceLaw:
    """From the best of all starts that give each way a run of neighbouring sizes."""
    starts = [_start(ways, gpus, runs, at) for runs in _runs(measured, len(ways))]
    start = min(starts, key=lambda law: cost(law, given))
    names = [f"{way}_{what}" for way in ways for what in ("us", "efficiency")]
    left_out = {name: value for name, value in _nothing().items() if name not in names}
    low, high = [value for _ in ways for value in LOW], [value for way in ways for value in _most(way, gpus)]
    return fit(AllReduceLaw, [getattr(start, name) for name in names], low, high, given, gpus=gpus, **left_out)


def _most(way: str, gpus: int) -> tuple[float, float]:
    """A switch that adds up takes the message once, where a ring takes 2 (p - 1) / p of it."""
    return HIGH[0], 2 * (gpus - 1) / gpus if way == "nccl" else HIGH[1]


def _nothing() -> dict[str, float]:
    law = AllReduceLaw(2)
    return {f"{way}_{what}": getattr(law, f"{way}_{what}") for way in WAYS for what in ("us", "efficiency")}


def _runs(measured: Sequence[tuple[int, float]], count: int) -> Iterator[list[Sequence[tuple[int, float]]]]:
    """Every division of the sizes into ``count`` runs of ``SHOWN_BY`` or more."""
    if count == 1:
        yield [measured]
        return
    for end in range(SHOWN_BY, len(measured) - SHOWN_BY * (count - 1) + 1):
        for rest in _runs(measured[end:], count - 1):
            yield [measured[:end], *rest]


def _start(ways: Sequence[str], gpus: int, runs: Sequence[Sequence[tuple[int, float]]], at: Chip) -> AllReduceLaw:
    """A straight line through each run, within the bounds."""
    constants = {}
    for way, run in zip(ways, runs, strict=True):
        unit = AllReduceLaw(gpus, **{f"{way}_us": 0.0})
        slope, start_us = linear_regression([unit.us(size, at) for size, _ in run], [us for _, us in run])
        constants[f"{way}_us"] = _inside(start_us, 0)
        constants[f"{way}_efficiency"] = _inside(1 / slope if slope > 0 else HIGH[1], 1)
    return AllReduceLaw(gpus, **constants)


def _inside(value: float, which: int) -> float:
    """Off the bounds by a little, as least squares wants its start."""
    return min(max(value, 1.01 * LOW[which]), 0.99 * HIGH[which])
