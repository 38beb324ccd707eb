"""Where two answers part, and whether 16 bits could tell the two tokens apart."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

BFLOAT16_BITS = 8
"""Significant bits of a bfloat16."""


@dataclass(frozen=True)
class Parting:
    """``at``: how many tokens both answers begin with. ``tokens``: what each has there; None: it has ended."""

    question: int
    at: int
    tokens: tuple[int | None, int | None]


def parting(question: int, expected: Sequence[int], found: Sequence[int]) -> Parting | None:
    """None where the answers are equal."""
    if tuple(expected) == tuple(found):
        return None
    pairs = zip(expected, found, strict=False)
    at = next((at for at, (one, other) in enumerate(pairs) if one != other), min(len(expected), len(found)))
    return Parting(question, at, (_token(expected, at), _token(found, at)))


def _token(answer: Sequence[int], at: int) -> int | None:
    return answer[at] if at < len(answer) else None


def bfloat16_step(value: float) -> float:
    """From this logit to the next one that a bfloat16 can hold."""
    return math.ldexp(1.0, math.frexp(value)[1] - BFLOAT16_BITS) if value else 0.0


def explained(part: Parting, float32: Sequence[float], bfloat16: Sequence[float]) -> str:
    """One sentence for a reader, from the two tokens' logits in both formats."""
    gap, step = abs(float32[0] - float32[1]), bfloat16_step(max(map(abs, float32)))
    what = "within one step: a tie for bfloat16" if gap <= step else f"{gap / step:.1f} steps of bfloat16"
    return (
        f"question {part.question} parts at token {part.at}: {part.tokens[0]} and {part.tokens[1]}; float32 logits "
        f"{float32[0]:.4f} and {float32[1]:.4f}, {what} ({step:g}); bfloat16 {bfloat16[0]:g} and {bfloat16[1]:g}"
    )
