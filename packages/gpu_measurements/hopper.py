"""End-to-end serving measured for this project on one and two NVIDIA H200: latency and throughput, by users.

A closed loop inside vLLM's process: no HTTP, no tokenizer. ``data/README.md`` says more, and what cannot be claimed.
"""

import csv
from dataclasses import dataclass
from functools import cache

from gpu_measurements.captures import HOPPER_DIR
from gpu_measurements.captures import hopper_origin as origin
from serving_base.errors import UsageError

PATH = HOPPER_DIR / "serving.csv"
WHOLE = ("isl", "osl", "users", "requests")


@dataclass(frozen=True)
class ServingPoint:
    """``users`` requests in flight, each of ``isl`` tokens in and ``osl`` out; clock and power of one GPU."""

    isl: int
    osl: int
    users: int
    requests: int
    ttft_ms_p50: float
    ttft_ms_p99: float
    tpot_ms_p50: float
    tpot_ms_p99: float
    output_tokens_per_s: float
    sm_mhz_p50: float
    power_w_p50: float


def serving(run: str, *, isl: int = 1024) -> dict[int, ServingPoint]:
    """The points of a run such as "8b-fp8", by users. :class:`UsageError` names the runs and lengths that there are."""
    points = {point.users: point for name, point in _points() if (name, point.isl) == (run, isl)}
    if not points:
        known = sorted({f"{name} with isl {point.isl}" for name, point in _points()})
        raise UsageError(f"no serving run {run} with isl {isl}", fix=f"use one of: {', '.join(known)}")
    return points


@cache
def _points() -> list[tuple[str, ServingPoint]]:
    with PATH.open(encoding="utf-8", newline="") as file:
        return [(row.pop("run"), ServingPoint(**_figures(row))) for row in csv.DictReader(file)]


def _figures(row: dict[str, str]) -> dict[str, int]:
    # float where the field is one; the annotation is the narrower of the two
    return {name: (int if name in WHOLE else float)(text) for name, text in row.items()}  # type: ignore[misc]


__all__ = ["ServingPoint", "origin", "serving"]
