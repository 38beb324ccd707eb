"""What a case asks of each replica: its limits, its step times and its requests."""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache, cached_property
from pathlib import Path

from serving_base.errors import UsageError
from serving_base.facts.gpus import instance
from serving_base.record import Record
from serving_base.yaml_files import read_yaml
from serving_planner.case import Case, changed
from serving_planner.cost_model.laws import slowdown
from serving_planner.cost_model.memory import Memory, memory
from serving_planner.cost_model.step import StepLoad, StepModel, step_model
from serving_planner.simulator.arrivals import Workload, closed_loop, open_loop, open_loop_count
from serving_planner.simulator.batching import ClientOverhead, Policy, ReplicaLimits, client, policy
from serving_planner.simulator.steady_state import Point, Replica

HARNESS_FILE = Path(__file__).parent / "data" / "harness.yml"
NO_CLIENT = ClientOverhead()
REQUESTS_EACH = 10
"""Requests of a closed loop for each in flight, as public harnesses send them (InferenceMAX: CONC x 10)."""
LEAST_REQUESTS, MOST_REQUESTS = 50, 20_000
"""Of a closed loop, and to simulate of an open one."""
ENOUGH_REQUESTS, ENOUGH_WAITING = 2560, 600
"""Of a closed loop to simulate at most: all of a usual test, since the requests of its start keep step with each other
for many turns; fewer where some of them wait for a place, which ends that."""
WAVES = 4
"""Turns of all requests in the engine that the steady part has at least, behind the burst and those sent meanwhile."""
MOST_IN_FLIGHT = 8192
"""Of a replica. What waits beyond it only waits."""


class _Count(Record):
    isl: int
    osl: int
    requests: int


@dataclass(frozen=True)
class Share:
    """``replicas`` of the same load: so many requests in flight, or so many per second, each."""

    replicas: int
    concurrency: int | None = None
    rate: float | None = None


@dataclass(frozen=True)
class ResolvedCase:
    """A case with everything that follows from it before anything is simulated."""

    case: Case
    memory: Memory
    model: StepModel
    limits: ReplicaLimits
    policy: Policy
    client: ClientOverhead
    shares: tuple[Share, ...]

    @cached_property
    def floor(self) -> Callable[[StepLoad], float]:
        """``model.floor_seconds`` from its parts, each computed once: they depend on the step's tokens, on the rows of
        the output head, and in proportion on the context and on the prompts' pairs.
        """
        of = self.model.floor_seconds
        each_context_token = of(StepLoad(1, 2)) - of(StepLoad(1, 1))
        each_pair = of(StepLoad(0, 0, 1, 2, 0)) - of(StepLoad(0, 0, 1, 1, 0))

        @cache
        def tokens_s(tokens: int) -> float:
            return of(StepLoad(prefill_tokens=tokens))

        @cache
        def rows_s(rows: int) -> float:
            return of(StepLoad(prefill_tokens=1, prefill_sequences=rows)) - of(StepLoad(prefill_tokens=1))

        def seconds(load: StepLoad) -> float:
            count, prompt = load.decode_sequences, load.prefill_tokens
            if not count and not prompt:
                return 0.0
            parts_s = tokens_s(count + prompt) + rows_s(count + load.prefill_sequences)
            return parts_s + each_context_token * load.decode_context_tokens + each_pair * load.prefill_pairs

        return seconds

    @property
    def mean_lengths(self) -> tuple[float, float]:
        """Mean tokens of prompt and answer: uniform from ``length_ratio`` x nominal to nominal."""
        isl, osl, ratio = self.case.isl, self.case.osl, self.case.length_ratio
        return (max(1, int(isl * ratio)) + isl) / 2, (max(1, int(osl * ratio)) + osl) / 2

    @property
    def concurrency(self) -> int | None:
        """Requests in flight over all replicas; None for an open loop."""
        if self.case.rate is not None:
            return None
        return sum(share.replicas * (share.concurrency or 0) for share in self.shares)

    def replica(self, *, floor: bool = False, limits: ReplicaLimits | None = None) -> Replica:
        """For closed forms, with the planned times or with those of the floor."""
        seconds = self.floor if floor else self.model.seconds
        isl, osl = self.mean_lengths
        return Replica(seconds, isl, osl, limits or self.limits, self.policy, NO_CLIENT if floor else self.client)

    def point(self, share: Share, *, floor: bool = False, limits: ReplicaLimits | None = None) -> Point:
        """The steady state of one replica of ``share``."""
        replica = self.replica(floor=floor, limits=limits)
        if share.rate is not None:
            return replica.open(share.rate)
        return replica.closed(share.concurrency or 1)

    @property
    def compute_share(self) -> float:
        """Share of the time in which the first replica's GPUs are bound by their arithmetic, in the steady state."""
        point = self.point(self.shares[0])
        compute_s = total_s = 0.0
        for load, steps in point.kinds.loads:
            for time in self.model.split(load).values():
                total_s += steps * time.seconds
                compute_s += steps * time.seconds * (time.limit == "compute")
        return min(1.0, point.utilisation or 1.0) * compute_s / total_s if total_s else 0.0

    def requests(self, share: Share) -> int:
        """How many requests one replica of ``share`` gets in the whole test."""
        case = self.case
        if case.requests is not None:
            return math.ceil(case.requests / sum(one.replicas for one in self.shares))
        if share.rate is not None:
            return open_loop_count(share.rate, self.replica().closed(1).latency_s)
        if case.concurrency == "max":
            return math.ceil(saturation_requests(case.isl, case.osl) / case.replicas)
        return max(LEAST_REQUESTS, REQUESTS_EACH * (share.concurrency or 1))

    def workload(self, share: Share) -> Workload:
        """The requests that are simulated: of a long closed loop the start, the end, and a steady part between."""
        case, count = self.case, self.requests(share)
        if share.rate is not None:
            return open_loop(
                share.rate,
                case.isl,
                case.osl,
                requests=min(count, MOST_REQUESTS),
                ratio=case.length_ratio,
                seed=case.seed,
            )
        concurrency = share.concurrency or 1
        capacity, _ = self.replica().capacity
        steady = 2 * concurrency + WAVES * min(concurrency, capacity)
        enough = max(ENOUGH_WAITING if concurrency > capacity else ENOUGH_REQUESTS, steady)
        return closed_loop(
            concurrency,
            case.isl,
            case.osl,
            ratio=case.length_ratio,
            seed=case.seed,
            requests=min(count, enough),
        )


