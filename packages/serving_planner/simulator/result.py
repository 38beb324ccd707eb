"""What a simulated load test found: the figures of its requests, what the engine did, and how far to trust them."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Literal

from serving_base.measures import quantile
from serving_planner.cost_model.step import StepLoad
from serving_planner.simulator.arrivals import Workload
from serving_planner.simulator.batching import Policy, ReplicaLimits, kv_concurrency

StepKind = Literal["decode", "prefill", "mixed"]


def percentile(values: Iterable[float], percent: float) -> float:
    """With linear interpolation between neighbours (numpy's default). 0.0 of nothing."""
    ordered = sorted(values)
    return quantile(ordered, percent / 100) if ordered else 0.0


@dataclass(frozen=True, slots=True)
class Steps:
    """The steps of one kind, with the sums of their loads. Of a pipeline: launches of micro-batches."""

    count: int = 0
    seconds: float = 0.0
    decode_sequences: int = 0
    decode_context_tokens: int = 0
    prefill_tokens: int = 0
    prefill_pairs: float = 0.0
    prefill_sequences: int = 0

    @property
    def mean_load(self) -> StepLoad:
        """The load of the average step of this kind, each count rounded."""
        share = 1 / max(1, self.count)
        return StepLoad(
            decode_sequences=round(self.decode_sequences * share),
            decode_context_tokens=round(self.decode_context_tokens * share),
            prefill_tokens=round(self.prefill_tokens * share),
            prefill_pairs=self.prefill_pairs * share,
            prefill_sequences=round(self.prefill_sequences * share),
        )


def steps_by_kind(log: Iterable[tuple[StepLoad, int, float]]) -> dict[StepKind, Steps]:
    """Sums by kind of step, from (first load, steps, seconds); of several steps only the context grows."""
    sums: dict[StepKind, list[float]] = {}
    for load, steps, seconds in log:
        kind: StepKind = "decode" if not load.prefill_tokens else "mixed" if load.decode_sequences else "prefill"
        row = sums.setdefault(kind, [0] * 7)
        count = load.decode_sequences
        row[0] += steps
        row[1] += seconds
        row[2] += steps * count
        row[3] += steps * load.decode_context_tokens + count * (steps * (steps - 1) // 2)
        row[4] += load.prefill_tokens
        row[5] += load.prefill_pairs
        row[6] += load.prefill_sequences
    return {
        kind: Steps(int(row[0]), row[1], int(row[2]), int(row[3]), int(row[4]), row[5], int(row[6]))
        for kind, row in sums.items()
    }


@dataclass(frozen=True)
class ServedRequest:
    """One request as its client saw it. Seconds are counted from the start of the test or from ``send_s``."""

    prompt_tokens: int
    output_tokens: int
    send_s: float
    ttft_s: float
    latency_s: float
    longest_gap_s: float
    queue_s: float

    @property
    def tpot_s(self) -> float:
        """(latency - TTFT) / (tokens - 1): seconds per token after the first; 0.0 where there is only one."""
        return (self.latency_s - self.ttft_s) / (self.output_tokens - 1) if self.output_tokens > 1 else 0.0

    @property
    def end_s(self) -> float:
        return self.send_s + self.latency_s


@dataclass(frozen=True)
class SteadyPart:
    """The part without the ramp: requests sent after the start burst and before the last ones.

    ``window_s``: from when the burst is answered until the last request is sent, so that the load is whole
    throughout. The rates are of that window; ``answers`` are the requests between, by the order of sending.
    """

    answers: tuple[ServedRequest, ...]
    window_s: tuple[float, float]
    output_tokens_per_s: float
    requests_per_s: float


@dataclass(frozen=True)
class Served:
    """A simulated load test of one replica.

    ``answers`` are in the order of sending and hold all requests, those of the start burst too: public harnesses
    report means and percentiles over all of them. ``steady`` leaves the ramp out; None where too few requests are
    left. ``makespan_s``: from the first send to the last token at its client. ``mean_queue`` and ``max_queue`` count
    requests that the scheduler knew and had not admitted. ``utilisation``: of an open loop, its rate as a share of
    the rate that saturates the engine (:func:`serving_planner.simulator.batching.saturation_requests_per_s`).
    """

    answers: tuple[ServedRequest, ...]
    steps: dict[StepKind, Steps]
    makespan_s: float
    kv_capacity_tokens: int
    peak_kv_tokens: int
    mean_queue: float
    max_queue: int
    preemptions: int
    recomputed_tokens: int
    concurrency: int | None
    utilisation: float | None
    warnings: tuple[str, ...] = ()

    @cached_property
    def ttft_s(self) -> tuple[float, ...]:
        """Seconds from sending (in an open loop: from when it was meant to be sent) to the first token."""
        return tuple(answer.ttft_s for answer in self.answers)

    @cached_property
    def tpot_s(self) -> tuple[float, ...]:
        """Of the requests with more than one token."""
        return tuple(answer.tpot_s for answer in self.answers if answer.output_tokens > 1)

    @cached_property
    def latency_s(self) -> tuple[float, ...]:
        return tuple(answer.latency_s for answer in self.answers)

    @cached_property
    def output_tokens(self) -> int:
        return sum(answer.output_tokens for answer in self.answers)

    @property
    def output_tokens_per_s(self) -> float:
        """All output tokens over the whole test, its ramps included, as harnesses report it."""
        return self.output_tokens / self.makespan_s

    @property
    def longest_gap_s(self) -> float:
        """The longest time that any request waited between two of its tokens."""
        return max(answer.longest_gap_s for answer in self.answers)

    @property
    def mean_decode_batch(self) -> float:
        """Mean number of sequences in the steps that decode."""
        decoding = [self.steps[kind] for kind in ("decode", "mixed") if kind in self.steps]
        return sum(item.decode_sequences for item in decoding) / max(1, sum(item.count for item in decoding))

    @property
    def seconds_by_kind(self) -> dict[str, float]:
        """Seconds of the first stage (without a pipeline: of the engine) by kind of step, and idle."""
        seconds = {str(kind): item.seconds for kind, item in self.steps.items()}
        return {**seconds, "idle": max(0.0, self.makespan_s - sum(seconds.values()))}

    @cached_property
    def steady(self) -> SteadyPart | None:
        return steady(self.answers, self.concurrency)


def steady(answers: Sequence[ServedRequest], concurrency: int | None) -> SteadyPart | None:
    """The steady part of a test; None where the ramps leave less than one request in five, or no time.

    Closed loop: by the order of sending, all but the first and the last ``concurrency`` requests (chosen by order,
    since a choice by end would prefer the short ones). Open loop: those sent at least the longest latency of the
    first tenth after the start, and as long before the last arrival.
    """
    count = len(answers)
    if concurrency is not None:
        first, last = concurrency, count - concurrency
        begin_s = max((answer.end_s for answer in answers[:concurrency]), default=0.0)
    else:
        ramp_s = max(answer.latency_s for answer in answers[: count // 10 + 1])
        begin_s = answers[0].send_s + ramp_s
        first = next((place for place, answer in enumerate(answers) if answer.send_s >= begin_s), count)
        final_s = answers[-1].send_s - ramp_s
        last = next((place for place, answer in enumerate(answers) if answer.send_s > final_s), count)
    end_s = answers[-1].send_s
    if last - first < max(1, count // 5) or end_s <= begin_s:
        return None
    tokens = sum(_tokens_between(answer, begin_s, end_s) for answer in answers)
    chosen = tuple(answers[first:last])
    mean_output = sum(answer.output_tokens for answer in chosen) / len(chosen)
    rate = tokens / (end_s - begin_s)
    return SteadyPart(chosen, (begin_s, end_s), rate, rate / mean_output)


def _tokens_between(answer: ServedRequest, begin_s: float, end_s: float) -> float:
    """Tokens that appeared in a window: the first at TTFT, the others evenly until the end."""
    start_s = answer.send_s + answer.ttft_s
    first = 1.0 if begin_s <= start_s < end_s else 0.0
    length_s = answer.end_s - start_s
    if length_s <= 0:
        return first * answer.output_tokens
    inside_s = min(end_s, answer.end_s) - max(begin_s, start_s)
    return first + (answer.output_tokens - 1) * max(0.0, inside_s) / length_s


NEAR_SATURATION = 0.95
"""Share of the saturated rate above which a queue needs many thousand requests to show its mean."""


def cautions(served: Served, workload: Workload, limits: ReplicaLimits, policy: Policy) -> Served:
    """``served`` with its warnings: overload, a full KV cache, an empty pipeline, no steady part."""
    found = [
        *_overload(served),
        *_memory(served, workload, limits, policy),
        *_emptiness(served, workload, limits),
    ]
    return replace(served, warnings=tuple(found))


def _overload(served: Served) -> list[str]:
    share, count = served.utilisation, len(served.answers)
    if share is None:
        return []
    if share >= 1:
        return [
            f"unstable: requests arrive at {share:.0%} of the rate that saturates the engine, so the queue grows as "
            f"long as the load lasts, and TTFT tells only how many requests were simulated ({count})"
        ]
    if _grows(served.answers):
        return [
            f"unstable or not yet settled: the queue still grew when the last of {count} requests was sent, at an "
            f"estimated {share:.0%} of the rate that saturates the engine"
        ]
    if share >= NEAR_SATURATION:
        return [
            f"requests arrive at {share:.0%} of the rate that saturates the engine: waiting times are long, and "
            f"{count} requests are few to tell their percentiles"
        ]
    return []


def _grows(answers: Sequence[ServedRequest]) -> bool:
    """Whether the last tenth waited for admission much longer than the middle fifth, and for most of its TTFT."""
    tenth = max(1, len(answers) // 10)
    middle, last = answers[4 * tenth : 6 * tenth], answers[-tenth:]
    if not middle:
        return False
    middle_s = sum(answer.queue_s for answer in middle) / len(middle)
    last_s = sum(answer.queue_s for answer in last) / len(last)
    return last_s > 1.5 * middle_s and last_s > sum(answer.ttft_s for answer in last) / len(last) / 2


def _memory(served: Served, workload: Workload, limits: ReplicaLimits, policy: Policy) -> list[str]:
    found = []
    if served.preemptions:
        found.append(
            f"the KV cache ran out {served.preemptions} times, and {served.recomputed_tokens} tokens were computed "
            f"again: the pauses of the requests that gave way are in TPOT and in the longest gap"
        )
    holds = kv_concurrency(*workload.mean, limits, policy)
    at_once = min(holds, limits.max_batch_size)
    if workload.concurrency is not None and workload.concurrency > at_once:
        what = "the KV cache holds" if holds <= limits.max_batch_size else "max_batch_size admits"
        found.append(
            f"{what} about {at_once} of the {workload.concurrency} requests in flight: the others wait, and TTFT "
            f"grows with every further one"
        )
    return found


def _emptiness(served: Served, workload: Workload, limits: ReplicaLimits) -> list[str]:
    found = []
    if workload.concurrency is not None and workload.concurrency < limits.pp:
        found.append(
            f"{workload.concurrency} requests in flight cannot fill {limits.pp} pipeline stages: at least "
            f"{limits.pp - workload.concurrency} are idle at any time"
        )
    if served.steady is None:
        found.append(
            f"{len(served.answers)} requests leave no steady part between the start and the end: send more of them"
        )
    return found
