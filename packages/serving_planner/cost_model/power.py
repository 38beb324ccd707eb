"""The power limit: compute-bound work takes longer on a GPU that is kept busy with it than in the burst of a benchmark.

A GPU at its power limit lowers its clock. Work that waits for memory does not feel it; products of many tokens do.
With the share u of time that a GPU computes at full clock, its mean power would be u P + (1 - u) ``other_w``, where P
follows from the measured ``slowdown`` of a GPU that only computes; what is above ``limit_w`` is paid in time. The limit
works on the mean over tenths of a second, so short steps of either kind share it.
"""

import math
from functools import cache
from pathlib import Path

from pydantic import Field

from serving_base.facts.gpus import Gpu
from serving_base.record import Record
from serving_base.yaml_files import read_yaml

POWER_FILE = Path(__file__).parents[1] / "data" / "power.yml"


class PowerLimit(Record):
    """What ``data/power.yml`` says of a GPU."""

    limit_w: float = Field(gt=0)
    slowdown: float = Field(ge=1, description="time of compute-bound work, sustained over burst")
    other_w: float = Field(gt=0, description="power while it waits for memory")
    time_per_watt: float = Field(gt=0, description="exponent: time goes with wanted over given power")
    source: str

    def at(self, compute_share: float) -> float:
        """Slowdown of compute-bound work that takes ``compute_share`` of the time at full clock; 1: none."""
        given = self.limit_w - (1 - compute_share) * self.other_w
        wanted = compute_share * self.limit_w * self.slowdown ** (1 / self.time_per_watt)
        time = math.exp(self.time_per_watt * math.log(wanted / given)) if wanted else 1.0
        return min(self.slowdown, max(1.0, time))


@cache
def _limits() -> dict[str, PowerLimit]:
    return {name: PowerLimit(**entry) for name, entry in read_yaml(POWER_FILE)["gpus"].items()}


def slowdown(gpu: Gpu, compute_share: float) -> float:
    """As :meth:`PowerLimit.at`; 1 for a GPU of which no sustained times are known."""
    limit = _limits().get(gpu.name)
    return limit.at(compute_share) if limit else 1.0