def resolve(case: Case) -> ResolvedCase:
    """Memory, limits and step times of ``case``; :class:`UsageError` if it does not fit."""
    case = whole_instance(as_saturation_test(case))
    room = memory(case)
    limits = ReplicaLimits(
        kv_capacity_tokens=room.kv_capacity_tokens,
        max_num_tokens=case.max_num_tokens,
        max_batch_size=case.max_batch_size,
        chunked=case.chunked,
        pp=case.pp,
    )
    asked = ResolvedCase(case, room, step_model(case), limits, policy(case.engine), client(), _shares(case, room))
    slower = slowdown(case.hardware, asked.compute_share)
    return replace(asked, model=step_model(case, slower)) if slower > 1 else asked


def as_saturation_test(case: Case) -> Case:
    """Concurrency ``max`` is the public saturation test: its lengths are constant unless the case says otherwise."""
    if case.concurrency != "max" or "length_ratio" in case.model_fields_set:
        return case
    return changed(case, length_ratio=1.0)


def whole_instance(case: Case) -> Case:
    """A case that names an instance and no number of GPUs takes as many whole replicas as the instance holds."""
    if case.instance is None or case.gpus is not None:
        return case
    replicas = instance(case.instance).gpus // case.world_size
    return changed(case, gpus=max(1, replicas) * case.world_size)


def _shares(case: Case, room: Memory) -> tuple[Share, ...]:
    """The load spread evenly: every replica gets as much, give or take one request in flight."""
    if case.rate is not None:
        return (Share(case.replicas, rate=case.rate / case.replicas),)
    wanted = room.max_concurrency if case.concurrency == "max" else case.concurrency or 1
    if wanted > MOST_IN_FLIGHT * case.replicas:
        raise UsageError(
            f"concurrency {wanted} is more than a plan simulates",
            why=f"an engine holds {room.max_concurrency // case.replicas} of these requests; the others only wait",
            fix=f"use concurrency {MOST_IN_FLIGHT * case.replicas} or fewer, or max",
        )
    each, more = divmod(wanted, case.replicas)
    shares = (Share(more, each + 1), Share(case.replicas - more, each))
    return tuple(share for share in shares if share.replicas and share.concurrency)


@cache
def _counts() -> tuple[_Count, ...]:
    return tuple(_Count(**entry) for entry in read_yaml(HARNESS_FILE)["requests"])


def saturation_requests(isl: int, osl: int) -> int:
    """Requests that public saturation tests send at such lengths (``data/harness.yml``)."""

    def distance(entry: _Count) -> float:
        return abs(math.log(entry.isl / isl)) + abs(math.log(entry.osl / osl))

    return min(_counts(), key=distance).requests
