"""An engine that stays open between calls: one that takes a minute to start is started once for a chapter."""

import atexit
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from model_server.engines import EngineOptions, ServedEngine, opener_of, warm_up


@dataclass
class _Held:
    folder: Path
    engine: ServedEngine


_held: list[_Held] = []


@contextmanager
def held_engine(folder: Path) -> Iterator[ServedEngine]:
    """The engine of ``folder``, left open; another one that is open is closed first, a broken one afterwards.

    For one thread. :func:`release_engine` frees it, and so does the end of this process.
    """
    if not (_held and _held[0].folder == folder):
        release_engine()
        engine = opener_of(folder).open_engine(folder, EngineOptions())
        _held.append(_Held(folder, engine))
        warm_up(engine)
    try:
        yield _held[0].engine
    finally:
        if _held and _held[0].engine.closed:
            release_engine()


@atexit.register
def release_engine() -> None:
    """Close the engine that is open, if one is: its memory is free for a server or another engine."""
    while _held:
        _held.pop().engine.close()
