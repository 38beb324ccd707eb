"""One thread steps the engine for the requests of many: in-flight batching behind Triton and the LMI container."""

import itertools
import threading
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Generic, Protocol, TypeVar

from model_server.protocol import EngineLimits, Output, Sampling
from serving_base.errors import EngineError, PlaybookError

UNLIMITED = 1 << 30
IDLE_S = 1.0


class StepEngine(Protocol):
    """The part of the engine that the loop uses."""

    @property
    def config(self) -> EngineLimits: ...
    def submit(self, request_id: int, prompt_ids: tuple[int, ...], sampling: Sampling) -> None: ...
    def cancel(self, request_id: int) -> bool: ...
    def step(self) -> list[Output]: ...
    @property
    def has_work(self) -> bool: ...


@dataclass(frozen=True)
class JobRefused:
    """The engine will not run the job."""

    reason: str


@dataclass(frozen=True)
class Failed:
    """The engine broke while the job ran or waited, or the loop was ``closed``."""

    reason: str
    closed: bool = False


Event = Output | JobRefused | Failed


class JobQueueFull(Exception):
    """As many jobs wait (``waiting``) as may wait (``limit``)."""

    def __init__(self, waiting: int, limit: int) -> None:
        self.waiting, self.limit = waiting, limit
        super().__init__(f"{waiting} jobs wait already, and {limit} may")


@dataclass(eq=False)
class EngineJob:
    """One request: a prompt and its sampling for each row.

    The loop's own: ``numbers``, by which the engine knows the rows, and ``unfinished``, how many sequences still run.
    """

    prompts: tuple[tuple[int, ...], ...]
    samplings: tuple[Sampling, ...]
    numbers: list[int] = field(default_factory=list, init=False)
    unfinished: int = field(default=0, init=False)
    stopped: bool = field(default=False, init=False)


AnyJob = TypeVar("AnyJob", bound=EngineJob)


