"""Answers Triton's requests from the engine's loop: tensors, streams, cancelled and stopped requests.

:class:`Figures` shows on /metrics what the tensorrtllm backend shows there, by the published names.
"""

import itertools
import os
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from model_server.engines import Logits
from model_server.loop import (
    UNLIMITED,
    EngineJob,
    EngineLoop,
    Event,
    Failed,
    JobQueueFull,
    JobRefused,
    StepEngine,
    one_line,
)
from model_server.protocol import EngineHung, EngineStats, Output
from model_server.triton.outbox import Outbox
from model_server.triton.tensors import GenerationRequest, SequenceState, next_tensors
from model_server.triton.token_times import TokenTimes
from serving_base.errors import EngineError

LENGTH_BUCKETS = (10.0, 50.0, 100.0, 500.0, 1000.0)

Reading = Callable[[EngineStats, int], float]
"""From the engine's figures and the prompt tokens still without an answer."""

GAUGES: dict[str, tuple[str, dict[str, Reading]]] = {
    "nv_trt_llm_request_metrics": (
        "request_type",
        {
            "active": lambda stats, context: stats.active,
            "max": lambda stats, context: stats.max_active,
            "scheduled": lambda stats, context: stats.scheduled,
            "context": lambda stats, context: stats.context,
            "waiting": lambda stats, context: stats.waiting,
        },
    ),
    "nv_trt_llm_runtime_memory_metrics": (
        "memory_type",
        {
            "cpu": lambda stats, context: _resident_bytes(),
            "gpu": lambda stats, context: 0,
            "pinned": lambda stats, context: 0,
        },
    ),
    "nv_trt_llm_kv_cache_block_metrics": (
        "kv_cache_block_type",
        {
            "max": lambda stats, context: stats.kv_blocks_max,
            "free": lambda stats, context: stats.kv_blocks_free,
            "used": lambda stats, context: stats.kv_blocks_used,
            "tokens_per": lambda stats, context: stats.tokens_per_block,
            "fraction": lambda stats, context: stats.kv_blocks_used / stats.kv_blocks_max,
        },
    ),
    "nv_trt_llm_inflight_batcher_metrics": (
        "inflight_batcher_specific_metric",
        {
            "total_context_tokens": lambda stats, context: context,
            "generation_requests": lambda stats, context: stats.generation,
            "paused_requests": lambda stats, context: 0,
            "micro_batch_id": lambda stats, context: 0,
        },
    ),
    "nv_trt_llm_general_metrics": (
        "general_type",
        {
            "iteration_counter": lambda stats, context: stats.steps,
            "timestamp": lambda stats, context: int(time.time() * 1e6),
        },
    ),
}
"""Family -> label, and how each of its label's values is read off the engine. What it does not measure is left out."""

HISTOGRAMS = {
    "nv_llm_input_token_len": ("response_metric_type", "total_input_tokens"),
    "nv_llm_output_token_len": ("response_metric_type", "total_output_tokens"),
}


def _resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


class Figures:
    """Gauges and histograms of one model. ``pb`` is Triton's module, which only the stub has."""

    def __init__(self, pb: Any, model: str, version: str) -> None:
        labels = {"model": model, "version": version}
        self._families: list[Any] = []
        self._gauges: list[tuple[Any, Reading]] = []
        self._shown: dict[int, float] = {}  # what each gauge was set to
        for name, (label, readings) in GAUGES.items():
            family = self._family(pb, name, pb.MetricFamily.GAUGE)
            for value, read in readings.items():
                self._gauges.append((family.Metric(labels={**labels, label: value}), read))
        self._prompt, self._answer = [
            self._family(pb, name, pb.MetricFamily.HISTOGRAM).Metric(
                labels={**labels, label: value}, buckets=list(LENGTH_BUCKETS)
            )
            for name, (label, value) in HISTOGRAMS.items()
        ]

    def _family(self, pb: Any, name: str, kind: Any) -> Any:
        family = pb.MetricFamily(name=name, description=f"{name} of the embedded engine", kind=kind)
        self._families.append(family)
        return family

    def observe(self, stats: EngineStats, context_tokens: int) -> None:
        for number, (gauge, read) in enumerate(self._gauges):
            value = read(stats, context_tokens)
            if value != self._shown.get(number):  # to set one, Triton is asked and waited for
                gauge.set(value)
                self._shown[number] = value

    def count(self, prompt_tokens: int, answer_tokens: int) -> None:
        self._prompt.observe(prompt_tokens)
        self._answer.observe(answer_tokens)

    def drop(self) -> None:
        """Free the metrics before their families; left to Python's exit, Triton's stub crashes at unload."""
        self._gauges.clear()
        del self._prompt, self._answer
        self._families.clear()


