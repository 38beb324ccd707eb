"""A connection that is asked again and again, at every step of an engine, whether something has come."""

import select
from multiprocessing.connection import Connection


class PolledConnection(Connection):
    """multiprocessing's own makes a selector for each question, which costs more than to read what has come."""

    def __init__(self, descriptor: int) -> None:
        super().__init__(descriptor)
        self._poller = select.poll()
        self._poller.register(descriptor, select.POLLIN)

    def poll(self, timeout: float | None = 0.0) -> bool:
        """Whether a message, or the other side's end, comes within ``timeout`` seconds; None waits for ever."""
        return bool(self._poller.poll(None if timeout is None else 1e3 * timeout))
