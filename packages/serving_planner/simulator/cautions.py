"""What a user should know before believing the figures of a simulated load test."""

from collections.abc import Sequence
from dataclasses import replace

from serving_planner.simulator.arrivals import Workload
from serving_planner.simulator.limits import Limits, kv_concurrency
from serving_planner.simulator.policy import Policy
from serving_planner.simulator.result import Answer, Served

NEAR_SATURATION = 0.95
"""Share of the saturated rate above which a queue needs many thousand requests to show its mean."""


def cautions(served: Served, workload: Workload, limits: Limits, policy: Policy) -> Served:
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


def _grows(answers: Sequence[Answer]) -> bool:
    """Whether the last tenth waited for admission much longer than the middle fifth, and for most of its TTFT."""
    tenth = max(1, len(answers) // 10)
    middle, last = answers[4 * tenth : 6 * tenth], answers[-tenth:]
    if not middle:
        return False
    middle_s = sum(answer.queue_s for answer in middle) / len(middle)
    last_s = sum(answer.queue_s for answer in last) / len(last)
    return last_s > 1.5 * middle_s and last_s > sum(answer.ttft_s for answer in last) / len(last) / 2


def _memory(served: Served, workload: Workload, limits: Limits, policy: Policy) -> list[str]:
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


def _emptiness(served: Served, workload: Workload, limits: Limits) -> list[str]:
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
