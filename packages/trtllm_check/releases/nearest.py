"""The known name that a misspelt one is like: rules ask it again for each release that a text leaves open."""

from difflib import get_close_matches
from functools import lru_cache


@lru_cache(maxsize=2048)
def nearest(name: str, known: frozenset[str], cutoff: float) -> str:
    """The one of ``known`` that is most like ``name``, "" where none is as like as ``cutoff``."""
    return "".join(get_close_matches(name, known, 1, cutoff))
