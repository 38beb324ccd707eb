"""The production client: one request, one answer, over any transport, with limits on time, retries and concurrency.

Usable without the rest of the course::

    from serving_clients import Client, TextRequest, TritonHttp

    with Client(TritonHttp("http://127.0.0.1:8000"), max_in_flight=8) as client:
        print(client.generate(TextRequest("The value of", max_tokens=16)).text)

:class:`Admission` bounds how many requests are on the way, and how many may wait for that.
"""

import threading
import time
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import closing, contextmanager
from dataclasses import dataclass, field, replace
from itertools import islice
from types import TracebackType
from typing import Self

from serving_base.errors import UsageError
from serving_clients.requests import (
    DEFAULT_TIMEOUTS,
    Attempt,
    AttemptLimits,
    Cancelled,
    ClientError,
    DeadlineExceeded,
    Piece,
    QueueFull,
    Refused,
    TextRequest,
    TextResult,
    Timeouts,
    Transport,
    new_id,
)
from serving_clients.retry import RetryBudget, RetryPolicy, retrying


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


Outcome = TextResult | ClientError
DEFAULT_RETRY = RetryPolicy()


@dataclass
class _Call:
    """One request on its way: what was tried and what the caller has got.

    ``token`` makes its ids on the wire its own: the stop for an answer that was left comes late on a busy machine, and
    must not end the same request when it is sent again.
    """

    request: TextRequest
    started_s: float
    token: str = field(default_factory=lambda: new_id()[:8])
    attempts: list[Attempt] = field(default_factory=list)
    texts: list[str] = field(default_factory=list)
    tokens: int | None = None
    finish: str | None = None
    first_s: float = 0.0
    cancelled: threading.Event = field(default_factory=threading.Event)

    @property
    def ends_at(self) -> float:
        return self.started_s + self.request.deadline_s

    def raise_if_over(self) -> None:
        """The caller's end of the call and the deadline's take precedence over whatever else went wrong."""
        if self.cancelled.is_set():
            raise Cancelled("the caller cancelled the request", pieces=self.texts)
        if time.monotonic() >= self.ends_at:
            raise DeadlineExceeded(
                f"no whole answer within {self.request.deadline_s:g} s",
                why=f"{len(self.attempts) + 1} attempts, {len(self.texts)} pieces of the answer",
                fix="ask for fewer tokens, or give the request a longer deadline_s",
                pieces=self.texts,
            )

    def take(self, piece: Piece) -> None:
        self.first_s = self.first_s or time.monotonic()
        self.texts.append(piece.text)

    def result(self, transport: str) -> TextResult:
        now = time.monotonic()
        return TextResult(
            request_id=self.request.request_id,
            text="".join(self.texts),
            pieces=tuple(self.texts),
            tokens=self.tokens,
            finish=self.finish,
            attempts=tuple(self.attempts),
            ttft_ms=1000 * ((self.first_s or now) - self.started_s),
            e2e_ms=1000 * (now - self.started_s),
            transport=transport,
        )


