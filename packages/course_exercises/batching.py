"""The exercises of the chapter on local inference: steps counted, a queue ordered, a request beyond the engine.

What is right is counted step by step here, or said by the engine's own limits; nothing is stored.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal

from course_exercises.exercise import Exercise, Wrong
from course_exercises.verdict import ExerciseVerdict, Solution
from model_server.protocol import EngineLimits, Sampling
from serving_base.errors import EngineError
from serving_base.measures import Phase, StepRecord

Policy = Literal["static", "inflight"]

LENGTHS = (8, 96, 16, 48, 12, 64, 8, 80, 24, 8, 40, 16)
"""Tokens of each answer, in the order of arrival, and the slots of the chapter's engine."""
SLOTS = 4
ALLOWANCE = 1.05
"""How much longer than the shortest possible schedule an order may take."""
TOKENS_PER_BLOCK = 32


def scheduled(lengths: Sequence[int], slots: int, policy: Policy) -> list[StepRecord]:
    """Batching without an engine: the steps until every answer has its ``lengths`` tokens; ``seconds`` is 0 in each.

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


def simulated_steps(lengths: Sequence[int], slots: int, policy: Policy) -> int:
    """Engine steps until every answer has its ``lengths`` tokens."""
    return len(scheduled(lengths, slots, policy))


def shortest_possible(lengths: Sequence[int], slots: int) -> int:
    """No schedule is shorter: every step gives at most ``slots`` tokens, and the longest answer takes its own."""
    return max(-(-sum(lengths) // slots), max(lengths, default=0))


# Exercise 1: a request that the engine can never run.


def check_refusal(
    answer: Mapping[str, Sequence[int]], *, max_input_len: int = 512, max_seq_len: int = 1024
) -> Solution:
    """Exercise 1: ``refused`` and ``taken`` are (prompt tokens, new tokens), judged by the engine's own limits."""
    title = "A request beyond the engine"
    refused, taken = (tuple(answer.get(name) or ()) for name in ("refused", "taken"))
    if not refused or not taken:
        return Solution(title, problem="give a request (prompt tokens, new tokens) for 'refused' and for 'taken'")
    limits = EngineLimits(
        max_batch_size=1,
        max_num_tokens=max_seq_len,
        max_input_len=max_input_len,
        max_seq_len=max_seq_len,
        tokens_per_block=TOKENS_PER_BLOCK,
    )
    first = _said(limits, refused)
    provoked = f"exceed max_seq_len {max_seq_len}" in first
    room = max_seq_len - refused[0]
    repaired = taken[0] == refused[0] and not _said(limits, taken) and taken[1] == room
    return Solution(
        title,
        (
            ExerciseVerdict(
                f"refused {refused}",
                first or "the engine takes it",
                f"a prompt within max_input_len {max_input_len} that the engine refuses for max_seq_len {max_seq_len}",
                "max_seq_len counts prompt and answer together",
                provoked,
            ),
            ExerciseVerdict(
                f"taken {taken}",
                _said(limits, taken) or f"{taken[1]} new tokens",
                f"the same prompt with all the {max(room, 0)} tokens that are left to it",
                "the repair that needs no new engine is to ask for fewer tokens",
                repaired,
            ),
        ),
    )


