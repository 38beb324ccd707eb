"""Runs the engine in one thread and answers the requests of many: in-flight batching behind Triton."""

import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np

from cpu_serving.protocol import EngineConfig, EngineStats, Output, Sampling
from cpu_serving.triton.answers import Logits, SequenceState, next_tensors
from cpu_serving.triton.request import GenerationRequest
from serving_base.errors import PlaybookError, RequestRefused

MIN_CANCEL_CHECK_S = 0.1
"""Triton 2.51 crashed when asked every 5 ms while many clients disconnected; every 100 ms it did not."""
OBSERVE_S = 0.1
IDLE_S = 1.0


class StepEngine(Protocol):
    """The part of the engine that the batcher uses."""

    config: EngineConfig

    def submit(self, request_id: int, prompt_ids: tuple[int, ...], sampling: Sampling) -> None: ...
    def cancel(self, request_id: int) -> bool: ...
    def step(self) -> list[Output]: ...
    def stats(self) -> EngineStats: ...
    @property
    def has_work(self) -> bool: ...


class Reply(Protocol):
    """Where the answer of one request goes. After a final call it takes no more.

    ``send`` with None: no response, only the final flag, which a decoupled model may do. With {}: an empty response.
    """

    def send(self, tensors: dict[str, np.ndarray] | None, *, final: bool) -> None: ...
    def fail(self, message: str, *, cancelled: bool = False, overloaded: bool = False) -> None: ...
    def cancelled(self) -> bool: ...


@dataclass
class _Live:
    request_id: str
    request: GenerationRequest
    reply: Reply
    sequences: dict[tuple[int, int], SequenceState]
    numbers: list[int] = field(default_factory=list)
    stopped: bool = False

    @property
    def done(self) -> bool:
        return all(state.done for state in self.sequences.values())


