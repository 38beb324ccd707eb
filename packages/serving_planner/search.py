"""Which way to serve: TP x PP x replicas x precision on an instance, ranked by cost within a service target.

Arrivals are Poisson: an open loop is the only load at which a target can be stated, a closed one slows down with the
engine. Every way is first judged in closed form (means), then the best are simulated at their percentile until the top
of the list is simulated; their engine settings are chosen on the way.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Literal

from pydantic import Field

from serving_base.errors import UsageError
from serving_base.facts.gpus import Instance, instance
from serving_base.facts.models import variant
from serving_base.record import Record
from serving_planner.case import Case, Engine, changed, parse_case
from serving_planner.plans import Figure, PriceUsed, cost_per_million, price_of
from serving_planner.replicas import ResolvedCase, Share, resolve
from serving_planner.simulator.arrivals import open_loop
from serving_planner.simulator.result import Served, percentile
from serving_planner.simulator.scheduler import simulate
from serving_planner.simulator.steady_state import Point

Percentile = Literal[50, 90, 99]


class Target(Record):
    """What a service promises: times that so many percent of the requests keep, and the load it must carry.

    ``tpot_ms`` is each request's mean time between two tokens (what AIPerf calls ITL). No ``rate``: the best is looked
    for. Lengths as in a case: nominal, drawn uniformly from [``length_ratio`` x nominal, nominal].
    """

    model: str
    isl: int = Field(ge=1, description="prompt tokens, nominal")
    osl: int = Field(ge=1, description="answer tokens, nominal")
    ttft_ms: float | None = Field(None, gt=0, description="time to first token, at most")
    tpot_ms: float | None = Field(None, gt=0, description="time per output token, at most")
    percentile: Percentile = Field(90, description="of the requests that keep both")
    rate: float | None = Field(None, gt=0, description="requests per second, Poisson")
    length_ratio: float = Field(0.8, gt=0, le=1)
    engine: Engine = "tensorrt-llm"


class Choice(Record):
    """One way to meet a target. Rates and costs at ``requests_per_s`` of each of ``instances`` machines.

    ``most_requests_per_s``: what one instance carries within the target. ``ttft_ms`` and ``tpot_ms`` are at the
    target's percentile where ``simulated``, else means of the closed form, which are lower. ``max_num_tokens``,
    ``max_batch_size`` and ``kv_fraction`` are proposals for the engine; ``kv_used``: peak share of the KV cache.
    """

    instance: str
    gpu: str
    gpus: int
    tp: int
    pp: int
    replicas: int
    weights: str
    kv: str
    instances: int
    requests_per_s: Figure
    most_requests_per_s: Figure
    ttft_ms: Figure
    tpot_ms: Figure
    output_tokens_per_s: Figure
    cost_usd_per_million_output_tokens: Figure | None
    cost_usd_per_million_total_tokens: Figure | None
    price: PriceUsed | None
    max_num_tokens: int
    max_batch_size: int
    kv_fraction: float
    kv_used: Figure | None
    simulated: bool


class Rejected(Record):
    """A way that does not meet the target, or does not fit."""

    instance: str
    tp: int
    pp: int
    weights: str
    kv: str
    why: str


class Choices(Record):
    """``ranked``: the cheapest first; those that were simulated stand before those that were only estimated."""

    target: Target
    ranked: tuple[Choice, ...]
    rejected: tuple[Rejected, ...]
    warnings: tuple[str, ...] = ()


MARGIN = 1.25
"""max_batch_size over the most requests that were in flight at once in the simulation."""


@dataclass
class Candidate:
    """A split and a precision on an instance. Rates are requests per second.

    ``point``: one replica at the most that it carries within the target, in closed form. Once simulated:
    ``simulated_rate``, the same by simulation, and ``served``, the simulation of the load that it would get.
    """

    machine: Instance
    asked: ResolvedCase
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
        return cost_per_million(usd_per_hour, self.load * self.asked.mean_lengths[1])

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


PRECISIONS = (("fp8", "fp8"), ("fp8", "bf16"), ("bf16", "bf16"))
STEP_SIZES = (2048, 4096, 8192, 16384)
KV_FRACTIONS = (0.9, 0.95)
WORTH_IT = 1.03
"""A larger step or KV share is proposed only where it carries so much more."""
BUSIEST = 0.97
"""Utilisation of a plan at most: above it a queue takes minutes to reach its mean, and a target cannot be checked."""
UNLOADED = 1e-3
SIMULATED = 3
MOST_SIMULATED = 6
ROUNDS = 14
TRIES = 5
CLOSE = 1.04
"""Rates so near each other are not told apart by a simulation of this length."""


def choose(target: Target, instances: str | Sequence[str], usd_per_hour: Mapping[str, float] | None = None) -> Choices:
    """The ways to meet ``target`` on each of ``instances``, the cheapest per million output tokens first.

    ``usd_per_hour``: prices of whole instances, by name; the others are the dated ones that ship. Without a price a
    way is ranked by output tokens per GPU, behind those with one. :class:`UsageError` for an unknown model or instance.
    """
    names = [instances] if isinstance(instances, str) else list(instances)
    prices = {name.strip().lower().removeprefix("ml."): usd for name, usd in (usd_per_hour or {}).items()}
    ways: list[Candidate] = []
    rejected: list[Rejected] = []
    variant(target.model)
    for name in names:
        for way in _candidates(target, instance(name), prices):
            if isinstance(way, Candidate):
                ways.append(way)
            else:
                rejected.append(way)
    simulated = 0
    while ways and simulated < MOST_SIMULATED:
        ways.sort(key=lambda way: way.rank)
        following = next((way for way in ways[:SIMULATED] if way.served is None), None)
        if following is None:
            break
        simulated += 1
        if not _simulate(following):
            ways.remove(following)
            rejected.append(_rejected(following.asked.case, f"{_missed(target)} in the simulation at any useful load"))
    ways.sort(key=lambda way: (way.served is None, way.rank))
    unpriced = sorted({way.machine.name for way in ways if way.price is None})
    warnings = [f"no price is known for {name}: give its usd_per_hour" for name in unpriced]
    warnings += dict.fromkeys(warning for way in ways for warning in way.asked.case.warnings)
    return Choices(
        target=target,
        ranked=tuple(way.choice() for way in ways),
        rejected=tuple(rejected),
        warnings=tuple(warnings),
    )


def _candidates(target: Target, machine: Instance, prices: Mapping[str, float]) -> Iterator[Candidate | Rejected]:
    sizes = [size for size in (1, 2, 4, 8, 16) if machine.gpus % size == 0]
    for (weights, kv), tp, pp in product(PRECISIONS, sizes, sizes):
        if machine.gpus % (tp * pp):
            continue
        wanted = {
            "model": target.model,
            "gpu": machine.gpu,
            "gpus": machine.gpus,
            "instance": machine.name,
            "tp": tp,
            "pp": pp,
            "weights": weights,
            "kv": kv,
            "isl": target.isl,
            "osl": target.osl,
            "engine": target.engine,
            "length_ratio": target.length_ratio,
            "rate": target.rate or 1.0,
            "usd_per_hour": prices.get(machine.name),
        }
        try:
            asked = resolve(parse_case(wanted))
        except UsageError as error:
            why = f"{error.what}: {error.why}"
            yield Rejected(instance=machine.name, tp=tp, pp=pp, weights=weights, kv=kv, why=why)
            continue
        point = _most(asked, target)
        if point is not None:  # once more, as the GPUs run at that load: power limits slow them down
            asked = resolve(changed(asked.case, rate=point.requests_per_s * asked.case.replicas))
            point = _most(asked, target)
        if point is not None:
            yield Candidate(machine, asked, price_of(asked.case), target, point)
        else:
            yield _rejected(asked.case, _broken(asked, target))


def _rejected(case: Case, why: str) -> Rejected:
    return Rejected(instance=case.instance or "", tp=case.tp, pp=case.pp, weights=case.weights, kv=case.kv, why=why)


# In closed form


def _most(asked: ResolvedCase, target: Target) -> Point | None:
    """One replica at the highest rate at which its means keep the target; None if it never does."""
    replica = asked.replica()
    most = replica.most_requests_per_s
    least_level, most_level = 0.0, replica.full.in_flight

    def keeps(point: Point) -> bool:
        calm = point.requests_per_s <= BUSIEST * most and point.in_flight <= point.capacity
        return calm and _within(target, 1e3 * point.ttft_s, 1e3 * point.tpot_s)

    best = _least(asked)
    if not keeps(best):
        return None
    for _ in range(ROUNDS):
        level = (least_level + most_level) / 2
        point = replica.loaded(level)
        if keeps(point):
            least_level, best = level, point
        else:
            most_level = level
    return best


def _within(target: Target, ttft_ms: float, tpot_ms: float) -> bool:
    return ttft_ms <= (target.ttft_ms or math.inf) and tpot_ms <= (target.tpot_ms or math.inf)


def _missed(target: Target) -> str:
    times = (("TTFT", target.ttft_ms), ("TPOT", target.tpot_ms))
    given = " and ".join(f"{name} {most:g} ms" for name, most in times if most is not None)
    return f"{given or 'the load'} is not kept"


def _least(asked: ResolvedCase) -> Point:
    """One replica at the least load that is looked at: a thousandth of the sequences of a full engine decode."""
    replica = asked.replica()
    return replica.loaded(UNLOADED * replica.full.in_flight)


def _broken(asked: ResolvedCase, target: Target) -> str:
    """Which of the target's times the means break at the least load, with that load and digits that show it."""
    point = _least(asked)
    times = (("TTFT", 1e3 * point.ttft_s, target.ttft_ms), ("TPOT", 1e3 * point.tpot_s, target.tpot_ms))
    over = [(name, ms, most) for name, ms, most in times if most is not None and ms > most]
    load = f"even at the least load: with {point.requests_per_s:.2g} requests/s"
    if not over:
        return f"{_missed(target)} {load} its queue grows"
    promise = " and ".join(f"{name} {most:g} ms" for name, _, most in over)
    means = " and ".join(f"{name} is {_above(ms, most)} ms" for name, ms, most in over)
    return f"{promise} {'are' if over[1:] else 'is'} not kept {load} the mean {means}"


