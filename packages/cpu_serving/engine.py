"""The embedded engine: paged KV cache and in-flight batching on a CPU, by OpenVINO GenAI.

One thread steps the engine; any thread may submit and cancel. A step holds the GIL while it computes (OpenVINO GenAI
2026.4), so a server gives the engine a process of its own. Nothing here needs torch, transformers or pydantic.
"""

from __future__ import annotations

import itertools
import threading
import time
import weakref
from collections import deque
from collections.abc import Iterator, MutableSequence, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from cpu_serving.config import EngineConfig
from cpu_serving.decoding import (
    UNTAGGED,
    EngineRequest,
    ReturnedSequence,
    choose_tag,
    count_tokens,
    end_answers,
    generation_config,
    may_join,
    tag_prompt,
    take_tokens,
)
from cpu_serving.runtime import EngineLogits, openvino, openvino_genai
from model_server.answers import complete, stream
from model_server.protocol import (
    Batching,
    Completion,
    EngineStats,
    FinishReason,
    Output,
    Phase,
    Sampling,
    StepRecord,
)
from model_server.text import TextCodec
from serving_base.errors import EngineError

__all__ = [
    "Batching",
    "Completion",
    "Engine",
    "EngineConfig",
    "EngineLogits",
    "EngineStats",
    "FinishReason",
    "Output",
    "Phase",
    "Sampling",
    "StepRecord",
]


