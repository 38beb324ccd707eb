"""Which tests run, and an end for a run in which one of them stays: nobody else would say which it is.

A test that hangs fails by pytest-timeout, or ends its worker by faulthandler. A worker that was stopped from outside
does neither.
"""

import os
import threading

import psutil
import pytest

LIMIT_S = "TESTS_LIMIT_S"
LONGEST_S = 3600.0
"""A whole run takes a quarter of an hour on two quiet cores."""
FAILED = 1


class Running:
    """A plugin of the process that hands tests out: ``limit_s`` after the first it names those that run, and ends."""

    def __init__(self, config: pytest.Config, limit_s: float) -> None:
        self._config = config
        self._limit_s = limit_s
        self._running: dict[str, None] = {}
        self._clock = threading.Timer(limit_s, self._give_up)
        self._clock.daemon = True

    def pytest_sessionfinish(self) -> None:
        self._clock.cancel()

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        if self._clock.ident is None:
            self._clock.start()
        self._running[nodeid] = None

    def pytest_runtest_logfinish(self, nodeid: str) -> None:
        self._running.pop(nodeid, None)

    def _give_up(self) -> None:
        writer = self._config.get_terminal_writer()
        writer.line(f"\nnot at its end after {self._limit_s:g} s; still running:", red=True)
        for nodeid in self._running:
            writer.line(f"  {nodeid}")
        children = psutil.Process().children(recursive=True)
        for child in children:
            writer.line(f"  {_described(child)}")
        writer.flush()
        for child in children:
            _end(child)
        os._exit(FAILED)


def _described(process: psutil.Process) -> str:
    try:
        return f"process {process.pid} ({process.status()}): {' '.join(process.cmdline())[:100]}"
    except psutil.Error:
        return f"process {process.pid} has ended"


def _end(process: psutil.Process) -> None:
    try:
        process.kill()
    except psutil.Error:
        return