def _above(ms: float, most: float) -> str:
    """``ms`` with one digit, or with as many as it takes to read as more than ``most``."""
    return next((text for digits in range(1, 7) if float(text := f"{ms:.{digits}f}") > most), repr(ms))


# Simulated


def _simulate(way: Candidate) -> bool:
    """Settle the engine's settings and the highest rate at which the percentiles keep the target; False if none."""
    target = way.target
    way.asked, way.point = _settings(way.asked, way.point, target)
    rate, low, high, served = way.point.requests_per_s, 0.0, math.inf, None
    busiest = BUSIEST * way.asked.replica().most_requests_per_s
    for _ in range(TRIES):
        tried = _serve(way.asked, rate)
        if _keeps(tried, target):
            low, served = rate, tried
        else:
            high = rate
        rate = 1.1 * low if high == math.inf else (low + high) / 2 if low else 0.8 * high
        if rate < CLOSE * low or rate > busiest:
            break
    if served is None:
        return False
    way.simulated_rate = low
    way.served = served if target.rate is None else _serve(way.asked, way.replica_load)
    return True


def _serve(asked: ResolvedCase, rate: float) -> Served:
    case, share = asked.case, Share(1, rate=rate)
    workload = open_loop(
        rate, case.isl, case.osl, requests=asked.requests(share), ratio=case.length_ratio, seed=case.seed
    )
    return simulate(asked.model.seconds, workload, asked.limits, asked.policy, asked.client)


def _keeps(served: Served, target: Target) -> bool:
    return served.steady is not None and _within(target, *latencies_ms(served, target.percentile))


def _settings(asked: ResolvedCase, point: Point, target: Target) -> tuple[ResolvedCase, Point]:
    """The smallest step and KV share that carry what the largest would, almost; and what they carry."""
    best, most = asked, point
    for kv_fraction, tokens in product(KV_FRACTIONS, STEP_SIZES):
        try:
            other = resolve(changed(asked.case, kv_fraction=kv_fraction, max_num_tokens=tokens))
        except UsageError:
            continue
        if len(other.memory.warnings) > len(asked.memory.warnings):
            continue
        carried = _most(other, target)
        if carried is None:
            continue
        gain = carried.requests_per_s / most.requests_per_s
        fewer = (kv_fraction, tokens) < (best.case.kv_fraction, best.case.max_num_tokens)
        if gain > WORTH_IT or (fewer and gain * WORTH_IT >= 1):
            best, most = other, carried
    return best, most