class Engine:
    """Run an engine folder.

    ``threads`` 0: as many as the machine offers. ``batching`` "static": requests are taken from the queue until
    ``max_batch_size`` slots are full, and none joins before the whole batch has finished; the slots of those that
    finish early are held and counted, though not computed. ``kv_cache_blocks`` 0: enough for ``max_batch_size``
    sequences of ``max_seq_len``; a request waits until there are blocks for all of its tokens.
    ``may_pause``: it does not wait; when the pool is full the pipeline pauses one that runs, drops its blocks and
    computes it again later (TensorRT-LLM's MAX_UTILIZATION). Not with block reuse, which would mix answers up.
    ``enable_block_reuse``: a prompt starts from the whole blocks that it has in common with earlier prompts; never
    from a partly filled block nor from generated tokens, because OpenVINO GenAI would mix answers up
    (docs/engine-reuse.md). It makes a request wait while another's prompt is computed in part, and requests with a
    repetition penalty run one at a time. None: as built, and off in a folder written before prompts were tagged.
    Compute and KV storage are float32; an FP8 KV cache is FP8 in value (rounded in the graph), not in bytes.
    ``extensions``: OpenVINO's classes of the operations of our own that the folder's graph holds.
    """

    def __init__(
        self,
        folder: Path,
        *,
        threads: int = 0,
        batching: Batching = "inflight",
        kv_cache_blocks: int = 0,
        may_pause: bool = False,
        enable_block_reuse: bool | None = None,
        record_steps: bool = False,
        extensions: Sequence[Any] = (),
    ) -> None:
        self.config = EngineConfig.read(folder)
        if batching not in ("inflight", "static"):
            raise EngineError(f"unknown batching {batching!r}", fix="use 'inflight' or 'static'")
        if not self.config.use_paged_kv_cache:
            raise EngineError(
                "the engine was built without a paged KV cache", why="this runtime has no other", fix="build it paged"
            )
        reusable = self.config.enable_block_reuse and self.config.tagged_prompts
        if enable_block_reuse and not reusable:
            raise EngineError(
                "the engine was not built for block reuse",
                why="without tagged prompts a request can get another one's answer",
                fix="build it again with use_paged_context_fmha, or leave reuse off",
            )
        self.batching = batching
        self.records: list[StepRecord] = []
        self._record_steps = record_steps
        per_sequence = -(-self.config.max_seq_len // self.config.tokens_per_block)
        self._blocks = kv_cache_blocks or self.config.max_batch_size * per_sequence
        self.block_reuse = reusable if enable_block_reuse is None else enable_block_reuse
        if may_pause and self.block_reuse:
            raise EngineError(
                "may_pause and block reuse do not go together",
                why="a block of a paused request is found as if it were whole",
                fix="set enable_block_reuse=False",
            )
        self._may_pause = may_pause
        self._genai = openvino_genai()
        self._pipeline = self._load(folder, threads, extensions)
        self._lock = threading.Lock()
        self._waiting: deque[EngineRequest] = deque()
        self._admitted: dict[int, EngineRequest] = {}
        self._leaving: list[EngineRequest] = []  # they have their answers, and blocks still
        self._empty = weakref.finalize(self, _empty, self._pipeline, self._admitted, self._leaving, self._lock)
        self._pending: list[Output] = []
        self._numbers = itertools.count()
        self._steps = 0

    def _load(self, folder: Path, threads: int, extensions: Sequence[Any]) -> Any:
        scheduler = self._genai.SchedulerConfig()
        scheduler.cache_size = 0
        scheduler.num_kv_blocks = self._blocks
        scheduler.max_num_batched_tokens = self.config.max_num_tokens
        scheduler.max_num_seqs = self.config.max_batch_size
        scheduler.dynamic_split_fuse = True
        scheduler.enable_prefix_caching = self.block_reuse
        properties: dict[str, Any] = {"INFERENCE_PRECISION_HINT": "f32", "KV_CACHE_PRECISION": "f32"}
        if threads:
            properties["INFERENCE_NUM_THREADS"] = threads
        if extensions:
            properties["extensions"] = list(extensions)
        try:
            return self._genai.ContinuousBatchingPipeline(str(folder), scheduler, "CPU", properties)
        except RuntimeError as error:
            raise EngineError(f"the engine in {folder} did not load", why=str(error), fix="build it again") from error

    def submit(self, request_id: int, prompt_ids: Sequence[int], sampling: Sampling) -> None:
        """Queue a request. :class:`EngineError` when it can never run, with the reason."""
        if self._pipeline is None:
            raise EngineError("the engine is closed", fix="load it again")
        self.config.check_request(prompt_ids, sampling, self._blocks)
        answers = [ReturnedSequence() for _ in range(sampling.num_return_sequences)]
        with self._lock:
            if self._find(request_id) is not None or any(o.request_id == request_id for o in self._pending):
                raise EngineError(f"request {request_id} is already running", fix="use an id for one request at a time")
            self._waiting.append(EngineRequest(request_id, [int(token) for token in prompt_ids], sampling, answers))

    def cancel(self, request_id: int) -> bool:
        """End a request; its unfinished sequences finish as "cancelled" in the next step. False: no such request."""
        with self._lock:
            request = self._find(request_id)
            if request is None:
                return False
            if request in self._waiting:
                self._waiting.remove(request)
            self._pending += end_answers(request, "cancelled")
            self._release(request)
            return True

    def _find(self, request_id: int) -> EngineRequest | None:
        live = itertools.chain(self._admitted.values(), self._waiting)
        return next((r for r in live if r.request_id == request_id and not r.finished), None)

    def step(self) -> list[Output]:
        """Admit what fits, run one iteration of the batch, return the new tokens of every sequence."""
        with self._lock:
            outputs, self._pending = self._pending, []
            self._admit()
            if self._pipeline is not None and self._pipeline.has_non_finished_requests():
                phases = {number: request.phase for number, request in self._admitted.items()}
                started = time.perf_counter()
                self._run_pipeline()
                seconds = time.perf_counter() - started
                new = [output for request in list(self._admitted.values()) for output in self._collect(request)]
                outputs += new
                if self._record_steps and phases:
                    self.records.append(StepRecord(self._steps, seconds, phases, count_tokens(new)))
            return outputs

    def _run_pipeline(self) -> None:
        for request in self._leaving:
            if not self._must_be_computed(request):
                request.handle.cancel()
        try:
            self._pipeline.step()
        except RuntimeError as error:
            raise EngineError("the engine failed in a step", why=str(error), fix="load the engine again") from error
        self._steps += 1
        self._leaving[:] = [request for request in self._leaving if _is_running(request)]
        for request in [*self._admitted.values(), *self._leaving]:
            if request.handle is not None and request.prompt_state != "computed":
                request.prompt_state = "computed" if request.handle.can_read() else "computing"

    def _must_be_computed(self, request: EngineRequest) -> bool:
        """A prompt dropped in the middle would leave a block that is found as if it were whole."""
        return self.block_reuse and request.prompt_state == "computing"

    def _admit(self) -> None:
        if self.batching == "static":
            if not all(request.finished for request in self._admitted.values()):
                return
            self._admitted.clear()
        free = self.config.max_batch_size - sum(request.slots for request in self._admitted.values())
        while self._waiting and self._waiting[0].slots <= free and self._may_join(self._waiting[0]):
            request = self._waiting.popleft()
            free -= request.slots
            request.handle = self._start(request)
            self._admitted[request.request_id] = request

    def _present(self) -> list[EngineRequest]:
        """Requests that hold blocks."""
        return [request for request in self._admitted.values() if not request.finished] + self._leaving

    def _may_join(self, request: EngineRequest) -> bool:
        if self._may_pause:
            return True
        return may_join(request, self._present(), self.config, self._blocks, reuse=self.block_reuse)

    def _start(self, request: EngineRequest) -> Any:
        request.tag = choose_tag(request, self._present()) if self.block_reuse else UNTAGGED
        tagged = tag_prompt(request.prompt_ids, request.tag, self.config)
        ids = openvino().Tensor(np.array([tagged], dtype=np.int64))
        return self._pipeline.add_request(next(self._numbers), ids, generation_config(self._genai, request.sampling))

    def _collect(self, request: EngineRequest) -> list[Output]:
        outputs: list[Output] = []
        if request.handle is None:
            return outputs
        if request.handle.get_status().name == "IGNORED":
            outputs += end_answers(request, "refused")
        while not request.finished and request.handle.can_read():
            for index, generated in sorted(request.handle.read().items()):
                # A greedy request runs once: its sequences are equal.
                indices = range(request.slots) if request.sampling.greedy else (index,)
                outputs += [output for i in indices for output in take_tokens(request, i, generated)]
        if request.finished:
            self._release(request)
        return outputs

    def _release(self, request: EngineRequest) -> None:
        if _is_running(request):
            self._leaving.append(request)
        elif request.handle is not None:
            request.handle = None
        if self.batching == "inflight":
            self._admitted.pop(request.request_id, None)

    @property
    def active(self) -> int:
        """Requests that run."""
        with self._lock:
            return sum(not request.finished for request in self._admitted.values())

    @property
    def waiting(self) -> int:
        """Requests in the queue."""
        return len(self._waiting)

    @property
    def closed(self) -> bool:
        return self._pipeline is None

    @property
    def has_work(self) -> bool:
        """Whether another step would do anything."""
        return bool(self._pending or self._waiting or (self._pipeline and self._pipeline.has_non_finished_requests()))

    def stats(self) -> EngineStats:
        with self._lock:
            metrics = self._pipeline.get_metrics()
            running = [request.phase for request in self._admitted.values() if not request.finished]
            used = round(metrics.cache_usage / 100 * self._blocks) if running else 0
            return EngineStats(
                active=len(running),
                waiting=len(self._waiting),
                scheduled=metrics.scheduled_requests if running else 0,
                context=running.count("context"),
                generation=running.count("generation"),
                max_active=self.config.max_batch_size,
                kv_blocks_max=self._blocks,
                kv_blocks_used=used,
                kv_blocks_free=self._blocks - used,
                tokens_per_block=self.config.tokens_per_block,
                steps=self._steps,
            )

    def generate(self, prompts: Sequence[Sequence[int]], sampling: Sampling | Sequence[Sampling]) -> list[Completion]:
        """Answer every prompt; one :class:`Completion` per prompt and returned sequence, in order.

        A refused prompt raises before any of them runs.
        """
        return complete(self, prompts, sampling)

    def stream(self, prompt: Sequence[int], sampling: Sampling) -> Iterator[Output]:
        """Yield the answer as it comes; leaving the loop early cancels the request."""
        return stream(self, prompt, sampling)

    def close(self) -> None:
        """Drop every request and free the model; a closed engine refuses what comes later."""
        with self._lock:
            if self._pipeline is None:
                return
            self._waiting.clear()
            self._pending.clear()
            self._pipeline = None
        self._empty()

    def __enter__(self) -> Engine:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()


def _is_running(request: EngineRequest) -> bool:
    """Whether the pipeline would go on with it."""
    return request.handle is not None and request.handle.get_status().name == "RUNNING"


def _empty(
    pipeline: Any, admitted: dict[int, EngineRequest], leaving: MutableSequence[EngineRequest], lock: Any
) -> None:
    """Cancel what is left and step until the pipeline holds no block: when closed, dropped, or when Python ends."""
    with lock:
        for request in [*admitted.values(), *leaving]:
            if request.handle is not None:
                request.handle.cancel()
                request.handle = None
        admitted.clear()
        leaving.clear()
        while pipeline.has_non_finished_requests():
            pipeline.step()


def step_records(engine_dir: Path, prompt: str, lengths: Sequence[int], batching: Batching) -> list[StepRecord]:
    """The steps that one request of ``prompt`` per entry of ``lengths`` takes, each that many tokens long."""
    ids = TextCodec.load(engine_dir / "tokenizer").encode(prompt, special_tokens=False)
    with Engine(engine_dir, batching=batching, record_steps=True) as engine:
        engine.generate([ids] * len(lengths), [Sampling(max_new_tokens=length) for length in lengths])
        return list(engine.records)
