"""What a measurement found, and its tables: shares, how late tokens came, where the processor's time went."""

from collections.abc import Mapping
from dataclasses import dataclass
from statistics import median

import numpy as np
from rich.table import Table

from benchmarks.streaming.client import Pieces
from model_server.triton.token_times import TokenTime

QUANTILES = (50.0, 99.0, 99.9, 100.0)


@dataclass(frozen=True)
class Figures:
    """One round of one way.

    ``late_ms``: from the first token of each piece, as the engine gave it, to its coming; ``token_late_ms``: the same
    of each token. ``cpu_ms``: processor time for 1,000 tokens by process. ``tokens``: all of the round.
    """

    tokens: int
    tokens_per_s: float
    ttft_ms: float
    late_ms: tuple[float, ...]
    token_late_ms: tuple[float, ...]
    pieces: int
    cpu_ms: Mapping[str, float]


def late_ms(pieces: Pieces, time: TokenTime) -> list[float]:
    """For each piece the time from the engine's giving its first token to its coming, in milliseconds.

    So the way of a single token is in it, and what a piece waited for its other tokens. ValueError where other pieces
    came than were sent.
    """
    begun = time.first_s()
    if len(begun) != len(pieces.at_s):
        raise ValueError(f"{len(begun)} responses were sent for {pieces.request_id}, and {len(pieces.at_s)} came")
    return [1e3 * (at_s - first_s) for at_s, first_s in zip(pieces.at_s, begun, strict=True)]


def token_late_ms(pieces: Pieces, time: TokenTime) -> list[float]:
    """For each token the time from the engine's giving it to the coming of its piece, in milliseconds."""
    came_s = np.repeat(pieces.at_s, time.sent)  # [tokens]
    return [float(late) for late in 1e3 * (came_s - np.asarray(time.came_s))]


def shares(alone: list[float], found: Mapping[str, list[Figures]], clients: int) -> Table:
    """Tokens a second of each way beside the engine alone, and how late its pieces came."""
    shown = Table(title=f"{clients} clients; engine alone: {median(alone):,.0f} tokens/s (median of {len(alone)})")
    for name in ("way", "tokens/s", "share", "from..to", "tokens a piece", "TTFT ms", "late ms p50", "p99"):
        shown.add_column(name)
    for way, rounds in found.items():
        each = [figures.tokens_per_s / rate for figures, rate in zip(rounds, alone, strict=True)]
        late = [late for figures in rounds for late in figures.late_ms] or [0.0]
        shown.add_row(
            way,
            f"{median(figures.tokens_per_s for figures in rounds):,.0f}",
            f"{median(each):.2f}",
            f"{min(each):.2f}..{max(each):.2f}",
            f"{sum(figures.tokens for figures in rounds) / sum(figures.pieces for figures in rounds):.1f}",
            f"{median(figures.ttft_ms for figures in rounds):.0f}",
            f"{np.percentile(late, 50):.0f}",
            f"{np.percentile(late, 99):.0f}",
        )
    return shown


def breakdown(alone_ms: list[float], found: Mapping[str, list[Figures]]) -> Table:
    """Processor time by process: milliseconds for 1,000 tokens / microseconds for a piece. Median of the rounds."""
    title = f"processor time, ms for 1,000 tokens / us for a piece; engine alone: {median(alone_ms):.0f} ms"
    shown = Table(title=title)
    shown.add_column("process")
    for way in found:
        shown.add_column(way)
    names = {name: None for rounds in found.values() for figures in rounds for name in figures.cpu_ms}
    rows = {name: [_spent(rounds, (name,)) for rounds in found.values()] for name in names}
    for name, cells in rows.items():
        if any(spent_ms >= 0.5 for spent_ms, _ in cells):  # what rounds to nothing everywhere
            shown.add_row(name, *(f"{spent_ms:.0f} / {piece_us:.0f}" for spent_ms, piece_us in cells))
    whole = [_spent(rounds, tuple(names)) for rounds in found.values()]
    shown.add_row("all", *(f"{spent_ms:.0f} / {piece_us:.0f}" for spent_ms, piece_us in whole))
    return shown


def _spent(rounds: list[Figures], names: tuple[str, ...]) -> tuple[float, float]:
    """Milliseconds for 1,000 tokens, and microseconds for a piece."""
    spent = [sum(figures.cpu_ms.get(name, 0.0) for name in names) for figures in rounds]
    pieces = [ms * figures.tokens / figures.pieces for ms, figures in zip(spent, rounds, strict=True)]
    return median(spent), median(pieces)


def compared(shared: Mapping[str, list[Figures]], each: Mapping[str, list[Figures]], clients: int) -> Table:
    """How late tokens came when those that wait share a response, with one response a token, and the difference.

    Of each quantile the median of the rounds, and the rounds from..to: the last of a round is one token, and another
    one in the next round.
    """
    shown = Table(title=f"{clients} clients: how late a token came, ms (median of the rounds, from..to)")
    for name in ("way", *(f"p{quantile:g}" if quantile < max(QUANTILES) else "last" for quantile in QUANTILES)):
        shown.add_column(name)
    for way in each:
        late, alone = _quantiles(shared[way]), _quantiles(each[way])
        shown.add_row(way, *map(_spread, late.T))
        shown.add_row("  one response a token", *map(_spread, alone.T))
        differences = np.median(late, axis=0) - np.median(alone, axis=0)
        shown.add_row("  the difference", *(f"{value:+.0f}" for value in differences))
    return shown


def _quantiles(rounds: list[Figures]) -> np.ndarray:
    """[rounds, quantiles]"""
    return np.array([np.percentile(figures.token_late_ms, QUANTILES) for figures in rounds])


def _spread(rounds: np.ndarray) -> str:
    shown = f"{np.median(rounds):.0f}"
    return shown if len(rounds) == 1 else f"{shown} ({min(rounds):.0f}..{max(rounds):.0f})"
