"""How far a model has moved from another one, window by window, and how sure one may be of it.

Both models read the same windows, so the differences are *paired*: what makes a window hard makes it hard for both, and
cancels out. The error bars are a percentile bootstrap over windows (Efron and Tibshirani, "An Introduction to the
Bootstrap", chapter 13): a window, not a token, is what was drawn independently.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from serving_base.errors import UsageError

if TYPE_CHECKING:
    import numpy as np
    from torch import Tensor

DRAWS = 2000
FEWEST_WINDOWS = 4
"""Fewer windows cannot be resampled into an interval that means anything."""


class Interval(NamedTuple):
    """A mean and the bounds that contain 95 % of its bootstrap."""

    mean: float
    low: float
    high: float

    def text(self, number: str = "{:.4f}") -> str:
        return f"{number.format(self.mean)} [{number.format(self.low)}, {number.format(self.high)}]"


@dataclass(frozen=True)
class WindowScores:
    """One number per window: mean negative log-likelihood and KL divergence (nats per token), share of equal top-1."""

    loss: tuple[float, ...]
    kl: tuple[float, ...]
    agreement: tuple[float, ...]

    @property
    def perplexity(self) -> float:
        return math.exp(sum(self.loss) / len(self.loss))

    def first(self, windows: int) -> WindowScores:
        """The same for the first ``windows`` windows alone."""
        return WindowScores(self.loss[:windows], self.kl[:windows], self.agreement[:windows])


def score(reference: Tensor, other: Tensor, targets: Tensor) -> WindowScores:
    """Compare log-probabilities (windows, tokens, vocabulary) with the reference's; ``targets`` (windows, tokens)."""
    loss = -other.gather(-1, targets[..., None])[..., 0].mean(1)
    kl = (reference.exp() * (reference - other)).sum(-1).mean(1)
    agreement = (other.argmax(-1) == reference.argmax(-1)).double().mean(1)
    return WindowScores(*(tuple(values.double().tolist()) for values in (loss, kl, agreement)))


def bootstrap(values: Sequence[float], draws: int = DRAWS, seed: int = 0) -> Interval:
    """The mean of ``values`` and its 95 % interval. The same draw of windows for every call of one length."""
    import numpy as np

    means = _resampled(values, draws, seed)
    low, high = np.percentile(means, [2.5, 97.5])
    return Interval(float(np.mean(values)), float(low), float(high))


def paired(first: Sequence[float], second: Sequence[float], draws: int = DRAWS, seed: int = 0) -> Interval:
    """The mean difference ``second - first``, window by window, and its interval."""
    _same_windows(first, second)
    return bootstrap([b - a for a, b in zip(first, second, strict=True)], draws, seed)


def paired_ratio(first: Sequence[float], second: Sequence[float], draws: int = DRAWS, seed: int = 0) -> Interval:
    """``mean(second) / mean(first)`` over the same draws of windows: how many times as much."""
    import numpy as np

    _same_windows(first, second)
    ratios = _resampled(second, draws, seed) / _resampled(first, draws, seed)
    low, high = np.percentile(ratios, [2.5, 97.5])
    return Interval(float(np.mean(second) / np.mean(first)), float(low), float(high))


def perplexity_change(before: WindowScores, after: WindowScores) -> Interval:
    """Relative change of perplexity: exp of the paired difference of losses, less one. 0.01 is one percent."""
    return Interval(*(math.expm1(bound) for bound in paired(before.loss, after.loss)))


def _resampled(values: Sequence[float], draws: int, seed: int) -> np.ndarray:
    import numpy as np

    if len(values) < FEWEST_WINDOWS:
        raise UsageError(
            f"{len(values)} windows give no error bar",
            why="the bootstrap draws whole windows, and there are too few different draws",
            fix=f"measure on at least {FEWEST_WINDOWS} windows",
        )
    drawn = np.random.default_rng(seed).integers(0, len(values), (draws, len(values)))
    means: np.ndarray = np.asarray(values, dtype=np.float64)[drawn].mean(1)
    return means


def _same_windows(first: Sequence[float], second: Sequence[float]) -> None:
    if len(first) != len(second):
        raise UsageError(
            f"{len(first)} windows beside {len(second)}",
            why="paired differences need the same windows on both sides",
            fix="score both models on the same texts",
        )
