"""Attention kernels measured for this project on one NVIDIA H200; ``data/README.md`` says how."""

import csv
from dataclasses import dataclass
from functools import cache
from typing import Literal

from gpu_measurements.captures import HOPPER_DIR

PATH = HOPPER_DIR / "attention.csv"
ORIGIN = "measured on one NVIDIA H200, 2026-11-20"
COPY_BYTES_PER_S = 4.255e12
"""What that GPU read and wrote together in a stream copy, in the same study."""
PASSES = 4
"""How often plain attention moves its scores: writes them, reads them for softmax, writes that, reads it again."""

Phase = Literal["prefill", "decode"]


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
    """The points of ``8b`` or ``70b`` (heads of one GPU), in the file's order."""
    with PATH.open(encoding="utf-8", newline="") as file:
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
