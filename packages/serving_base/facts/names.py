"""The nearest known name to one that is not known."""

from collections.abc import Iterable


def nearest(text: str, known: Iterable[str]) -> str:
    """The one of ``known`` that looks most like ``text``; there is always one, however far."""
    from difflib import SequenceMatcher

    return max(known, key=lambda name: SequenceMatcher(None, text.lower(), name).ratio())