MIN_CANCEL_CHECK_S = 0.1
"""Triton 2.51 crashed when asked every 5 ms while many clients disconnected; every 100 ms it did not."""
CANCEL_CHECK_SHARE, MAX_CANCEL_CHECK_S = 0.05, 1.0
"""To ask for one request, Triton is waited for: for many it is done less often, so that no more time goes there."""
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
class _Live(EngineJob):
    """``came``: what the engine gave since the last response, by row and sequence. ``over``: nothing comes after it.

    ``outbox``: its responses all go by one, or they would overtake each other.
    """

    request_id: str
    request: GenerationRequest
    reply: Reply
    outbox: Outbox
    over: bool = False
    came: dict[tuple[int, int], list[Output]] = field(default_factory=dict)
    lock: threading.Lock = field(default_factory=threading.Lock)  # of came and over, which two threads change

    def __post_init__(self) -> None:
        self.sequences = {
            (row, index): SequenceState(row, index, prompt)
            for row, prompt in enumerate(self.prompts)
            for index in range(self.samplings[row].num_return_sequences)
        }


class Batcher:
    """Takes requests from any thread; the engine's thread only steps, the threads of the outboxes send every answer.

    ``placeholders``: see :func:`next_tensors`. ``max_queue_size`` 0: no limit; else a request is refused when that
    many wait for a slot already. ``senders``: how many outboxes share the requests. ``sharing``: tokens that wait for
    one sequence share a response; False only to measure what that costs them.
    ``observe`` is called now and then with the engine's figures and the prompt tokens that wait for their first answer,
    ``count`` at every end with the lengths of prompt and answer. ``times`` notes outputs and responses.
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
        times: TokenTimes | None = None,
        senders: int = 1,
        sharing: bool = True,
    ) -> None:
        self._engine = engine
        self._logits = logits
        self._placeholders = placeholders
        self._cancel_check_s = max(cancel_check_s, MIN_CANCEL_CHECK_S)
        self._cancel_pause_s = self._cancel_check_s
        self._observe = observe
        self._count = count
        self._times = times or TokenTimes("")
        self._checked = 0.0
        self._observed = 0.0
        self._sharing = sharing
        self._outboxes = [Outbox(rests=sharing) for _ in range(senders)]
        self._outbox = self._outboxes[0]  # of what is no response, and of every so-many-th request
        self._turns = itertools.cycle(self._outboxes)
        self._loop: EngineLoop[_Live] = EngineLoop(
            engine,
            self._answer,
            max_waiting=max_queue_size or UNLIMITED,
            survives=(RuntimeError, EngineHung),
            every_turn=self._look_around,
        )

    def submit(self, request_id: str, request: GenerationRequest, reply: Reply) -> None:
        """Queue a request; every outcome goes to ``reply``."""
        try:
            outbox = next(self._turns)
            self._loop.submit(_Live(request.prompts, request.samplings, request_id, request, reply, outbox))
        except JobQueueFull as full:
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
        """Refuse what runs, send what is left and end all threads."""
        self._loop.close("the server is shutting down")
        for outbox in reversed(self._outboxes):  # the first counts what the others end
            outbox.close()

    def _look_around(self, loop: EngineLoop[_Live]) -> None:
        """After a step: send its tokens; and what need not happen at every one, which is the outbox's work too."""
        for outbox in self._outboxes:
            outbox.wake()
        now = time.monotonic()
        if now - self._checked >= self._cancel_pause_s:
            self._checked = now
            if loop.jobs:
                self._outbox.put("cancelled", self._end_cancelled)
        if now - self._observed >= OBSERVE_S or not self._engine.has_work:
            self._observed = now
            states = [state for live in loop.jobs for state in live.sequences.values()]
            context_tokens = sum(len(state.prompt) for state in states if not state.token_ids)
            self._outbox.put("observed", partial(self._observe, self._engine.stats(), context_tokens))

    def _end_cancelled(self) -> None:
        began = time.monotonic()
        for live in [live for live in self._loop.jobs if live.reply.cancelled()]:
            self._loop.cancel(live)
            live.reply.fail("the client cancelled the request", cancelled=True)
        wanted_s = min((time.monotonic() - began) / CANCEL_CHECK_SHARE, MAX_CANCEL_CHECK_S)
        self._cancel_pause_s = max(wanted_s, self._cancel_check_s)

    def _answer(self, live: _Live, row: int, event: Event) -> None:
        match event:
            case Output():
                self._pass_on(live, row, event)
            case JobRefused(reason):
                self._fail(live, refusal(live.request_id, reason))
            case Failed(reason, closed):
                self._fail(live, reason if closed else f"the engine failed: {reason}", cancelled=closed)

    def _fail(self, live: _Live, message: str, *, cancelled: bool = False) -> None:
        # Not urgent: what came before it goes first.
        live.outbox.put((live, "failed"), partial(live.reply.fail, message, cancelled=cancelled))

    def _pass_on(self, live: _Live, row: int, output: Output) -> None:
        """In the engine's thread: note what came, and that it is to be sent."""
        reason = output.finish_reason
        if reason == "refused" or (reason == "cancelled" and not live.stopped):
            self._fail(live, refusal(live.request_id, f"the engine gave it up: {reason}"))
            return
        self._times.came(live.request_id, output)
        key = row, output.sequence_index
        with live.lock:
            came = live.came.setdefault(key, [])
            waits = bool(came) and live.request.streaming  # what sends it is in the outbox
            came.append(output)
            live.over = not live.unfinished
        if reason or (live.request.streaming and not waits):
            first = not live.sequences[key].sent
            live.outbox.put((live, key), partial(self._send, live, key), urgent=first or bool(reason), more=True)

    def _send(self, live: _Live, key: tuple[int, int]) -> None:
        """In its outbox's thread: one response with everything that came for a sequence since the last.

        A request that runs alone gets one for each step, whatever the machine is busy with.
        """
        with live.lock:
            came = live.came.pop(key, [])
            final = live.over and not live.came
        if not self._sharing:
            came = [token for output in came for token in each_token(output)]
        apart = not self._sharing or self._loop.alone(live)
        parts = [[output] for output in came] if apart else [came]
        for part in filter(None, parts):
            self._respond(live, live.sequences[key], part, final=final and part[-1] is came[-1])

    def _respond(self, live: _Live, state: SequenceState, part: list[Output], *, final: bool) -> None:
        for output in part:
            state.take(output)
        try:
            tensors = next_tensors(live.request, state, self._logits, placeholders=self._placeholders)
        except Exception as error:
            self._loop.cancel(live)
            live.reply.fail(refusal(live.request_id, f"its answer could not be made: {error!r}"))
            raise
        if state.done:
            figures = partial(self._count, len(state.prompt), len(state.token_ids))
            if live.outbox is self._outbox:  # in its thread: counted before the client knows of the end
                figures()
            else:
                self._outbox.put(figures, figures)  # a key of its own: each end counts
        if tensors is not None or final:
            self._times.sent(live.request_id, sum(len(output.token_ids) for output in part), final=final)
            live.reply.send(tensors, final=final)


def each_token(output: Output) -> list[Output]:
    """An output of several tokens as one for each; the last has the finish reason."""
    last = len(output.token_ids) - 1
    if last < 1:
        return [output]
    return [
        output._replace(
            token_ids=(token,),
            log_probs=output.log_probs[number : number + 1],
            finish_reason=output.finish_reason if number == last else "",
        )
        for number, token in enumerate(output.token_ids)
    ]


def refusal(request_id: str, reason: str) -> str:
    """One sentence for the client: which request, what is wrong, what to do."""
    request = f"request {request_id!r}" if request_id else "request without id"
    return f"{request} refused: {reason.removeprefix('request refused: ')}"
