"""Opens an engine folder with the package that built it; what a server needs of any engine, and one held open."""

import atexit
import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any, Protocol, cast

import numpy as np

from model_server.loop import StepEngine
from model_server.protocol import Batching, EngineStats, Sampling
from serving_base.errors import EngineError, MissingArtifact

OPENERS = {"openvino": "cpu_serving.serving", "vllm": "vllm_serving.serving"}
"""``builder`` of an engine's config.json -> module with the functions of :class:`Opener`."""


@dataclass(frozen=True)
class EngineOptions:
    """How a server wants its engine.

    ``threads`` 0: as many as the machine offers. ``kv_cache_tokens`` 0: enough for a full batch.
    ``enable_block_reuse`` None: as built. ``gpu_sharers``: engines that may run on one GPU at once; each takes its part
    of the memory that it was built to take. ``apart``: in a process of its own, as a server wants an engine whose steps
    hold Python's global lock.
    """

    threads: int = 0
    batching: Batching = "inflight"
    kv_cache_tokens: int = 0
    enable_block_reuse: bool | None = None
    gpu_sharers: int = 1
    apart: bool = False


Logits = Callable[[Sequence[int]], np.ndarray]
"""Logits of token ids: float32 of shape (len(ids), vocabulary)."""


class ServedEngine(StepEngine, Protocol):
    """An engine behind a server: one thread steps it, any thread submits and cancels."""

    @property
    def closed(self) -> bool:
        """Whether it takes no more requests: it was closed, or what computes has ended."""

    def stats(self) -> EngineStats: ...
    def close(self) -> None: ...


class Opener(Protocol):
    """The module that opens the engines of one builder.

    ``FILLS_UNASKED``: outputs that nobody asked for come as zeros where the release's backend sends them so.
    """

    FILLS_UNASKED: bool

    def open_engine(self, folder: Path, options: EngineOptions) -> ServedEngine:
        """The engine; see :func:`warm_up` for its first step."""

    def open_logits(self, folder: Path) -> Logits:
        """A second copy of the weights that gives logits. :class:`RequestRefused` where there are none."""


def opener_of(folder: Path) -> Opener:
    """The opener of an engine folder. Raises :class:`MissingArtifact` and :class:`EngineError`."""
    path = folder / "config.json"
    if not path.is_file():
        raise MissingArtifact(f"no engine in {folder}", why="config.json is not there", fix="build the engine")
    try:
        written: Any = json.loads(path.read_text(encoding="utf-8"))
        module = OPENERS[written["builder"]["name"]]
    except (ValueError, KeyError, TypeError) as error:
        raise EngineError(
            f"{path} names no builder that this server knows",
            why=repr(error),
            fix=f"build the engine again; known are {', '.join(OPENERS)}",
        ) from error
    return cast("Opener", import_module(module))


def warm_up(engine: StepEngine) -> None:
    """Two tokens of an answer for nobody: the first step of a fresh engine takes much longer than the others."""
    engine.submit(0, (0,), Sampling(max_new_tokens=2, log_probs=True))
    while engine.has_work:
        engine.step()


@dataclass
class _Held:
    folder: Path
    engine: ServedEngine


_held: list[_Held] = []


@contextmanager
def held_engine(folder: Path) -> Iterator[ServedEngine]:
    """The engine of ``folder``, left open between calls: one that takes a minute to start does so once for a chapter.

    Another one that is open is closed first, a broken one afterwards. For one thread.
    :func:`release_engine` frees it, and so does the end of this process.
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
