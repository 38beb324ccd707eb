"""How late the pieces of a stream come: from the engine's token to the client, by one clock."""

from collections.abc import Callable, Sequence

from benchmarks.streaming.client import Pieces

TokenTime = tuple[float, int]


def late_ms(pieces: Pieces, tokens: Sequence[TokenTime], size: Callable[[list[int]], int]) -> list[float]:
    """For each piece the time from its first token's leaving the engine to its coming, in milliseconds.

    So the way of a single token is in it, and what a piece waited for its other tokens. ``size``: of ids as in
    ``pieces.sizes``; a piece takes as few tokens as make it up. ValueError where the engine's tokens do not make it up.
    """
    found, began = [], 0
    for at_s, wanted in zip(pieces.at_s, pieces.sizes, strict=True):
        ended = began + 1
        while ended <= len(tokens) and size([token for _, token in tokens[began:ended]]) < wanted:
            ended += 1
        if ended > len(tokens):
            raise ValueError(f"a piece of size {wanted} is not made of the engine's tokens {began} to {len(tokens)}")
        found.append(1e3 * (at_s - tokens[began][0]))
        began = ended
    return found
