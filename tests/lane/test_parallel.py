"""A Llama over several real processes against one, its messages counted, its pipeline's steps, and how ranks end."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cpu_serving.checkpoint import read_checkpoint
from cpu_serving.parallel.cuts import MISTAKES, Mistake, RankLayout, rank_weights
from cpu_serving.parallel.ranks import Ranks, first_to_differ, held_out_texts, largest_difference, open_ranks
from cpu_serving.parallel.wire import all_reduce_bytes, layer_sums_bytes
from serving_base.errors import EngineError, UsageError
from tiny_llama import MODEL_DIR
from waiting import until

TOLERANCE = 1e-4
"""Of the largest logit: float32 sums in another order differ by a few millionths of it."""
LAYERS, HIDDEN, FLOAT = 4, 256, 4
LENGTH = 24


@pytest.fixture(scope="module")
def ranks() -> Iterator[Ranks]:
    with open_ranks(4) as found:
        yield found


@pytest.fixture(scope="module")
def texts() -> list[list[int]]:
    return held_out_texts(4, LENGTH)


def test_one_rank_gives_the_logits_of_transformers(ranks: Ranks, texts: list[list[int]], float32_model: Any) -> None:
    import torch

    with torch.inference_mode():
        expected = float32_model(torch.tensor(texts[:1])).logits[0].numpy()
    found = ranks.run(RankLayout(), texts[:1]).logits[0]
    assert np.abs(found - expected).max() < TOLERANCE * np.abs(expected).max()


@pytest.mark.parametrize(("tp", "pp"), [(2, 1), (4, 1), (1, 2), (1, 4), (2, 2)])
def test_every_layout_gives_the_logits_and_tokens_of_one_process(
    ranks: Ranks, texts: list[list[int]], tp: int, pp: int
) -> None:
    alone = ranks.run(RankLayout(), texts, rounds=3, watch=True)
    found = ranks.run(RankLayout(tp, pp), texts, rounds=3, watch=True)
    assert largest_difference(alone, found) < TOLERANCE
    assert found.tokens == alone.tokens
    assert [len(text) for text in found.tokens] == [LENGTH + 3] * 4
    assert list(found.watched) == list(alone.watched)
    assert first_to_differ(alone, found, TOLERANCE) == ""


@pytest.mark.parametrize(("mistake", "place"), [(MISTAKES[1], "layer 0 attention"), (MISTAKES[2], "layer 0 MLP")])
def test_a_wrong_cut_raises_nothing_and_is_found_by_comparing(
    ranks: Ranks, texts: list[list[int]], mistake: Mistake, place: str
) -> None:
    alone = ranks.run(RankLayout(), texts, watch=True)
    wrong = ranks.run(RankLayout(tp=2), texts, mistake=mistake, watch=True)
    assert largest_difference(alone, wrong) > 0.1
    assert first_to_differ(alone, wrong, TOLERANCE) == place


@pytest.mark.parametrize("tp", [1, 2, 4])
def test_the_bytes_of_every_rank_are_those_of_the_formula(ranks: Ranks, texts: list[list[int]], tp: int) -> None:
    found = ranks.run(RankLayout(tp=tp), texts)
    tokens = 4 * LENGTH
    for rank in range(tp):
        sums = found.traffic(rank)["layers"]
        assert sums.calls == 2 * LAYERS * 4
        assert sums.payload_bytes == 2 * LAYERS * tokens * HIDDEN * FLOAT
        assert sums.sent_bytes == layer_sums_bytes(LAYERS, tokens, HIDDEN, FLOAT, tp)
        assert sums.messages == sums.calls * 2 * (tp - 1)


@pytest.mark.parametrize("values", [1, 3, 1000])
def test_the_ring_gives_gloos_sums(ranks: Ranks, values: int) -> None:
    for _, difference, traffic in ranks.both_sums(values):
        assert difference < 1e-5
        assert traffic["layers"].messages == 6
    sent = sum(traffic["layers"].sent_bytes for _, _, traffic in ranks.both_sums(values))
    assert sent == 4 * all_reduce_bytes(values * FLOAT, 4)


@pytest.mark.parametrize("stages", [2, 4])
@pytest.mark.parametrize("count", [1, 2, 4])
def test_the_bubble_is_counted_in_steps(ranks: Ranks, texts: list[list[int]], stages: int, count: int) -> None:
    found = ranks.run(RankLayout(pp=stages), texts[:count])
    assert found.steps == count + stages - 1
    assert found.idle == (stages - 1,) * stages
    assert found.bubble == pytest.approx((stages - 1) / (count + stages - 1))
    assert [turn.step for turn in found.turns()[-1]] == [stages - 1 + index for index in range(count)]
    assert found.traffic()["stage"].sent_bytes == count * LENGTH * HIDDEN * FLOAT


def test_a_token_that_was_not_made_yet_keeps_a_pipeline_waiting(ranks: Ranks, texts: list[list[int]]) -> None:
    alone, filled = (ranks.run(RankLayout(pp=2), texts[:count], rounds=5) for count in (1, 2))
    assert (alone.steps, alone.idle) == (10, (5, 5))
    assert (filled.steps, filled.idle) == (11, (1, 1))


def test_more_ranks_than_kv_heads_copy_them() -> None:
    weights = read_checkpoint(MODEL_DIR)
    parts = [rank_weights(weights, RankLayout(tp=4), rank).layers[0]["key"] for rank in range(4)]
    assert np.array_equal(parts[0], parts[1]) and np.array_equal(parts[2], parts[3])
    assert np.array_equal(np.concatenate([parts[0], parts[2]]), weights.layers[0].key.weight.astype(np.float32))


def test_what_cannot_be_cut_is_refused() -> None:
    shape = read_checkpoint(MODEL_DIR).shape
    with pytest.raises(UsageError, match="tp 3 does not divide the 8 attention heads"):
        RankLayout(tp=3).check(shape)
    with pytest.raises(UsageError, match="pp 3 does not divide the 4 layers"):
        RankLayout(pp=3).check(shape)


def test_an_fp8_checkpoint_is_refused(fp8_checkpoint: Path) -> None:
    with pytest.raises(UsageError, match="FP8"):
        rank_weights(read_checkpoint(fp8_checkpoint), RankLayout(), 0)


def test_wrong_questions_leave_the_ranks_running(ranks: Ranks, texts: list[list[int]]) -> None:
    with pytest.raises(UsageError, match="needs 8 ranks, and 4 were started"):
        ranks.run(RankLayout(tp=4, pp=2), texts)
    with pytest.raises(UsageError, match="nothing to run"):
        ranks.run(RankLayout(), [])
    assert not ranks.closed


def gone(pid: int) -> bool:
    """Ended, and waited for: a zombie still has a process id."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    return False


