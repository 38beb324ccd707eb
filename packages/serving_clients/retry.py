"""When a failed request is sent again, and after how long.

Full jitter: the n-th pause (n from 0) is uniform in [0, min(cap, base * 2^n)]. Source: AWS Well-Architected REL05-BP03
and "Exponential Backoff And Jitter", https://aws.amazon.com/blogs/architecture/exponential-backoff-and-jitter/
"""

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING, Any

from serving_clients.requests import (
    BrokenStream,
    ClientError,
    DeadlineExceeded,
    Overloaded,
    TextRequest,
    TimedOut,
    Unreachable,
)

if TYPE_CHECKING:
    from tenacity import RetryCallState, Retrying


@dataclass(frozen=True)
class RetryPolicy:
    """``max_attempts`` counts the first. ``jitter`` False makes every pause the upper bound: only to show the harm."""

    max_attempts: int = 6
    base_s: float = 0.1
    cap_s: float = 5.0
    jitter: bool = True

    def upper_bound_s(self, retry: int) -> float:
        """The longest that the pause before retry number ``retry`` (from 0) may be."""
        return min(self.cap_s, self.base_s * 2.0**retry)


ONCE = RetryPolicy(max_attempts=1)


class RetryBudget:
    """Limits retries to a share of the requests, so that a long outage is not answered with a multiple of the load.

    Every request adds ``ratio`` of a retry, up to ``burst`` of them. Shared by the threads of one client.
    """

    def __init__(self, ratio: float = 0.2, burst: float = 10.0) -> None:
        self._ratio, self._burst, self._left = ratio, burst, burst
        self._lock = threading.Lock()

    def earn(self) -> None:
        with self._lock:
            self._left = min(self._burst, self._left + self._ratio)

    def spend(self) -> bool:
        """Take one retry; False if none is left."""
        with self._lock:
            allowed = self._left >= 1
            self._left -= allowed
            return allowed


def may_repeat(error: BaseException, request: TextRequest) -> bool:
    """Whether sending ``request`` again after ``error`` is safe: the table of chapter 06."""
    match error:
        case Overloaded():
            return True
        case Unreachable():
            return request.idempotent or not error.sent
        case TimedOut():
            return request.idempotent
        case BrokenStream():
            return request.idempotent and (request.restart or not error.pieces)
    return False


def retrying(
    policy: RetryPolicy,
    request: TextRequest,
    *,
    ends_at: float,
    sleep: Callable[[float], None],
    budget: RetryBudget | None = None,
    before_sleep: Callable[[float], None] = lambda pause_s: None,
) -> "Retrying":
    """tenacity's loop for one request; ``ends_at`` on the monotonic clock.

    The last error is raised as it is, but :class:`DeadlineExceeded` if there is no time for the next pause.
    """
    from tenacity import Retrying, retry_if_exception, wait_exponential, wait_random_exponential

    bounds: dict[str, Any] = {"multiplier": policy.base_s, "max": policy.cap_s}
    pause = wait_random_exponential(**bounds) if policy.jitter else wait_exponential(**bounds)

    def wait(state: "RetryCallState") -> float:
        # On top of what the server asked for: all clients were told the same.
        return _retry_after_s(state) + pause(state)

    def stop(state: "RetryCallState") -> bool:
        if state.attempt_number >= policy.max_attempts:
            return True
        if time.monotonic() + state.upcoming_sleep >= ends_at:
            raise _too_late(request, _failure(state), state.upcoming_sleep)
        return budget is not None and not budget.spend()

    return Retrying(
        retry=retry_if_exception(lambda error: may_repeat(error, request)),
        wait=wait,
        stop=stop,
        sleep=sleep,
        before_sleep=lambda state: before_sleep(state.upcoming_sleep),
        reraise=True,
    )


def parse_retry_after(value: str | None, *, now: datetime | None = None) -> float | None:
    """Seconds of a Retry-After header, which is a number or an HTTP date (RFC 9110, 10.2.3); None if it is neither."""
    if not value:
        return None
    if value.strip().isdecimal():
        return float(value)
    try:
        date = parsedate_to_datetime(value)
    except ValueError:
        return None
    date = date if date.tzinfo else date.replace(tzinfo=UTC)
    return max(0.0, (date - (now or datetime.now(UTC))).total_seconds())


def _failure(state: "RetryCallState") -> BaseException | None:
    return state.outcome.exception() if state.outcome else None


def _retry_after_s(state: "RetryCallState") -> float:
    error = _failure(state)
    return (error.retry_after_s or 0.0) if isinstance(error, Overloaded) else 0.0


def _too_late(request: TextRequest, last: BaseException | None, pause_s: float) -> DeadlineExceeded:
    said = last.what if isinstance(last, ClientError) else str(last)
    return DeadlineExceeded(
        f"no time for another attempt within {request.deadline_s:g} s",
        why=f"the last one: {said}; the next could start in {pause_s:.2f} s at the earliest",
        fix="ask again later, or give the request a longer deadline_s",
    )
