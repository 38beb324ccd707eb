"""Cores for the server, cores for the load generator: on one machine they would otherwise take each other's time."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

GENERATOR_SHARE = 4


@dataclass(frozen=True)
class Cores:
    """Two disjoint sets of core numbers; on a machine with a single core both are that core."""

    server: frozenset[int]
    generator: frozenset[int]


def split_cores() -> Cores:
    """The cores that this process may use: the last quarter, at least one, for the generator."""
    usable = sorted(os.sched_getaffinity(0))
    count = max(1, len(usable) // GENERATOR_SHARE)
    return Cores(frozenset(usable[:-count] or usable), frozenset(usable[-count:]))


@contextmanager
def on_cores(cores: frozenset[int]) -> Iterator[None]:
    """Whatever this thread starts meanwhile, processes and threads, runs on ``cores``, and stays there."""
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, cores)
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)