class EngineLoop(Generic[AnyJob]):
    """Takes jobs from any thread, runs them in the order in which they came, and delivers what happens to them.

    ``deliver(job, row, event)`` runs in the engine's thread. A job ends with :class:`JobRefused`, :class:`Failed`, an
    output with the finish reason "refused" or (unless it was stopped) "cancelled", or with the finish reasons of all
    of its sequences; nothing comes after that.
    ``max_running``: rows that run together; the others wait here. None: all go to the engine, which has a queue too.
    ``max_waiting``: rows that may wait beyond the engine's slots.
    ``survives``: errors of a step after which the engine runs other jobs; any other one breaks the loop.
    ``every_turn`` is called in the engine's thread after every step, and every second when there is none.
    """

    def __init__(
        self,
        engine: StepEngine,
        deliver: Callable[[AnyJob, int, Event], None],
        *,
        max_running: int | None = None,
        max_waiting: int = UNLIMITED,
        survives: tuple[type[Exception], ...] = (),
        every_turn: "Callable[[EngineLoop[AnyJob]], None]" = lambda loop: None,
    ) -> None:
        self._engine = engine
        self._deliver = deliver
        self._slots = min(max_running or UNLIMITED, engine.config.max_batch_size)
        self._max_running = UNLIMITED if max_running is None else self._slots
        self._max_waiting = max_waiting
        self._survives = survives
        self._every_turn = every_turn
        self._wake = threading.Condition()
        self._jobs: list[AnyJob] = []
        self._waiting: deque[AnyJob] = deque()
        self._rows: dict[int, tuple[AnyJob, int]] = {}
        self._cancelled: deque[AnyJob] = deque()
        self._stopped: deque[AnyJob] = deque()
        self._numbers = itertools.count()
        self._closing = ""
        self.broken = ""
        self._thread = threading.Thread(target=self._run, name="engine", daemon=True)
        self._thread.start()

    def check(self, job: AnyJob) -> None:
        """Raise :class:`EngineError` for a job that can never run, without waiting for a slot."""
        for prompt, sampling in zip(job.prompts, job.samplings, strict=True):
            sampling.check()
            self._engine.config.check_fits(len(prompt), sampling, UNLIMITED)

    def submit(self, job: AnyJob) -> None:
        """Queue a job. Raises :class:`JobQueueFull`, and :class:`EngineError` when the engine is broken."""
        with self._wake:
            if self.broken:
                raise EngineError("the engine is broken", why=self.broken, fix="start the server again")
            beyond = len(self._rows) + sum(len(other.prompts) for other in self._waiting) - self._slots
            if beyond >= self._max_waiting:
                raise JobQueueFull(len(self._waiting), self._max_waiting)
            self._jobs.append(job)
            self._waiting.append(job)
            self._wake.notify()

    def cancel(self, job: AnyJob) -> None:
        """Forget a job; nothing more is delivered for it, and its slots become free. Safe after its end."""
        self._note(self._cancelled, job)

    def stop(self, job: AnyJob) -> None:
        """End a job with what it has: its sequences finish as "cancelled"."""
        job.stopped = True
        self._note(self._stopped, job)

    def close(self, reason: str) -> None:
        """End the thread; what runs or waits is told the reason."""
        with self._wake:
            self._closing = reason
            self._wake.notify()
        self._thread.join()

    @property
    def jobs(self) -> tuple[AnyJob, ...]:
        """Those that run or wait."""
        with self._wake:
            return tuple(self._jobs)

    def alone(self, job: AnyJob) -> bool:
        """Whether no other one runs or waits."""
        return len(self._jobs) < 2 and self.jobs in ((), (job,))

    def _note(self, where: deque[AnyJob], job: AnyJob) -> None:
        with self._wake:
            where.append(job)
            self._wake.notify()

    def _run(self) -> None:
        try:
            while self._wait_for_work():
                self._drop_cancelled()
                self._admit()
                self._end_stopped()
                if self._engine.has_work:
                    self._step()
                self._every_turn(self)
            self._drop_cancelled()
            for number in self._rows:
                self._engine.cancel(number)
            self._break(Failed(self._closing, closed=True))
        except EngineError as error:
            self._break(Failed(str(error)))
        except Exception as error:
            self._break(Failed(repr(error)))
            raise

    def _wait_for_work(self) -> bool:
        with self._wake:
            noted = self._waiting or self._cancelled or self._stopped
            if not (self._closing or noted or self._engine.has_work):
                self._wake.wait(IDLE_S)
            return not self._closing

    def _drop_cancelled(self) -> None:
        while self._cancelled:
            self._drop(self._cancelled.popleft())

    def _admit(self) -> None:
        while self._waiting and len(self._rows) < self._max_running:
            self._begin(self._waiting[0])

    def _end_stopped(self) -> None:
        while self._stopped:
            job = self._stopped.popleft()
            if job in self._waiting:
                self._begin(job)
            for number in job.numbers:
                self._engine.cancel(number)

    def _begin(self, job: AnyJob) -> None:
        with self._wake:
            self._waiting.remove(job)
            for row, sampling in enumerate(job.samplings):
                job.numbers.append(next(self._numbers))
                self._rows[job.numbers[-1]] = job, row
                job.unfinished += sampling.num_return_sequences
        try:
            for number, prompt, sampling in zip(job.numbers, job.prompts, job.samplings, strict=True):
                self._engine.submit(number, prompt, sampling)
        except EngineError as error:
            self._drop(job)
            self._deliver(job, 0, JobRefused(one_line(error)))

    def _step(self) -> None:
        try:
            outputs = self._engine.step()
        except self._survives as error:
            for job in [job for job in self.jobs if job.numbers]:
                self._drop(job)
                self._deliver(job, 0, Failed(str(error)))
            return
        for output in outputs:
            found = self._rows.get(output.request_id)
            if found:
                self._pass_on(*found, output)

    def _pass_on(self, job: AnyJob, row: int, output: Output) -> None:
        if output.finish_reason:
            self._end_sequence(job, output.finish_reason)
        self._deliver(job, row, output)

    def _end_sequence(self, job: AnyJob, reason: str) -> None:
        job.unfinished -= 1
        if reason == "refused" or (reason == "cancelled" and not job.stopped):
            self._drop(job)
        elif not job.unfinished:
            self._forget(job)

    def _drop(self, job: AnyJob) -> None:
        """Forget a job here and in the engine."""
        if self._forget(job):
            for number in job.numbers:
                self._engine.cancel(number)

    def _forget(self, job: AnyJob) -> bool:
        """False: it had ended already."""
        with self._wake:
            if job not in self._jobs:
                return False
            self._jobs.remove(job)
            if job in self._waiting:
                self._waiting.remove(job)
            for number in job.numbers:
                del self._rows[number]
            return True

    def _break(self, failed: Failed) -> None:
        """Take no more jobs, and tell those that are here."""
        with self._wake:
            self.broken = failed.reason
        for job in self.jobs:
            self._forget(job)
            self._deliver(job, 0, failed)


def one_line(error: PlaybookError) -> str:
    """What, why and fix in one sentence for a client."""
    return "; ".join(part for part in (error.what, error.why, error.fix) if part)
