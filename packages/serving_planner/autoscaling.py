"""Instances that follow a load: target tracking as SageMaker does it, simulated in steps, with its bill and its waits.

A fluid model: requests are a rate, an instance in service answers at most ``capacity_per_s`` of them, and what is over
waits in one queue before all instances. It knows nothing of single requests, so it has no percentiles of latency.
Planned, not measured. Target tracking: docs.aws.amazon.com, Application Auto Scaling User Guide, target tracking; the
metric and its period of 10 s: SageMaker, ConcurrentRequestsPerModel in high resolution.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from serving_base.errors import UsageError

STEP_S = 10.0


@dataclass(frozen=True)
class Fleet:
    """One instance: requests/s that it answers at most, seconds of one alone, seconds until a new one serves, price."""

    capacity_per_s: float
    service_s: float
    start_s: float
    usd_per_hour: float


@dataclass(frozen=True)
class Policy:
    """``target``: requests in flight per instance. A new instance is asked for after ``datapoints`` steps above it.

    One is given back after ``scale_in_s`` in which fewer would have sufficed. Cooldowns lie between two changes.
    """

    target: float
    min_instances: int
    max_instances: int
    datapoints: int = 3
    scale_out_cooldown_s: float = 60.0
    scale_in_s: float = 900.0

    def __post_init__(self) -> None:
        if not 1 <= self.min_instances <= self.max_instances or self.target <= 0:
            raise UsageError(
                f"a policy from {self.min_instances} to {self.max_instances} instances with target {self.target}",
                fix="1 <= min_instances <= max_instances, and a target above 0",
            )


def fixed(instances: int) -> Policy:
    """No scaling: always so many."""
    return Policy(target=1.0, min_instances=instances, max_instances=instances)


@dataclass(frozen=True)
class Moment:
    """One step of ``STEP_S``. ``billed`` are those in service and those that start; ``wait_s``: of who comes now."""

    at_s: float
    arrivals_per_s: float
    billed: int
    serving: int
    in_flight: float
    wait_s: float


@dataclass(frozen=True)
class Scaling:
    """A whole run."""

    moments: tuple[Moment, ...]
    usd_per_hour: float

    @property
    def usd(self) -> float:
        return sum(moment.billed for moment in self.moments) * STEP_S / 3600 * self.usd_per_hour

    @property
    def longest_wait_s(self) -> float:
        return max(moment.wait_s for moment in self.moments)

    def share_waiting(self, longer_than_s: float) -> float:
        """Share of all requests that come while the queue is longer than this, in seconds."""
        late = sum(moment.arrivals_per_s for moment in self.moments if moment.wait_s > longer_than_s)
        return late / sum(moment.arrivals_per_s for moment in self.moments)


@dataclass
class _Now:
    serving: int
    starting: list[float] = field(default_factory=list)  # when each will serve
    backlog: float = 0.0
    above: int = 0
    below_s: float = 0.0
    changed_s: float = -math.inf


def simulate(arrivals_per_s: Callable[[float], float], seconds: float, fleet: Fleet, policy: Policy) -> Scaling:
    """The fleet under ``arrivals_per_s(t)`` from 0 to ``seconds``; it begins with ``min_instances`` in service."""
    now, moments = _Now(serving=policy.min_instances), []
    for step in range(math.ceil(seconds / STEP_S)):
        at_s = step * STEP_S
        now.serving += sum(1 for ready in now.starting if ready <= at_s)
        now.starting = [ready for ready in now.starting if ready > at_s]
        rate = arrivals_per_s(at_s)
        able = now.serving * fleet.capacity_per_s
        answered = min(now.backlog / STEP_S + rate, able)
        now.backlog = max(0.0, now.backlog + (rate - answered) * STEP_S)
        in_flight = answered * fleet.service_s + now.backlog
        billed = now.serving + len(now.starting)
        moments.append(Moment(at_s, rate, billed, now.serving, in_flight, now.backlog / able))
        _track(now, in_flight, at_s, fleet, policy)
    return Scaling(tuple(moments), fleet.usd_per_hour)


def _track(now: _Now, in_flight: float, at_s: float, fleet: Fleet, policy: Policy) -> None:
    """What the policy does at the end of a step."""
    have = now.serving + len(now.starting)
    wanted = min(max(math.ceil(in_flight / policy.target), policy.min_instances), policy.max_instances)
    now.above = now.above + 1 if wanted > have else 0
    now.below_s = now.below_s + STEP_S if wanted < have else 0.0
    if now.above >= policy.datapoints and at_s - now.changed_s >= policy.scale_out_cooldown_s:
        now.starting += [at_s + STEP_S + fleet.start_s] * (wanted - have)
        now.changed_s, now.above = at_s, 0
    elif now.below_s >= policy.scale_in_s and not now.starting:
        now.serving -= 1
        now.changed_s, now.below_s = at_s, 0.0


def day(quiet_per_s: float, busy_per_s: float, *, rise_s: float, fall_s: float) -> Callable[[float], float]:
    """A load that jumps from quiet to busy at ``rise_s`` and back at ``fall_s``."""
    return lambda at_s: busy_per_s if rise_s <= at_s < fall_s else quiet_per_s


def canary(shares: Sequence[float], bake_s: float, *, error_share: float, alarm_share: float) -> tuple[float, bool]:
    """Requests that met the new version, as a share of all in that time, and whether an alarm sent it back.

    ``shares``: of the traffic in each phase, the last is 1; each lasts ``bake_s``. A version with ``error_share`` bad
    answers sets the alarm off when bad answers are more than ``alarm_share`` of *all* traffic; the phase in which
    that happens is the last.
    """
    if not shares or list(shares) != sorted(shares) or shares[-1] != 1 or bake_s <= 0:
        raise UsageError(f"shares {list(shares)} of a canary", fix="rising shares of which the last is 1, and a time")
    met = 0.0
    for number, share in enumerate(shares, 1):
        met += share
        if share * error_share > alarm_share:
            return met / number, True
    return met / len(shares), False