class Batcher:
    """Takes requests from any thread; one thread steps the engine and sends every answer.

    ``placeholders``: see :func:`next_tensors`. ``max_queue_size`` 0: no limit; else a request is refused when that
    many wait for a slot already.
    ``observe`` is called now and then with the engine's figures and the prompt tokens that wait for their first answer,
    ``count`` at every end with the lengths of prompt and answer.
    """

    def __init__(
        self,
        engine: StepEngine,
        logits: Callable[[], Logits],
        *,
        placeholders: bool = False,
        max_queue_size: int = 0,
        cancel_check_s: float = MIN_CANCEL_CHECK_S,
        observe: Callable[[EngineStats, int], None] = lambda stats, context_tokens: None,
        count: Callable[[int, int], None] = lambda prompt, answer: None,
    ) -> None:
        self._engine = engine
        self._logits = logits
        self._placeholders = placeholders
        self._max_queue_size = max_queue_size
        self._cancel_check_s = max(cancel_check_s, MIN_CANCEL_CHECK_S)
        self._observe = observe
        self._count = count
        self._inbox: deque[Callable[[], None]] = deque()
        self._wake = threading.Condition()
        self._closing = False
        self._live: list[_Live] = []
        self._by_number: dict[int, tuple[_Live, int]] = {}
        self._next_number = 0
        self._checked = 0.0
        self._observed = 0.0
        self._thread = threading.Thread(target=self._run, name="engine", daemon=True)
        self._thread.start()

    def submit(self, request_id: str, request: GenerationRequest, reply: Reply) -> None:
        """Queue a request; every outcome goes to ``reply``."""
        self._post(lambda: self._start(request_id, request, reply))

    def stop(self, request_id: str, reply: Reply) -> None:
        """End the requests of this id: they answer with the tokens they have. ``reply`` gets an empty final answer."""
        self._post(lambda: self._stop(request_id, reply))

    def close(self) -> None:
        """Refuse what runs and end the thread."""
        with self._wake:
            self._closing = True
            self._wake.notify()
        self._thread.join()

    def _post(self, job: Callable[[], None]) -> None:
        with self._wake:
            self._inbox.append(job)
            self._wake.notify()

    def _run(self) -> None:
        while self._wait_for_work():
            while self._inbox:
                self._inbox.popleft()()
            if self._engine.has_work:
                self._step()
            self._look_around()
        while self._inbox:  # who came last wants an answer too
            self._inbox.popleft()()
        for live in self._live:
            self._cancel(live)
            live.reply.fail("the server is shutting down", cancelled=True)

    def _wait_for_work(self) -> bool:
        with self._wake:
            if not self._closing and not self._inbox and not self._engine.has_work:
                self._wake.wait(IDLE_S)
            return not self._closing

    def _look_around(self) -> None:
        """What need not happen at every step."""
        now = time.monotonic()
        if now - self._checked >= self._cancel_check_s:
            self._checked = now
            self._drop_cancelled()
        if now - self._observed >= OBSERVE_S or not self._engine.has_work:
            self._observed = now
            states = (state for live in self._live for state in live.sequences.values())
            self._observe(self._engine.stats(), sum(len(state.prompt) for state in states if not state.token_ids))

    def _start(self, request_id: str, request: GenerationRequest, reply: Reply) -> None:
        if self._max_queue_size and self._excess() >= self._max_queue_size:
            reply.fail(f"Exceeds maximum queue size: {self._max_queue_size} requests wait already", overloaded=True)
            return
        sequences = {
            (row, index): SequenceState(row, index, prompt)
            for row, prompt in enumerate(request.prompts)
            for index in range(request.samplings[row].num_return_sequences)
        }
        live = _Live(request_id, request, reply, sequences)
        try:
            for row, prompt in enumerate(request.prompts):
                number = self._next_number
                self._next_number += 1
                self._engine.submit(number, prompt, request.samplings[row])
                live.numbers.append(number)
        except PlaybookError as error:
            self._cancel(live)
            reply.fail(refusal(request_id, error))
            return
        self._live.append(live)
        self._by_number.update({number: (live, row) for row, number in enumerate(live.numbers)})

    def _excess(self) -> int:
        """Requests beyond the engine's slots."""
        stats = self._engine.stats()
        return stats.active + stats.waiting - stats.max_active

    def _step(self) -> None:
        try:
            outputs = self._engine.step()
        except RuntimeError as error:
            self._fail_all(f"the engine failed: {error}")
            return
        for output in outputs:
            live, row = self._by_number.get(output.request_id, (None, 0))
            if live is not None:
                self._pass_on(live, live.sequences[row, output.sequence_index], output)

    def _pass_on(self, live: _Live, state: SequenceState, output: Output) -> None:
        state.take(output)
        if output.finish_reason == "refused" or (output.finish_reason == "cancelled" and not live.stopped):
            self._end(live)
            self._cancel(live)
            live.reply.fail(refusal(live.request_id, RequestRefused(f"the engine gave it up: {output.finish_reason}")))
            return
        tensors = next_tensors(live.request, state, self._logits, placeholders=self._placeholders)
        final = live.done
        if state.done:
            self._count(len(state.prompt), len(state.token_ids))
        if final:
            self._end(live)
        if tensors is not None or final:
            live.reply.send(tensors, final=final)

    def _stop(self, request_id: str, reply: Reply) -> None:
        for live in self._live:
            if live.request_id == request_id:
                live.stopped = True
                self._cancel(live)
        reply.send({}, final=True)

    def _fail_all(self, message: str) -> None:
        for live in list(self._live):
            self._end(live)
            self._cancel(live)
            live.reply.fail(message)

    def _drop_cancelled(self) -> None:
        for live in [live for live in self._live if live.reply.cancelled()]:
            self._end(live)
            self._cancel(live)
            live.reply.fail("the client cancelled the request", cancelled=True)

    def _end(self, live: _Live) -> None:
        self._live.remove(live)
        for number in live.numbers:
            self._by_number.pop(number, None)

    def _cancel(self, live: _Live) -> None:
        for number in live.numbers:
            self._engine.cancel(number)


def refusal(request_id: str, error: PlaybookError) -> str:
    """One sentence for the client: which request, what is wrong, what to do."""
    request = f"request {request_id!r}" if request_id else "request without id"
    reasons = [error.what.removeprefix("request refused: ")]
    if error.why:
        reasons.append(error.why)
    if error.fix:
        reasons.append(error.fix)
    return f"{request} refused: " + "; ".join(reasons)
