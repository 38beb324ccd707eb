"""Static and in-flight batching without an engine: each step of a schedule, from the answers' lengths alone."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from serving_base.measures import Phase, StepRecord

Policy = Literal["static", "inflight"]


def scheduled(lengths: Sequence[int], slots: int, policy: Policy) -> list[StepRecord]:
    """The steps until every answer has its ``lengths`` tokens; ``seconds`` is 0 in each.

    One token a step for each sequence in one of ``slots``; the step that reads a prompt gives the first one.
    """
    steps: list[StepRecord] = []
    waiting = list(enumerate(lengths))
    running: dict[int, int] = {}  # request -> tokens still to come; 0: its slot is kept for its batch
    while waiting or any(running.values()):
        if policy == "inflight":
            running = {request: left for request, left in running.items() if left}
        elif not any(running.values()):
            running = {}
        may_join = policy == "inflight" or not running
        joining = waiting[: slots - len(running)] if may_join else []
        waiting = waiting[len(joining) :]
        running |= dict(joining)
        phases: dict[int, Phase] = {
            request: "context" if (request, left) in joining else "generation" if left else "padding"
            for request, left in running.items()
        }
        given = {request: 1 for request, left in running.items() if left}
        steps.append(StepRecord(len(steps), 0.0, phases, given))
        running = {request: max(left - 1, 0) for request, left in running.items()}
    return steps
