"""Which way to serve: TP x PP x replicas x precision on an instance, ranked by cost within a service target.

Arrivals are Poisson: an open loop is the only load at which a target can be stated, a closed one slows down with the
engine. Every way is first judged in closed form (means), then the best are simulated at their percentile until the top
of the list is simulated; their engine settings are chosen on the way.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from itertools import product

from serving_base.errors import UsageError
from serving_base.facts.instances import Instance, instance
from serving_base.facts.variants import variant
from serving_planner.analysis.cost import price_of
from serving_planner.case import Case, changed, parse_case
from serving_planner.resolved import Asked, Share, ask
from serving_planner.search.candidates import Way, latencies_ms
from serving_planner.search.target import Choices, Rejected, Target
from serving_planner.simulator.arrivals import open_loop
from serving_planner.simulator.result import Served
from serving_planner.simulator.scheduler import simulate
from serving_planner.simulator.steady_state import Point

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
    ways: list[Way] = []
    rejected: list[Rejected] = []
    variant(target.model)
    for name in names:
        for way in _candidates(target, instance(name), prices):
            if isinstance(way, Way):
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


def _candidates(target: Target, machine: Instance, prices: Mapping[str, float]) -> Iterator[Way | Rejected]:
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
            asked = ask(parse_case(wanted))
        except UsageError as error:
            why = f"{error.what}: {error.why}"
            yield Rejected(instance=machine.name, tp=tp, pp=pp, weights=weights, kv=kv, why=why)
            continue
        point = _most(asked, target)
        if point is not None:  # once more, as the GPUs run at that load: power limits slow them down
            asked = ask(changed(asked.case, rate=point.requests_per_s * asked.case.replicas))
            point = _most(asked, target)
        if point is not None:
            yield Way(machine, asked, price_of(asked.case), target, point)
        else:
            yield _rejected(asked.case, f"{_missed(target)} even with one request at a time: {_unloaded(asked)}")


def _rejected(case: Case, why: str) -> Rejected:
    return Rejected(instance=case.instance or "", tp=case.tp, pp=case.pp, weights=case.weights, kv=case.kv, why=why)


# In closed form


def _most(asked: Asked, target: Target) -> Point | None:
    """One replica at the highest rate at which its means keep the target; None if it never does."""
    replica = asked.replica()
    most = replica.most_requests_per_s
    least_level, most_level = 0.0, replica.full.in_flight

    def keeps(point: Point) -> bool:
        calm = point.requests_per_s <= BUSIEST * most and point.in_flight <= point.capacity
        return calm and _within(target, 1e3 * point.ttft_s, 1e3 * point.tpot_s)

    best = replica.loaded(UNLOADED * most_level)
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


def _unloaded(asked: Asked) -> str:
    point = asked.replica().closed(1)
    return f"TTFT {1e3 * point.ttft_s:.0f} ms, TPOT {1e3 * point.tpot_s:.1f} ms"


# Simulated


def _simulate(way: Way) -> bool:
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


def _serve(asked: Asked, rate: float) -> Served:
    case, share = asked.case, Share(1, rate=rate)
    workload = open_loop(
        rate, case.isl, case.osl, requests=asked.requests(share), ratio=case.length_ratio, seed=case.seed
    )
    return simulate(asked.model.seconds, workload, asked.limits, asked.policy, asked.client)


def _keeps(served: Served, target: Target) -> bool:
    return served.steady is not None and _within(target, *latencies_ms(served, target.percentile))


def _settings(asked: Asked, point: Point, target: Target) -> tuple[Asked, Point]:
    """The smallest step and KV share that carry what the largest would, almost; and what they carry."""
    best, most = asked, point
    for kv_fraction, tokens in product(KV_FRACTIONS, STEP_SIZES):
        try:
            other = ask(changed(asked.case, kv_fraction=kv_fraction, max_num_tokens=tokens))
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
