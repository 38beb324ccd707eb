"""Which release of a package is supposed where the text tells none, and who asked for it.

A family asks for a supposition where it finds no release in the text; :mod:`trtllm_check.lint.guesses` watches that,
and asks the family again with others.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

_SUPPOSED: ContextVar[tuple[str, str]] = ContextVar("supposed", default=("", ""))
_ASKED: ContextVar[set[str] | None] = ContextVar("asked", default=None)


def supposed(package: str) -> str:
    """The release that is supposed of ``package``, "" for none."""
    asked = _ASKED.get()
    if asked is not None:
        asked.add(package)
    name, version = _SUPPOSED.get()
    return version if name == package else ""


@contextmanager
def suppose(package: str, version: str) -> Iterator[None]:
    """Inside, ``package`` is of ``version`` in every text that does not say otherwise."""
    before = _SUPPOSED.set((package, version))
    try:
        yield
    finally:
        _SUPPOSED.reset(before)


@contextmanager
def watched() -> Iterator[set[str]]:
    """The packages whose release was asked for inside, and not told by the text."""
    asked: set[str] = set()
    before = _ASKED.set(asked)
    try:
        yield asked
    finally:
        _ASKED.reset(before)