class Client:
    """Sends requests from any number of threads and gives each exactly one result or one :class:`ClientError`.

    ``max_in_flight`` requests are on the way at once, pauses between attempts included; ``max_waiting`` more wait their
    turn; any further one is refused with :class:`QueueFull`. ``budget`` limits retries over all requests.
    """

    def __init__(
        self,
        transport: Transport,
        *,
        timeouts: Timeouts = DEFAULT_TIMEOUTS,
        retry: RetryPolicy = DEFAULT_RETRY,
        budget: RetryBudget | None = None,
        max_in_flight: int = 16,
        max_waiting: int = 256,
    ) -> None:
        self._transport, self._timeouts, self._retry, self._budget = transport, timeouts, retry, budget
        self._admission = Admission(max_in_flight, max_waiting)
        self._calls: dict[str, _Call] = {}
        self._lock = threading.Lock()
        self._closed = False

    def generate(self, request: TextRequest) -> TextResult:
        """The whole answer. Raises one of `serving_clients.requests`."""
        result, _ = finish(self.stream(request))
        return result

    def stream(self, request: TextRequest) -> Generator[str, None, TextResult]:
        """The answer's texts as they arrive; the generator's return value is the result.

        Closing the generator early (or leaving it to be collected) frees the caller and the connection at once.
        Triton's ensemble looks for a cancellation between its steps only, so the step that generates would run on to
        ``max_tokens`` (triton-inference-server/core#263, server#6739): the transport asks the backend to stop it.
        """
        call = _Call(request, time.monotonic())
        try:
            with self._registered(call):
                yield from self._deliver(call)
            return call.result(self._transport.name)
        except ClientError as error:
            failure = self._told(error, call)
        # Outside the handler, so that no frame that held a header's value hangs on the error.
        raise failure

    def map(self, requests: Iterable[TextRequest]) -> Iterator[Outcome]:
        """One outcome for each request, in their order; a failure takes the place of its result."""
        with ThreadPoolExecutor(self._admission.max_in_flight) as pool:
            yield from pool.map(self._outcome, requests)

    def as_completed(self, requests: Iterable[TextRequest]) -> Iterator[tuple[TextRequest, Outcome]]:
        """Each request with its outcome, in the order of their ends. Takes requests only as fast as it answers."""
        waiting = iter(requests)
        running: dict[Future[Outcome], TextRequest] = {}
        with ThreadPoolExecutor(self._admission.max_in_flight) as pool:
            while True:
                for request in islice(waiting, self._admission.max_in_flight - len(running)):
                    running[pool.submit(self._outcome, request)] = request
                if not running:
                    return
                done, _ = wait(running, return_when=FIRST_COMPLETED)
                for future in done:
                    yield running.pop(future), future.result()

    def cancel(self, request_id: str) -> bool:
        """Give up a request of another thread: it raises :class:`Cancelled` at its next piece or pause.

        False if no such request is on the way.
        """
        with self._lock:
            call = self._calls.get(request_id)
        if call is None:
            return False
        call.cancelled.set()
        self._admission.wake()
        return True

    def close(self) -> None:
        """Cancel what is on the way and close the connections. Safe twice."""
        with self._lock:
            self._closed = True
            ids = list(self._calls)
        for request_id in ids:
            self.cancel(request_id)
        self._transport.close()

    def _outcome(self, request: TextRequest) -> Outcome:
        try:
            return self.generate(request)
        except ClientError as error:
            return error

    @contextmanager
    def _registered(self, call: _Call) -> Iterator[None]:
        request_id = call.request.request_id
        with self._lock:
            if self._closed:
                raise UsageError("this client is closed", fix="make another")
            if request_id in self._calls:
                raise UsageError(
                    f"request {request_id!r} is on the way already",
                    why="its answer would be given twice",
                    fix="leave request_id out, or use one per request",
                )
            self._calls[request_id] = call
        try:
            yield
        finally:
            with self._lock:
                del self._calls[request_id]

    def _deliver(self, call: _Call) -> Iterator[str]:
        with self._admission.slot(call.ends_at, call.cancelled.is_set):
            if self._budget is not None:
                self._budget.earn()
            attempts = retrying(
                self._retry,
                call.request,
                ends_at=call.ends_at,
                sleep=lambda seconds: pause(call.cancelled, seconds),
                budget=self._budget,
                before_sleep=lambda seconds: _note_pause(call, seconds),
            )
            for attempt in attempts:
                with attempt:
                    yield from self._attempt(call)

    def _attempt(self, call: _Call) -> Iterator[str]:
        """One attempt. A restarted answer yields only what the caller has not got yet."""
        call.raise_if_over()
        wire_id = f"{call.request.request_id}.{len(call.attempts) + 1}.{call.token}"
        started_s, outcome = time.monotonic(), "left"
        known = "".join(call.texts)
        try:
            with closing(
                self._transport.send(call.request, wire_id, AttemptLimits(self._timeouts, call.ends_at))
            ) as pieces:
                for piece in pieces:
                    call.raise_if_over()
                    new, known = _without(known, piece, call)
                    if new is not None:
                        call.take(new)
                        yield new.text
                    call.tokens, call.finish = piece.tokens or call.tokens, piece.finish or call.finish
            if known:
                raise _diverged(call)
            outcome = "ok"
        except ClientError as error:
            outcome = type(error).__name__
            call.raise_if_over()
            raise
        finally:
            call.attempts.append(Attempt(started_s, time.monotonic() - started_s, outcome))

    def _told(self, error: ClientError, call: _Call) -> ClientError:
        """The error as the caller may see it: complete, without secrets, without the frames it came through."""
        error.what, error.why, error.fix = map(self._transport.redacted, (error.what, error.why, error.fix))
        error.args = (error.what,)
        error.request_id, error.attempts = call.request.request_id, tuple(call.attempts)
        error.pieces = tuple(call.texts)
        error.__cause__ = error.__context__ = None
        return error.with_traceback(None)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def finish(answer: Generator[str, None, TextResult]) -> tuple[TextResult, str]:
    """Read an answer of :meth:`Client.stream` to its end: the result, and the text that was still to come."""
    rest: list[str] = []
    while True:
        try:
            rest.append(next(answer))
        except StopIteration as end:
            return end.value, "".join(rest)


def pause(cancelled: threading.Event, seconds: float) -> None:
    """The wait between two attempts; ends early when the request is cancelled."""
    cancelled.wait(seconds)


def _note_pause(call: _Call, seconds: float) -> None:
    call.attempts[-1] = replace(call.attempts[-1], wait_s=seconds)


def _without(known: str, piece: Piece, call: _Call) -> tuple[Piece | None, str]:
    """``piece`` less what the caller has already, and what of that is still to come again."""
    if not known:
        return piece, ""
    if known.startswith(piece.text):
        return None, known[len(piece.text) :]
    if piece.text.startswith(known):
        return replace(piece, text=piece.text[len(known) :]), ""
    raise _diverged(call)


def _diverged(call: _Call) -> Refused:
    return Refused(
        "the answer that began again is another one",
        why="its text differs from what had been delivered",
        fix="set restart only for greedy decoding or with a seed",
        pieces=call.texts,
    )
