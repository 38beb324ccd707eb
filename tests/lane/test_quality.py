from collections.abc import Sequence

import numpy as np
import pytest

from serving_base.quality import kl_divergence, log_softmax, perplexity, unigram_perplexity, windows


def constant(scores: Sequence[float]):  # type: ignore[no-untyped-def]
    return lambda ids: np.tile(np.asarray(scores, np.float32), (len(ids), 1))


def test_uniform_model_has_the_vocabularys_perplexity() -> None:
    assert perplexity(constant([0.0] * 7), [[0, 1, 2, 3], [6, 5]]) == pytest.approx(7)


def test_perplexity_weighs_tokens_not_texts() -> None:
    model = constant(np.log([0.5, 0.25, 0.25]).tolist())
    # three predictions of token 0 and one of token 1: exp(-(3 ln 0.5 + ln 0.25) / 4)
    assert perplexity(model, [[2, 0, 0, 0], [2, 1]]) == pytest.approx(np.exp(-(3 * np.log(0.5) + np.log(0.25)) / 4))


def test_kl_divergence_of_known_distributions() -> None:
    p, q = constant(np.log([0.5, 0.5]).tolist()), constant(np.log([0.9, 0.1]).tolist())
    assert kl_divergence(p, p, [[0, 1]]) == pytest.approx(0, abs=1e-12)
    assert kl_divergence(p, q, [[0, 1]]) == pytest.approx(0.5 * np.log(0.5 / 0.9) + 0.5 * np.log(0.5 / 0.1), rel=1e-5)


def test_kl_divergence_asks_for_the_positions_that_perplexity_scores() -> None:
    asked: list[list[int]] = []

    def model(ids: Sequence[int]) -> np.ndarray:
        asked.append(list(ids))
        return np.zeros((len(ids), 4), np.float32)

    perplexity(model, [[1, 2, 3]])
    kl_divergence(model, model, [[1, 2, 3]])
    assert asked == [[1, 2]] * 3


def test_windows_predict_each_token_once() -> None:
    cut = list(windows(list(range(11)), 5))
    assert cut == [[0, 1, 2, 3, 4, 5], [5, 6, 7, 8, 9, 10]]
    assert list(windows([1, 2, 3], 5)) == []


def test_unigram_perplexity_uses_training_counts() -> None:
    # add-one smoothing over 3 tokens: p = (3/6, 2/6, 1/6)
    assert unigram_perplexity([0, 0, 1], [0, 1, 2], 3) == pytest.approx((6 / 3 * 6 / 2 * 6 / 1) ** (1 / 3))


def test_log_softmax_survives_large_scores() -> None:
    assert np.exp(log_softmax(np.array([[1e4, 1e4]]))).tolist() == [[0.5, 0.5]]
