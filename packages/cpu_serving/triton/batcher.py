"""Answers Triton's requests from the engine's loop: tensors, streams, cancelled and stopped requests."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from cpu_serving.loop import UNLIMITED, EngineLoop, Event, Failed, Job, QueueFull, Refused, StepEngine, one_line
from cpu_serving.protocol import EngineStats, Output
from cpu_serving.triton.answers import Logits, SequenceState, next_tensors
from cpu_serving.triton.request import GenerationRequest
from serving_base.errors import EngineError

MIN_CANCEL_CHECK_S = 0.1
"""Triton 2.51 crashed when asked every 5 ms while many clients disconnected; every 100 ms it did not."""
OBSERVE_S = 0.1


class ObservedEngine(StepEngine, Protocol):
    """The part of the engine that the batcher uses."""

    def stats(self) -> EngineStats: ...


class Reply(Protocol):
    """Where the answer of one request goes. After a final call it takes no more.

    ``send`` with None: no response, only the final flag, which a decoupled model may do. With {}: an empty response.
    """

    def send(self, tensors: dict[str, np.ndarray] | None, *, final: bool) -> None: ...
    def fail(self, message: str, *, cancelled: bool = False, overloaded: bool = False) -> None: ...
    def cancelled(self) -> bool: ...


@dataclass(eq=False)
class _Live(Job):
    request_id: str
    request: GenerationRequest
    reply: Reply

    def __post_init__(self) -> None:
        self.sequences = {
            (row, index): SequenceState(row, index, prompt)
            for row, prompt in enumerate(self.prompts)
            for index in range(self.samplings[row].num_return_sequences)
        }


class Batcher:
    """Takes requests from any thread; the engine's thread sends every answer.

    ``placeholders``: see :func:`next_tensors`. ``max_queue_size`` 0: no limit; else a request is refused when that
    many wait for a slot already.
    ``observe`` is called now and then with the engine's figures and the prompt tokens that wait for their first answer,
    ``count`` at every end with the lengths of prompt and answer.
    """

    def __init__(
        self,
        engine: ObservedEngine,
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
        self._cancel_check_s = max(cancel_check_s, MIN_CANCEL_CHECK_S)
        self._observe = observe
        self._count = count
        self._checked = 0.0
        self._observed = 0.0
        self._loop: EngineLoop[_Live] = EngineLoop(
            engine,
            self._answer,
            max_waiting=max_queue_size or UNLIMITED,
            survives=(RuntimeError,),
            every_turn=self._look_around,
        )

    def submit(self, request_id: str, request: GenerationRequest, reply: Reply) -> None:
        """Queue a request; every outcome goes to ``reply``."""
        try:
            self._loop.submit(_Live(request.prompts, request.samplings, request_id, request, reply))
        except QueueFull as full:
            reply.fail(f"Exceeds maximum queue size: {full.limit} requests wait already", overloaded=True)
        except EngineError as error:
            reply.fail(refusal(request_id, one_line(error)))

    def stop(self, request_id: str, reply: Reply) -> None:
        """End the requests of this id: they answer with the tokens they have. ``reply`` gets an empty final answer."""
        for live in self._loop.jobs:
            if live.request_id == request_id:
                self._loop.stop(live)
        reply.send({}, final=True)

    def close(self) -> None:
        """Refuse what runs and end the thread."""
        self._loop.close("the server is shutting down")

    def _look_around(self, loop: EngineLoop[_Live]) -> None:
        """What need not happen at every step."""
        now = time.monotonic()
        if now - self._checked >= self._cancel_check_s:
            self._checked = now
            for live in [live for live in loop.jobs if live.reply.cancelled()]:
                loop.cancel(live)
                live.reply.fail("the client cancelled the request", cancelled=True)
        if now - self._observed >= OBSERVE_S or not self._engine.has_work:
            self._observed = now
            states = (state for live in loop.jobs for state in live.sequences.values())
            self._observe(self._engine.stats(), sum(len(state.prompt) for state in states if not state.token_ids))

    def _answer(self, live: _Live, row: int, event: Event) -> None:
        match event:
            case Refused(reason):
                live.reply.fail(refusal(live.request_id, reason))
            case Failed(reason, closed):
                live.reply.fail(reason if closed else f"the engine failed: {reason}", cancelled=closed)
            case Output():
                self._pass_on(live, live.sequences[row, event.sequence_index], event)

    def _pass_on(self, live: _Live, state: SequenceState, output: Output) -> None:
        state.take(output)
        if output.finish_reason == "refused" or (output.finish_reason == "cancelled" and not live.stopped):
            live.reply.fail(refusal(live.request_id, f"the engine gave it up: {output.finish_reason}"))
            return
        tensors = next_tensors(live.request, state, self._logits, placeholders=self._placeholders)
        final = not live.unfinished
        if state.done:
            self._count(len(state.prompt), len(state.token_ids))
        if tensors is not None or final:
            live.reply.send(tensors, final=final)


def refusal(request_id: str, reason: str) -> str:
    """One sentence for the client: which request, what is wrong, what to do."""
    request = f"request {request_id!r}" if request_id else "request without id"
    return f"{request} refused: {reason.removeprefix('request refused: ')}"
