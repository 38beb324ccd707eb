"""The laboratory's arithmetic, facts and exercises, without modelopt: intervals, verdicts, and what runs where."""

import math

import pytest
import torch

from ptq.formats import formats, published_mmlu, support
from ptq.metrics import WindowScores, bootstrap, paired, paired_ratio, perplexity_change, score
from ptq.numerics import float8_values
from serving_base.errors import UsageError


def test_pairing_sees_a_difference_that_is_smaller_than_the_spread_of_windows() -> None:
    first = [0.0, 10.0, 20.0, 30.0, 40.0, 50.0]
    second = [value + 1 + 0.01 * (index % 2) for index, value in enumerate(first)]
    found = paired(first, second)
    assert found.low > 0.9
    assert found.high < 1.1
    own = bootstrap(first)
    assert own.low < own.mean - 5


def test_a_ratio_is_that_of_the_means_and_its_bounds_contain_it() -> None:
    found = paired_ratio([1.0, 2.0, 3.0, 4.0], [2.0, 4.0, 6.0, 9.0])
    assert found.mean == pytest.approx(2.1)
    assert found.low <= found.mean <= found.high


def test_the_same_call_gives_the_same_interval() -> None:
    values = [1.0, 2.0, 4.0, 8.0]
    assert bootstrap(values) == bootstrap(values)


@pytest.mark.parametrize(
    ("first", "second", "what"), [([1.0] * 3, [1.0] * 3, "3 windows"), ([1.0] * 5, [1.0] * 4, "5 windows beside 4")]
)
def test_too_few_or_other_windows_are_refused(first: list[float], second: list[float], what: str) -> None:
    with pytest.raises(UsageError, match=what):
        paired(first, second)


def test_scores_are_those_of_the_definition() -> None:
    """One window of one token and two words: p = (3/4, 1/4), q = (1/4, 3/4), the second word follows."""
    reference = torch.tensor([[[0.75, 0.25]]]).log()
    other = torch.tensor([[[0.25, 0.75]]]).log()
    found = score(reference, other, torch.tensor([[1]]))
    assert found.loss[0] == pytest.approx(-math.log(0.75))
    assert found.kl[0] == pytest.approx(0.75 * math.log(3) - 0.25 * math.log(3), rel=1e-5)
    assert found.agreement == (0.0,)
    assert score(reference, reference, torch.tensor([[0]])).agreement == (1.0,)


def test_a_change_of_perplexity_is_relative() -> None:
    before = WindowScores((1.0,) * 4, (0.0,) * 4, (1.0,) * 4)
    after = WindowScores((1.0 + math.log(1.02),) * 4, (0.1,) * 4, (0.9,) * 4)
    assert perplexity_change(before, after).mean == pytest.approx(0.02)
    assert before.perplexity == pytest.approx(math.e)
    assert after.first(2).kl == (0.1, 0.1)


@pytest.mark.parametrize(
    ("kind", "largest", "smallest", "count"), [("e4m3fn", 448, 2**-9, 127), ("e5m2", 57344, 2**-16, 124)]
)
def test_the_number_line_holds_every_finite_value(kind: str, largest: float, smallest: float, count: int) -> None:
    values = float8_values(kind)
    assert (values[0], values[1], values[-1], len(values)) == (0, smallest, largest, count)


def test_the_table_of_gpus_says_what_each_format_gives() -> None:
    rows = {row["format"]: row for row in support("a100", "h100")}
    assert len(rows) == len(formats())
    assert rows["FP8"] == {"format": "FP8", "a100-sxm": "-", "h100-sxm": "2x fewer bytes, FP8 products"}
    assert rows["INT4 AWQ"]["a100-sxm"] == "4x fewer bytes"
    assert set(rows["NVFP4"].values()) == {"NVFP4", "-"}
    with pytest.raises(UsageError, match="abacus"):
        support("abacus")


def test_the_published_losses_are_the_blog_s_own() -> None:
    """Its last column, with its own rounding: 0.14 %, 2.56 %, 0.85 % for Falcon-180B."""
    losses = {(row["model"], row["format"]): row["loss, %"] for row in published_mmlu()}
    assert losses["Falcon-180B", "FP8"] == 0.14
    assert losses["Falcon-180B", "INT8 SmoothQuant"] == 2.56
    assert losses["LLaMA-v2-70B", "FP8"] == 0.87
    assert max(losses.values()) == 2.75
    assert len(losses) == 12
