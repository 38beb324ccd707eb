"""Measured for this project on one and two NVIDIA H200: serving, all-reduces and attention kernels.

``data/README.md`` says how, and what cannot be claimed.
"""

import csv
from dataclasses import dataclass
from functools import cache
from typing import Literal

from gpu_measurements.captures import HOPPER_DIR
from gpu_measurements.captures import hopper_origin as origin
from serving_base.errors import UsageError

SERVING = HOPPER_DIR / "serving.csv"
ALL_REDUCES = HOPPER_DIR / "all_reduce.csv"
ALL_REDUCE_ORIGIN = "measured on two NVIDIA H200, 2026-11-20"
ATTENTION = HOPPER_DIR / "attention.csv"
COPY_BYTES_PER_S = 4.255e12
"""What that GPU read and wrote together in a stream copy, in the same study."""
PASSES = 4
"""How often plain attention moves its scores: writes them, reads them for softmax, writes that, reads it again."""
WHOLE = ("isl", "osl", "users", "requests")

Phase = Literal["prefill", "decode"]


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
    """The points of a run such as "8b-fp8", by users: a closed loop inside vLLM's process, no HTTP, no tokenizer.

    :class:`UsageError` names the runs and lengths that there are.
    """
    points = {point.users: point for name, point in _points() if (name, point.isl) == (run, isl)}
    if not points:
        known = sorted({f"{name} with isl {point.isl}" for name, point in _points()})
        raise UsageError(f"no serving run {run} with isl {isl}", fix=f"use one of: {', '.join(known)}")
    return points


@cache
def _points() -> list[tuple[str, ServingPoint]]:
    with SERVING.open(encoding="utf-8", newline="") as file:
        return [(row.pop("run"), ServingPoint(**_figures(row))) for row in csv.DictReader(file)]


def _figures(row: dict[str, str]) -> dict[str, int]:
    # float where the field is one; the annotation is the narrower of the two
    return {name: (int if name in WHOLE else float)(text) for name, text in row.items()}  # type: ignore[misc]


@dataclass(frozen=True)
class AllReducePoint:
    """One size of a BF16 tensor; microseconds. ``custom_us``: None where vLLM's own kernel does not go."""

    payload_bytes: int
    nccl_us: float
    custom_us: float | None

    @property
    def best_us(self) -> float:
        return min(self.nccl_us, self.custom_us or self.nccl_us)


@cache
def measured_all_reduces() -> tuple[AllReducePoint, ...]:
    """The points, smallest first."""
    with ALL_REDUCES.open(encoding="utf-8", newline="") as file:
        return tuple(_all_reduce(row) for row in csv.DictReader(file))


def _all_reduce(row: dict[str, str]) -> AllReducePoint:
    custom = row["custom_us"]
    return AllReducePoint(int(row["bytes"]), float(row["nccl_us"]), float(custom) if custom else None)


def link_us(payload_bytes: float, link_bytes_per_s: float, ranks: int = 2) -> float:
    """Microseconds of a ring's bytes, 2 (p - 1) / p of the payload, at the link's full speed in one direction."""
    return 1e6 * 2 * (ranks - 1) / ranks * payload_bytes / link_bytes_per_s


@dataclass(frozen=True)
class AttentionPoint:
    """One layer's attention. ``tokens``: of each of ``batch`` sequences; ``kernel``: sdpa_flash, sdpa_cudnn or fa3."""

    model: str
    phase: str
    batch: int
    tokens: int
    kernel: str
    dtype: str
    us: float


@cache
def measured_attention(model: str, phase: Phase) -> tuple[AttentionPoint, ...]:
    """The points of ``8b`` or ``70b`` (heads of one GPU), in the file's order: one NVIDIA H200, 2026-11-20."""
    with ATTENTION.open(encoding="utf-8", newline="") as file:
        rows = [row for row in csv.DictReader(file) if (row["model"], row["phase"]) == (model, phase)]
    return tuple(
        AttentionPoint(
            model, phase, int(row["batch"]), int(row["tokens"]), row["kernel"], row["dtype"], float(row["us"])
        )
        for row in rows
    )


def plain_floor_us(tokens: int, heads: int, batch: int = 1, value_bytes: int = 2) -> float:
    """Microseconds that plain attention of one layer cannot go below: its scores, moved at the speed of a copy.

    ``PASSES`` x batch x heads x tokens^2 x bytes / copy rate. Planned: the products and all launches come on top.
    """
    return 1e6 * PASSES * batch * heads * tokens**2 * value_bytes / COPY_BYTES_PER_S


__all__ = [
    "ALL_REDUCE_ORIGIN",
    "AllReducePoint",
    "AttentionPoint",
    "ServingPoint",
    "link_us",
    "measured_all_reduces",
    "measured_attention",
    "origin",
    "plain_floor_us",
    "serving",
]
