"""All-reduces measured for this project between two NVIDIA H200; ``data/README.md`` says how."""

import csv
from dataclasses import dataclass
from functools import cache

from gpu_measurements.captures import HOPPER_DIR

PATH = HOPPER_DIR / "all_reduce.csv"
ORIGIN = "measured on two NVIDIA H200, 2026-11-20"


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
    with PATH.open(encoding="utf-8", newline="") as file:
        return tuple(_point(row) for row in csv.DictReader(file))


def _point(row: dict[str, str]) -> AllReducePoint:
    custom = row["custom_us"]
    return AllReducePoint(int(row["bytes"]), float(row["nccl_us"]), float(custom) if custom else None)


def link_us(payload_bytes: float, link_bytes_per_s: float, ranks: int = 2) -> float:
    """Microseconds of a ring's bytes, 2 (p - 1) / p of the payload, at the link's full speed in one direction."""
    return 1e6 * 2 * (ranks - 1) / ranks * payload_bytes / link_bytes_per_s
