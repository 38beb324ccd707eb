"""One way to serve while it is judged, and the line that it becomes in the list."""

import math
from dataclasses import dataclass

from serving_base.facts.instances import Instance
from serving_planner.analysis.cost import usd_per_million
from serving_planner.planned import PriceUsed
from serving_planner.resolved import Asked
from serving_planner.search.target import Choice, Target
from serving_planner.simulator.result import Served, percentile
from serving_planner.simulator.steady_state import Point

MARGIN = 1.25
"""max_batch_size over the most requests that were in flight at once in the simulation."""


@dataclass
class Way:
    """A split and a precision on an instance. Rates are requests per second.

    ``point``: one replica at the most that it carries within the target, in closed form. Once simulated:
    ``simulated_rate``, the same by simulation, and ``served``, the simulation of the load that it would get.
    """

    machine: Instance
    asked: Asked
    price: PriceUsed | None
    target: Target
    point: Point
    simulated_rate: float | None = None
    served: Served | None = None

    @property
    def replica_rate(self) -> float:
        """What one replica carries within the target."""
        return self.simulated_rate or self.point.requests_per_s

    @property
    def most(self) -> float:
        """What one instance carries within the target."""
        return self.asked.case.replicas * self.replica_rate

    @property
    def instances(self) -> int:
        """How many it takes for the target's rate."""
        return 1 if self.target.rate is None else math.ceil(self.target.rate / self.most - 1e-9)

    @property
    def load(self) -> float:
        """What each of those instances gets."""
        return self.most if self.target.rate is None else self.target.rate / self.instances

    @property
    def replica_load(self) -> float:
        return self.load / self.asked.case.replicas

    @property
    def cost(self) -> float | None:
        """USD per million output tokens at that load."""
        usd_per_hour = self.price.usd_per_hour if self.price else None
        return usd_per_million(usd_per_hour, self.load * self.asked.mean_lengths[1])

    @property
    def rank(self) -> tuple[bool, float, float]:
        """Cheapest first; among equals the one with most room; without a price by what a GPU carries."""
        return self.cost is None, self.cost or 0.0, -self.most / self.machine.gpus

    def choice(self) -> Choice:
        """The line of the list."""
        case, load, cost = self.asked.case, self.load, self.cost
        isl, osl = self.asked.mean_lengths
        used: float | None = None
        if self.served is not None:
            ttft_ms, tpot_ms = latencies_ms(self.served, self.target.percentile)
            at_once = MARGIN * most_at_once(self.served)
            used = self.served.peak_kv_tokens / max(1, self.served.kv_capacity_tokens)
        else:
            point = self.point if self.target.rate is None else self.asked.replica().open(self.replica_load)
            ttft_ms, tpot_ms, at_once = 1e3 * point.ttft_s, 1e3 * point.tpot_s, 2 * MARGIN * point.in_flight
        return Choice(
            instance=self.machine.name,
            gpu=case.gpu,
            gpus=case.gpu_count,
            tp=case.tp,
            pp=case.pp,
            replicas=case.replicas,
            weights=case.weights,
            kv=case.kv,
            instances=self.instances,
            requests_per_s=load,
            most_requests_per_s=self.most,
            ttft_ms=ttft_ms,
            tpot_ms=tpot_ms,
            output_tokens_per_s=load * osl,
            cost_usd_per_million_output_tokens=cost,
            cost_usd_per_million_total_tokens=cost * osl / (isl + osl) if cost is not None else None,
            price=self.price,
            max_num_tokens=case.max_num_tokens,
            max_batch_size=min(case.max_batch_size, _power_of_two(at_once)),
            kv_fraction=case.kv_fraction,
            kv_used=used,
            simulated=self.served is not None,
        )


def latencies_ms(served: Served, percent: int) -> tuple[float, float]:
    """TTFT and TPOT at a percentile, of the requests that met a full engine: neither the start nor the end."""
    answers = served.steady.answers if served.steady else served.answers
    ttft = percentile([answer.ttft_s for answer in answers], percent)
    return 1e3 * ttft, 1e3 * percentile([answer.tpot_s for answer in answers], percent)


def most_at_once(served: Served) -> int:
    """The most requests that were in flight at the same time."""
    ends = [(answer.end_s, -1) for answer in served.answers]
    now = most = 0
    for _, change in sorted([(answer.send_s, 1) for answer in served.answers] + ends):
        now += change
        most = max(most, now)
    return most


def _power_of_two(least: float) -> int:
    return 1 << math.ceil(math.log2(max(1.0, least)))
