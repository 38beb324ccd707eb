"""The paged cache counted on the real engine."""

from collections.abc import Iterator

import pytest

from cpu_serving.paging import Ask, CacheLaboratory, prompt
from serving_base.errors import EngineError

BLOCK = CacheLaboratory.tokens_per_block


@pytest.fixture(scope="module")
def laboratory() -> Iterator[CacheLaboratory]:
    found = CacheLaboratory()
    yield found
    found.close()


def test_a_long_prompt_takes_a_step_for_each_chunk(laboratory: CacheLaboratory) -> None:
    for step_tokens in (32, 64):
        asks = [Ask("a", prompt(256, 1), 4)]
        found = laboratory.play(asks, step_tokens=step_tokens)
        assert found.first_token == {"a": 256 // step_tokens}
        assert found.steps == 256 // step_tokens + 3


def test_a_running_request_gets_tokens_between_the_chunks(laboratory: CacheLaboratory) -> None:
    asks = [Ask("running", prompt(40, 1), 30), Ask("long", prompt(480, 2), 2, 5)]
    found = laboratory.play(asks, step_tokens=128)
    assert found.first_token["long"] == 4
    assert found.tokens_between("running", 6, 9) == 4


def test_a_shared_prefix_is_computed_once_and_changes_no_answer(laboratory: CacheLaboratory) -> None:
    shared = prompt(4 * BLOCK, 9)
    asks = [Ask(str(number), shared + prompt(20, 20 + number), 3, 100 * number) for number in range(3)]
    off, on = (laboratory.play(asks, step_tokens=BLOCK, reuse=reuse) for reuse in (False, True))
    assert list(off.first_token.values()) == [5, 5, 5]
    assert list(on.first_token.values()) == [5, 1, 1]
    assert on.answers == off.answers


def test_a_small_pool_makes_requests_wait_and_changes_no_answer(laboratory: CacheLaboratory) -> None:
    asks = [Ask(str(number), prompt(40, 30 + number), 24) for number in range(8)]
    enough, small = (laboratory.play(asks, blocks=blocks) for blocks in (16, 6))
    assert (max(enough.waiting), max(small.waiting)) == (0, 5)
    assert max(small.blocks) == 6
    assert small.queue() == ([1, 24, 25, 48, 49, 72], [5, 5, 2, 2, 0, 0])
    assert small.answers == enough.answers


def test_with_pauses_it_takes_fewer_steps_and_changes_no_answer(laboratory: CacheLaboratory) -> None:
    asks = [Ask(str(number), prompt(40, 30 + number), 60) for number in range(8)]
    enough, waits = laboratory.play(asks), laboratory.play(asks, blocks=16)
    pauses = laboratory.play(asks, blocks=16, may_pause=True)
    assert waits.paused() == {}
    assert pauses.paused()
    assert pauses.steps < waits.steps
    assert max(pauses.first_token.values()) < max(waits.first_token.values())
    assert max(pauses.blocks) <= 16
    assert pauses.answers == waits.answers == enough.answers


def test_pauses_and_reuse_are_refused_together(laboratory: CacheLaboratory) -> None:
    with pytest.raises(EngineError, match="do not go together"):
        laboratory.play([Ask("a", [5], 1)], reuse=True, may_pause=True)


def test_two_requests_of_one_name_are_refused(laboratory: CacheLaboratory) -> None:
    with pytest.raises(EngineError, match="one name"):
        laboratory.play([Ask("a", [5], 1), Ask("a", [6], 1)])
