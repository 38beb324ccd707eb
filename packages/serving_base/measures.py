"""What planner and benchmark measure alike: steps, percentiles, cost. Standard library only: servers import it, too."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

Phase = Literal["context", "generation", "padding"]
MILLION = 1_000_000
SECONDS_PER_HOUR = 3600


@dataclass(frozen=True)
class StepRecord:
    """What one engine step did: the phase of every request that held a slot, and the tokens that it gave.

    A slot in phase ``padding`` belongs to a request of a static batch that has finished before its neighbours.
    """

    step: int
    seconds: float
    phases: Mapping[int, Phase]
    new_tokens: Mapping[int, int]


def quantile(ordered: Sequence[float], share: float) -> float:
    """The value below which ``share`` (0 to 1) of sorted values lie, linear between neighbours; NaN of nothing.

    As numpy does by default.
    """
    if not ordered:
        return math.nan
    position = share * (len(ordered) - 1)
    low = math.floor(position)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (position - low) * (ordered[high] - ordered[low])


def usd_per_million(usd_per_hour: float, tokens_per_s: float) -> float:
    """USD for a million tokens at that rate = usd_per_hour / (3600 x tokens_per_s) x 10^6."""
    return usd_per_hour / (SECONDS_PER_HOUR * tokens_per_s) * MILLION
