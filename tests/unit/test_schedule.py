"""The computed schedules: every token is made, static keeps slots for its batch, in-flight keeps none."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from course_exercises.batching import Policy, scheduled

LENGTHS = st.lists(st.integers(1, 20), max_size=12)


@given(lengths=LENGTHS, slots=st.integers(1, 5))
def test_every_request_reads_its_prompt_once_and_gets_its_tokens(lengths: list[int], slots: int) -> None:
    for policy in ("static", "inflight"):
        steps = scheduled(lengths, slots, policy)
        made = [sum(step.new_tokens.get(request, 0) for step in steps) for request in range(len(lengths))]
        assert made == lengths
        prompts = [request for step in steps for request, phase in step.phases.items() if phase == "context"]
        assert sorted(prompts) == list(range(len(lengths)))
        assert all(len(step.phases) <= slots for step in steps)


@given(lengths=LENGTHS, slots=st.integers(1, 5))
def test_the_steps_are_those_of_the_formulas(lengths: list[int], slots: int) -> None:
    groups = [lengths[first : first + slots] for first in range(0, len(lengths), slots)]
    assert len(scheduled(lengths, slots, "static")) == sum(max(group) for group in groups)
    ends = [0] * slots
    for length in lengths:
        ends[ends.index(min(ends))] += length
    assert len(scheduled(lengths, slots, "inflight")) == max(ends)


@pytest.mark.parametrize(("policy", "kept"), [("static", 3), ("inflight", 0)])
def test_only_static_batching_keeps_a_slot(policy: Policy, kept: int) -> None:
    steps = scheduled([4, 1], 2, policy)
    assert sum("padding" in step.phases.values() for step in steps) == kept
