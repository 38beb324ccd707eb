"""From a case to its plan: memory, a simulated load test, its floor, the steady state, what binds, what it costs."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import cycle, islice
from typing import Any, cast

from serving_planner.case import Case, parse_case
from serving_planner.plans import (
    Binding,
    Floor,
    Latencies,
    MemoryGib,
    Plan,
    PlannedPercentiles,
    PriceUsed,
    Steady,
    cost_per_million,
    joules_per_token_at_most,
    price_of,
    warnings_of,
)
from serving_planner.replicas import NO_CLIENT, ResolvedCase, Share, resolve
from serving_planner.simulator.batching import ReplicaLimits
from serving_planner.simulator.result import Served, ServedRequest, cautions, percentile
from serving_planner.simulator.scheduler import simulate
from serving_planner.simulator.steady_state import Point

FULL = 0.95
"""Utilisation above which an open loop is bound by the engine and not by its arrivals."""
HOST_SHARE = 0.03
"""Of a step that the GPU waits for the host: above it, the host sets the pace."""
MORE_ROOM, GAIN = 1.25, 1.05
"""Room binds if a quarter more of it adds 5 % throughput."""


@dataclass(frozen=True)
class Run:
    """The simulated load test of one replica of ``share``; ``more`` requests of the test were not simulated."""

    share: Share
    served: Served
    more: int
    tokens_per_s: float
    requests_per_s: float


def plan(case: Case | None = None, **keys: Any) -> Plan:
    """The plan of a case, or of one with these ``keys``: a simulation of its load, beside the floor of the same load.

    :class:`~serving_base.errors.UsageError` if it does not fit, naming the nearest case that does.
    """
    asked = resolve(case or parse_case(keys))
    runs = [_run(asked, share) for share in asked.shares]
    floors = [_run(asked, share, floor=True) for share in asked.shares]
    state, price = steady_of(asked), price_of(asked.case)
    rate, requests_rate = _total(runs, lambda run: run.tokens_per_s), _total(runs, lambda run: run.requests_per_s)
    floor = _floor(asked, floors)
    latencies = _latencies(runs, single=asked.case.osl == 1)
    return Plan(
        memory_gib=MemoryGib(**asked.memory.gib()),
        kv_capacity_tokens=asked.memory.kv_capacity_tokens,
        max_concurrency=asked.memory.max_concurrency,
        **dict(latencies),
        output_tokens_per_s=rate,
        output_tokens_per_s_per_gpu=rate / asked.case.gpu_count,
        requests_per_s=requests_rate,
        floor=floor,
        binding_limit=state.binding_limit,
        share_of_floor=_share(asked, latencies, rate, floor),
        time_split=_time_split(asked, runs),
        joules_per_output_token_at_most=joules_per_token_at_most(asked.case, rate),
        cost_usd_per_million_output_tokens=_cost(price, rate),
        cost_usd_per_million_total_tokens=_cost(price, rate * _total_per_output(asked)),
        price=price,
        steady=state,
        simulated_concurrency=asked.concurrency,
        case=asked.case,
        warnings=warnings_of(asked, [run.served for run in runs]),
    )


def steady(case: Case) -> Steady:
    """The steady state of ``case`` in closed form, without a simulation: a hundred times faster, means only.

    What it leaves out: the start and the end of a test, and the convoys in which closed loops move (TTFT).
    """
    return steady_of(resolve(case))


def steady_of(asked: ResolvedCase) -> Steady:
    """As :func:`steady`, for a case of which the memory is known already."""
    points = [(share, asked.point(share)) for share in asked.shares]
    floors = [(share, asked.point(share, floor=True)) for share in asked.shares]
    tokens, most = (
        sum(share.replicas * point.output_tokens_per_s for share, point in side) for side in (points, floors)
    )
    requests = sum(share.replicas * point.requests_per_s for share, point in points)
    first, first_floor = points[0][1], floors[0][1]
    price = price_of(asked.case)

    def mean(value: Callable[[Point], float]) -> float:
        return sum(share.replicas * point.requests_per_s * value(point) for share, point in points) / requests

    in_time = first_floor.tpot_s / first.tpot_s if first.tpot_s else first_floor.ttft_s / first.ttft_s
    return Steady(
        in_flight=sum(share.replicas * point.in_flight for share, point in points),
        decoding=sum(share.replicas * point.decoding for share, point in points),
        ttft_ms=1e3 * mean(lambda point: point.ttft_s),
        tpot_ms=1e3 * mean(lambda point: point.tpot_s),
        request_latency_ms=1e3 * mean(lambda point: point.latency_s),
        requests_per_s=requests,
        output_tokens_per_s=tokens,
        output_tokens_per_s_per_gpu=tokens / asked.case.gpu_count,
        utilisation=first.utilisation,
        binding_limit=_binding(asked, points[0][0], first),
        share_of_floor=tokens / most if first.utilisation is None else in_time,
        cost_usd_per_million_output_tokens=_cost(price, tokens),
        cost_usd_per_million_total_tokens=_cost(price, tokens * _total_per_output(asked)),
    )


# The simulated test


def _run(asked: ResolvedCase, share: Share, *, floor: bool = False) -> Run:
    workload = asked.workload(share)
    if floor:
        served = simulate(asked.floor, workload, asked.limits, asked.policy, NO_CLIENT)
    else:
        served = simulate(asked.model.seconds, workload, asked.limits, asked.policy, asked.client)
        served = cautions(served, workload, asked.limits, asked.policy)
    mean_output = served.output_tokens / len(served.answers)
    more = max(0, asked.requests(share) - len(served.answers)) if served.steady else 0
    rate = _whole_test(served, more, mean_output)
    return Run(share, served, more, rate, rate / mean_output)


def _whole_test(served: Served, more: int, mean_output: float) -> float:
    """Output tokens/s of a test with ``more`` requests than were simulated: its steady part is longer by them."""
    if not more or served.steady is None:
        return served.output_tokens_per_s
    tokens = more * mean_output
    longer_s = tokens / served.steady.output_tokens_per_s
    return (served.output_tokens + tokens) / (served.makespan_s + longer_s)


def _total(runs: Iterable[Run], value: Callable[[Run], float]) -> float:
    return sum(run.share.replicas * value(run) for run in runs)


def _latencies(runs: Sequence[Run], *, single: bool) -> Latencies:
    """Of all requests of all replicas; ``single``: of answers of one token, which have no TPOT.

    Those that were not simulated are taken to be like the steady ones. Replicas that do the same count once where all
    do.
    """

    def over(of_answer: Callable[[ServedRequest], float]) -> PlannedPercentiles:
        values: list[float] = []
        for run in runs:
            own = [of_answer(answer) for answer in run.served.answers]
            if run.served.steady is not None and run.more:
                steady_ones = [of_answer(answer) for answer in run.served.steady.answers]
                own += islice(cycle(steady_ones), run.more)
            values += own * (run.share.replicas if len(runs) > 1 else 1)
        return PlannedPercentiles(**{f"p{at}": 1e3 * percentile(values, at) for at in (50, 90, 99)})

    return Latencies(
        ttft_ms=over(lambda answer: answer.ttft_s),
        tpot_ms=None if single else over(lambda answer: answer.tpot_s),
        request_latency_ms=over(lambda answer: answer.latency_s),
    )


def _floor(asked: ResolvedCase, runs: Sequence[Run]) -> Floor:
    rate = _total(runs, lambda run: run.tokens_per_s)
    return Floor(
        **dict(_latencies(runs, single=asked.case.osl == 1)),
        output_tokens_per_s=rate,
        output_tokens_per_s_per_gpu=rate / asked.case.gpu_count,
    )


def _share(asked: ResolvedCase, planned: Latencies, rate: float, floor: Floor) -> float:
    if asked.case.rate is None:
        return rate / floor.output_tokens_per_s
    if planned.tpot_ms is not None and floor.tpot_ms is not None:
        return floor.tpot_ms.p50 / planned.tpot_ms.p50
    return floor.ttft_ms.p50 / planned.ttft_ms.p50


def _time_split(asked: ResolvedCase, runs: Sequence[Run]) -> dict[str, float]:
    """Shares of the time of all replicas: of each operation in the steps that ran, and idle."""
    seconds: dict[str, float] = {}
    for run in runs:
        for steps in run.served.steps.values():
            parts = {name: time.seconds for name, time in asked.model.split(steps.mean_load).items()}
            scale = run.share.replicas * steps.seconds / sum(parts.values())
            for name, part in parts.items():
                seconds[name] = seconds.get(name, 0.0) + scale * part
        seconds["idle"] = seconds.get("idle", 0.0) + run.share.replicas * run.served.seconds_by_kind["idle"]
    total = sum(seconds.values())
    return {name: part / total for name, part in seconds.items() if part}


# What binds, what it costs


def _binding(asked: ResolvedCase, share: Share, point: Point) -> Binding:
    if point.utilisation is not None and point.utilisation < FULL:
        return "arrival_rate"
    if point.utilisation is not None or asked.case.concurrency == "max" or (share.concurrency or 0) > point.capacity:
        full = replace(share, rate=None, concurrency=point.capacity)
        roomy = replace(full, concurrency=int(MORE_ROOM * point.capacity) + 1)
        now = asked.point(full).requests_per_s
        if asked.point(roomy, limits=_roomier(asked.limits, point)).requests_per_s > GAIN * now:
            return "kv_cache" if point.by_memory else "batch_size"
    by_limit: dict[str, float] = {}
    for load, weight in point.kinds.loads:
        parts = asked.model.split(load)
        step_s = sum(time.seconds for time in parts.values())
        paced_by_host = parts["overhead"].seconds > HOST_SHARE * step_s  # what the GPU does then sets nothing
        for time in parts.values():
            limit = "overhead" if paced_by_host else time.limit
            by_limit[limit] = by_limit.get(limit, 0.0) + weight * time.seconds
    return cast("Binding", max(by_limit, key=lambda limit: by_limit[limit]))


def _roomier(limits: ReplicaLimits, point: Point) -> ReplicaLimits:
    if point.by_memory:
        return replace(limits, kv_capacity_tokens=int(MORE_ROOM * limits.kv_capacity_tokens))
    return replace(limits, max_batch_size=int(MORE_ROOM * limits.max_batch_size) + 1)


def _cost(price: PriceUsed | None, tokens_per_s: float) -> float | None:
    return cost_per_million(price.usd_per_hour if price else None, tokens_per_s)


def _total_per_output(asked: ResolvedCase) -> float:
    """Prompt and output tokens for each output token."""
    isl, osl = asked.mean_lengths
    return (isl + osl) / osl
