"""One thread steps the engine for the requests of many: in-flight batching behind the container's HTTP server."""

import threading
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from cpu_serving.protocol import EngineConfig, Output, Sampling
from serving_base.errors import EngineError

UNLIMITED = 1 << 30


class StepEngine(Protocol):
    """The part of the engine that the loop uses."""

    config: EngineConfig

    def submit(self, request_id: int, prompt_ids: tuple[int, ...], sampling: Sampling) -> None: ...
    def cancel(self, request_id: int) -> bool: ...
    def step(self) -> list[Output]: ...
    @property
    def has_work(self) -> bool: ...


@dataclass(frozen=True)
class Refused:
    """The engine will not run the request."""

    reason: str


@dataclass(frozen=True)
class Failed:
    """The engine broke while the request ran."""

    reason: str


Event = Output | Refused | Failed
Deliver = Callable[[Event], None]
"""Called in the engine's thread. After Refused, Failed or an Output with a finish reason nothing more comes."""


class QueueFull(Exception):
    """As many requests wait as may wait."""


@dataclass
class _Job:
    number: int
    prompt_ids: tuple[int, ...]
    sampling: Sampling
    deliver: Deliver


class EngineLoop:
    """At most ``max_running`` requests run together, at most ``max_waiting`` wait. Safe for threads."""

    def __init__(self, engine: StepEngine, *, max_running: int, max_waiting: int) -> None:
        self._engine = engine
        self._max_running = min(max_running, engine.config.max_batch_size)
        self._max_waiting = max_waiting
        self._wake = threading.Condition()
        self._waiting: deque[_Job] = deque()
        self._running: dict[int, _Job] = {}
        self._cancelled: list[int] = []
        self._next = 0
        self._closing = False
        self.broken = ""
        self._thread = threading.Thread(target=self._run, name="engine", daemon=True)
        self._thread.start()

    def submit(self, prompt_ids: tuple[int, ...], sampling: Sampling, deliver: Deliver) -> int:
        """Queue a request and return its number. Raises :class:`EngineError`, or :class:`QueueFull`."""
        sampling.check()
        self._engine.config.check_fits(len(prompt_ids), sampling, UNLIMITED)
        with self._wake:
            if self.broken:
                raise EngineError("the engine is broken", why=self.broken, fix="restart the container")
            excess = len(self._running) + len(self._waiting) - self._max_running
            if excess >= self._max_waiting:
                raise QueueFull(
                    f"{len(self._waiting)} requests wait already, and job_queue_size is {self._max_waiting}"
                )
            job = _Job(self._next, prompt_ids, sampling, deliver)
            self._next += 1
            self._waiting.append(job)
            self._wake.notify()
            return job.number

    def cancel(self, number: int) -> None:
        """Forget a request; nothing more is delivered for it, and its slot becomes free."""
        with self._wake:
            self._cancelled.append(number)
            self._wake.notify()

    @property
    def running(self) -> int:
        return len(self._running)

    def close(self) -> None:
        """End the thread; what runs or waits is told so."""
        with self._wake:
            self._closing = True
            self._wake.notify()
        self._thread.join()

    def _run(self) -> None:
        try:
            while self._wait_for_work():
                self._drop_cancelled()
                self._admit()
                for output in self._engine.step():
                    self._pass_on(output)
            for number in self._running:
                self._engine.cancel(number)
            self._fail_all("the container is shutting down")
        except EngineError as error:
            self._fail_all(str(error))
        except Exception as error:
            self._fail_all(repr(error))
            raise

    def _wait_for_work(self) -> bool:
        with self._wake:
            while not (self._closing or self._waiting or self._cancelled or self._engine.has_work):
                self._wake.wait()
            return not self._closing

    def _drop_cancelled(self) -> None:
        with self._wake:
            numbers, self._cancelled = set(self._cancelled), []
            self._waiting = deque(job for job in self._waiting if job.number not in numbers)
        for number in numbers:
            if self._running.pop(number, None) is not None:
                self._engine.cancel(number)

    def _admit(self) -> None:
        while len(self._running) < self._max_running:
            with self._wake:
                if not self._waiting:
                    return
                job = self._waiting.popleft()
                self._running[job.number] = job
            try:
                self._engine.submit(job.number, job.prompt_ids, job.sampling)
            except EngineError as error:
                del self._running[job.number]
                job.deliver(Refused(one_line(error)))

    def _pass_on(self, output: Output) -> None:
        job = self._running.get(output.request_id)
        if job is None:
            return
        if output.finish_reason:
            del self._running[output.request_id]
        if output.finish_reason in ("refused", "cancelled"):
            job.deliver(Failed(f"the engine gave the request up: {output.finish_reason}"))
        else:
            job.deliver(output)

    def _fail_all(self, reason: str) -> None:
        with self._wake:
            self.broken = reason
            jobs = [*self._running.values(), *self._waiting]
            self._running.clear()
            self._waiting.clear()
        for job in jobs:
            job.deliver(Failed(reason))


def one_line(error: EngineError) -> str:
    """What, why and fix in one sentence for a client."""
    return "; ".join(part for part in (error.what, error.why, error.fix) if part)