def test_a_killed_rank_ends_all_and_leaves_no_zombie(texts: list[list[int]]) -> None:
    pair = open_ranks(2)
    os.kill(pair.pids[1], signal.SIGKILL)
    with pytest.raises(EngineError, match="rank"):
        pair.run(RankLayout(tp=2), texts)
    assert pair.closed
    assert all(gone(pid) for pid in pair.pids)
    with pytest.raises(EngineError, match="the ranks have ended"):
        pair.run(RankLayout(), texts)


def test_ranks_end_with_the_process_that_started_them() -> None:
    opened = "from cpu_serving.parallel.ranks import open_ranks; pair = open_ranks(2)"
    code = f"{opened}; print(*pair.pids, flush=True); input()"
    owner = subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    with owner:
        assert owner.stdout is not None
        pids = [int(word) for word in owner.stdout.readline().split()]
        owner.kill()
    assert len(pids) == 2
    until(lambda: all(gone(pid) for pid in pids), "the end of ranks whose owner was killed")


def test_a_failure_inside_a_rank_is_told_and_ends_all() -> None:
    pair = open_ranks(2)
    with pytest.raises(EngineError, match="rank 0: token 1000000000 is none of the 2048 words"):
        pair.run(RankLayout(), [[10**9]])
    assert all(gone(pid) for pid in pair.pids)


def test_closing_ends_the_processes() -> None:
    pair = open_ranks(2)
    pair.close()
    pair.close()
    until(lambda: all(gone(pid) for pid in pair.pids), "the ranks' end")