def _said(limits: EngineLimits, request: Sequence[int]) -> str:
    """What the engine says against (prompt tokens, new tokens); nothing if it takes them."""
    prompt_tokens, new_tokens = request
    sampling = Sampling(max_new_tokens=new_tokens)
    enough = -(-2 * limits.max_seq_len // limits.tokens_per_block) + prompt_tokens + new_tokens
    try:
        sampling.check()
        limits.check_fits(prompt_tokens, sampling, enough)
    except EngineError as error:
        return str(error.what)
    return ""


# Exercise 2: count the steps of both policies.


def count_steps(lengths: list[int], slots: int, policy: str) -> int:
    if policy == "static":
        return sum(max(lengths[first : first + slots]) for first in range(0, len(lengths), slots))
    ends = [0] * slots
    for length in lengths:
        ends[ends.index(min(ends))] += length
    return max(ends)


def check_steps(
    answer: Callable[[list[int], int, str], int], *, lengths: Sequence[int] = LENGTHS, slots: int = SLOTS
) -> Solution:
    """Exercise 2: ``answer(lengths, slots, policy)`` gives the number of steps, for this run's lengths and others."""
    tried = ((list(lengths), slots), ([5, 1, 1, 1, 1], 2), ([3, 9, 2], 4), ([7], 1))
    why = {
        "static": "a batch ends with its longest answer, and the next one begins then",
        "inflight": "the next request takes the slot that is free first",
    }
    verdicts = []
    for given, width in tried:
        for policy in ("static", "inflight"):
            yours, expected = answer(list(given), width, policy), simulated_steps(given, width, policy)
            said = f"{len(given)} answers, {width} slots, {policy}"
            verdicts.append(ExerciseVerdict(said, str(yours), str(expected), why[policy], yours == expected))
    return Solution("Count the steps", tuple(verdicts))


def _all_at_once(lengths: list[int], *_: object) -> int:
    return max(lengths)


def _one_by_one(lengths: list[int], *_: object) -> int:
    return sum(lengths)


def _perfect_packing(lengths: list[int], slots: int, policy: str) -> int:
    return count_steps(lengths, slots, policy) if policy == "static" else -(-sum(lengths) // slots)


def _round_robin(lengths: list[int], slots: int, policy: str) -> int:
    if policy == "static":
        return count_steps(lengths, slots, policy)
    return max(sum(lengths[slot::slots]) for slot in range(slots))


# Exercise 3: the order of the queue.


def check_order(answer: Sequence[int], *, lengths: Sequence[int] = LENGTHS, slots: int = SLOTS) -> Solution:
    """Exercise 3: the same ``lengths`` in an order that in-flight batching ends within 5 % of the shortest schedule."""
    title = "Order the queue"
    if not answer:
        return Solution(title, problem="the order is still empty")
    missing, extra = Counter(lengths) - Counter(answer), Counter(answer) - Counter(lengths)
    if missing or extra:
        told = f"missing {sorted(missing.elements())}, too many {sorted(extra.elements())}"
        return Solution(title, problem=f"these are not the same requests: {told}")
    steps, bound = simulated_steps(answer, slots, "inflight"), shortest_possible(lengths, slots)
    limit = int(ALLOWANCE * bound)
    why = (
        f"{sum(lengths)} tokens in {slots} slots take at least {bound} steps; a long answer that starts last runs alone"
    )
    return Solution(title, (ExerciseVerdict("in-flight steps", str(steps), f"{limit} or fewer", why, steps <= limit),))


_LONGEST_FIRST: Any = sorted(LENGTHS, reverse=True)

EXERCISES = (
    Exercise(
        number="04-1",
        title="A request beyond the engine",
        kind="break",
        minutes=5,
        check=check_refusal,
        solution={"refused": (512, 513), "taken": (512, 512)},
        also=({"refused": (100, 2000), "taken": (100, 924)}, {"refused": (1, 1024), "taken": (1, 1023)}),
        wrong=(
            Wrong({"refused": (), "taken": ()}, "give a request"),
            Wrong({"refused": (600, 600), "taken": (512, 512)}, "exceeds max_input_len 512"),
            Wrong({"refused": (512, 512), "taken": (512, 512)}, "the engine takes it"),
            Wrong({"refused": (512, 600), "taken": (256, 600)}, "the same prompt"),
            Wrong({"refused": (512, 600), "taken": (512, 10)}, "all the 512 tokens"),
        ),
        row="`request refused: prompt of …`",
    ),
    Exercise(
        number="04-2",
        title="Count the steps",
        kind="compute",
        minutes=15,
        check=check_steps,
        solution=count_steps,
        wrong=(
            Wrong(_all_at_once, "a batch ends with its longest answer"),
            Wrong(_one_by_one, "the next one begins then"),
            Wrong(_perfect_packing, "the slot that is free first"),
            Wrong(_round_robin, "the slot that is free first"),
            Wrong(lambda lengths, slots: 0, "your answer raised TypeError"),
        ),
    ),
    Exercise(
        number="04-3",
        title="Order the queue",
        kind="choose",
        minutes=10,
        check=check_order,
        solution=_LONGEST_FIRST,
        also=([96, 80, 64, 48, 40, 24, 16, 16, 12, 8, 8, 8], [80, 96, 48, 64, 40, 24, 16, 16, 12, 8, 8, 8]),
        wrong=(
            Wrong((), "the order is still empty"),
            Wrong(LENGTHS, "a long answer that starts last runs alone"),
            Wrong(sorted(LENGTHS), "a long answer that starts last runs alone"),
            Wrong(_LONGEST_FIRST[:-1], "missing [8]"),
            Wrong([*_LONGEST_FIRST, 8], "too many [8]"),
        ),
    ),
)
