"""Waiting for what happens, not for a time to pass: a busy machine takes longer, and a test must not notice."""

import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

T = TypeVar("T")
LIMIT_S = 120.0
TRIES = 20


def until(condition: Callable[[], T], what: str, limit_s: float = LIMIT_S) -> T:
    """What ``condition`` returns as soon as it is true; the test fails if it never is."""
    end_s = time.monotonic() + limit_s
    while not (found := condition()):
        assert time.monotonic() < end_s, f"not within {limit_s:g} s: {what}"
        time.sleep(0.02)
    return found


def tried(attempt: Callable[[], T | None], what: str) -> T:
    """What the first ``attempt`` that comes in time returns; one that came too late returns None.

    For a request that something must meet while it runs: on a busy machine it may be over before.
    """
    for _ in range(TRIES):
        if (found := attempt()) is not None:
            return found
    raise AssertionError(f"not once in {TRIES} tries: {what}")


@contextmanager
def interruptible() -> Iterator[None]:
    """A process that starts meanwhile takes SIGINT, though whoever runs tests in a shell's background switched it off.

    Not by ``preexec_fn``: that forks, and a gRPC client of an earlier test aborts in the child.
    """
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
