"""How many requests a client may have on the way, and how many may wait for that."""

import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from playbook.clients.errors import DeadlineExceeded, QueueFull
from serving_base.errors import UsageError


class Admission:
    """``max_in_flight`` slots, given in the order of asking, and a queue of ``max_waiting`` places."""

    def __init__(self, max_in_flight: int, max_waiting: int) -> None:
        if max_in_flight < 1 or max_waiting < 0:
            raise UsageError(
                f"max_in_flight is {max_in_flight}, max_waiting is {max_waiting}",
                fix="use at least one slot, and a queue of 0 or more",
            )
        self.max_in_flight, self.max_waiting = max_in_flight, max_waiting
        self._taken = 0
        self._queue: deque[object] = deque()
        self._changed = threading.Condition()

    @contextmanager
    def slot(self, ends_at: float, given_up: Callable[[], bool]) -> Iterator[None]:
        """Hold a slot. :class:`QueueFull` at once if the queue is full, :class:`DeadlineExceeded` after too long.

        ``given_up`` ends the wait, but not with an error: the caller knows why. Call :meth:`wake` when it turns true.
        """
        self._enter(ends_at, given_up)
        try:
            yield
        finally:
            with self._changed:
                self._taken -= 1
                self._changed.notify_all()

    def wake(self) -> None:
        """Let those who wait look whether they have been given up."""
        with self._changed:
            self._changed.notify_all()

    def _enter(self, ends_at: float, given_up: Callable[[], bool]) -> None:
        ticket = object()
        with self._changed:
            if self._taken + len(self._queue) >= self.max_in_flight + self.max_waiting:
                raise QueueFull(
                    "client queue is full",
                    why=f"{self._taken} requests are on the way and {len(self._queue)} wait, as many as may",
                    fix="ask again later, or serve more and raise max_in_flight",
                )
            self._queue.append(ticket)
            try:
                ready = self._changed.wait_for(
                    lambda: given_up() or (self._queue[0] is ticket and self._taken < self.max_in_flight),
                    ends_at - time.monotonic(),
                )
                if not ready:
                    raise DeadlineExceeded(
                        "the deadline came while the request waited for a slot of this client",
                        why=f"{self._taken} requests are on the way, as many as may",
                        fix="give the request a longer deadline_s, or raise max_in_flight",
                    )
                self._taken += 1
            finally:
                self._queue.remove(ticket)
                self._changed.notify_all()
