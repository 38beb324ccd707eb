"""vLLM in a process of its own, as the engine that a server steps: submit, cancel, step, stats.

Standard library and :mod:`model_server` only: it runs inside Triton's stub, whose numpy vLLM cannot share.
"""

import json
import math
import shutil
import socket
import subprocess
import tempfile
import threading
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from model_server.protocol import Batching, EngineLimits, EngineStats, FinishReason, Output, Sampling, StepRecord
from serving_base.errors import EngineError, MissingArtifact
from serving_base.processes import Environment, start_guarded
from vllm_serving.connection import StepNotes, WorkerConnection, joined

WORKER = Path(__file__).with_name("worker.py")
GPU_SHARE = "gpu_memory_utilization"
TICK_S = 0.001
"""What a step waits for tokens before its caller can look for new requests."""
POLL_S = 0.2
CLOSE_S = 5.0
GRACE_S = 2.0
LOG_LINES = 15
NOT_THE_WORKERS: Environment = dict.fromkeys(
    ("LD_LIBRARY_PATH", "OMP_NUM_THREADS", "PYTHONDONTWRITEBYTECODE", "PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV")
) | {"PYTHONSAFEPATH": "1"}
"""Set for Triton's stub or for a chapter; with them vLLM finds another cuDNN, one thread, and compiles itself anew."""


@dataclass(frozen=True)
class EngineFolder:
    """What an engine folder's ``config.json`` says; written by :mod:`vllm_serving.build`.

    ``start_s``: how long the engine may take to be ready. ``hang_s``: how long it may leave all requests unanswered.
    """

    limits: EngineLimits
    vocab_size: int
    model: str
    args: Mapping[str, Any]
    python: str
    env: Mapping[str, str]
    start_s: float = 900.0
    hang_s: float = 180.0

    @classmethod
    def read(cls, folder: Path) -> "EngineFolder":
        """:class:`MissingArtifact` or :class:`EngineError` says what is wrong with the folder."""
        path = Path(folder) / "config.json"
        if not path.is_file():
            raise MissingArtifact(f"no engine in {folder}", why="config.json is not there", fix="build the engine")
        try:
            written = json.loads(path.read_text(encoding="utf-8"))
            limits = {name: written["build_config"][name] for name in EngineLimits.__dataclass_fields__}
            return cls(EngineLimits(**limits), written["pretrained_config"]["vocab_size"], **written["vllm"])
        except (ValueError, KeyError, TypeError) as error:
            raise EngineError(
                f"{path} is not a config.json of a vLLM engine", why=repr(error), fix="build the engine again"
            ) from error


@dataclass
class _Request:
    """``sequences``: those that are not over."""

    request_id: int
    prompt: tuple[int, ...]
    sampling: Sampling
    sequences: set[int]
    started: bool = False


class VllmEngine:
    """Start the worker of an engine folder and wait until it is ready; :class:`EngineError` with its last lines if not.

    One thread steps it, any thread submits and cancels. ``batching`` "static": requests are taken from the queue until
    ``max_batch_size`` sequences run, and none joins before all of them have ended. ``kv_cache_blocks`` 0 and
    ``enable_block_reuse`` None: as built. ``gpu_sharers`` as in
    :class:`model_server.engines.EngineOptions`. ``record_steps`` keeps :attr:`records`, as vLLM tells of its
    iterations: a request is seen in a step when it gave tokens, so a prompt computed in parts is seen in its last one.
    ``extension``: name of a worker extension class, whose methods :meth:`call` reaches.
    A worker that ended, does not answer or speaks nonsense makes :meth:`step` raise :class:`EngineError`, once.
    """

    def __init__(
        self,
        folder: Path,
        *,
        batching: Batching = "inflight",
        kv_cache_blocks: int = 0,
        enable_block_reuse: bool | None = None,
        gpu_sharers: int = 1,
        record_steps: bool = False,
        extension: str = "",
    ) -> None:
        self.folder = EngineFolder.read(folder)
        if batching not in ("inflight", "static"):
            raise EngineError(f"unknown batching {batching!r}", fix="use 'inflight' or 'static'")
        self.batching = batching
        changed = {
            "num_gpu_blocks_override": kv_cache_blocks or None,
            "enable_prefix_caching": enable_block_reuse,
            "worker_extension_cls": extension or None,
        }
        args = {**self.folder.args, **{name: value for name, value in changed.items() if value is not None}}
        if gpu_sharers > 1 and GPU_SHARE in args:
            args[GPU_SHARE] = args[GPU_SHARE] / gpu_sharers
        self._lock = threading.RLock()
        self._requests: dict[int, _Request] = {}  # by the number that the worker knows; one of ours is never used twice
        self._numbers: dict[int, int] = {}  # request id -> that number
        self._count = 0
        self._pending: list[Output] = []
        self._results: dict[int, dict[str, Any]] = {}
        self._stats: dict[str, Any] = {"running": 0, "waiting": 0, "kv_usage": 0.0, "steps": 0}
        self._steps = StepNotes() if record_steps else None
        self._heard_s = time.monotonic()
        self._closed = False
        self._scratch = Path(tempfile.mkdtemp(prefix="vllm-engine-", dir="/tmp"))
        self.log_path = self._scratch / "worker.log"
        self._wanted = {"start": {"model": self.folder.model, "args": args, "iterations": record_steps}}
        self._start()

    def _start(self) -> None:
        deadline = time.monotonic() + self.folder.start_s
        address = self._scratch / "socket"
        with socket.socket(socket.AF_UNIX) as listener:
            listener.bind(str(address))
            listener.listen(1)
            listener.settimeout(POLL_S)
            self._process = start_guarded(
                [self.folder.python, str(WORKER), str(address)],
                env={**NOT_THE_WORKERS, **self.folder.env},
                log_path=self.log_path,
                name="vllm worker",
                grace_s=GRACE_S,
            )
            try:
                self._connection = WorkerConnection(self._accept(listener, deadline))
                self._connection.send(self._wanted)
                self.ready = self._wait_ready(deadline)
            except BaseException:
                self._end()
                raise
        self.config = self._limits()
        self.kv_blocks = int(self.ready["kv_blocks"])

    def _limits(self) -> EngineLimits:
        """As built; the size of a block is vLLM's choice."""
        return EngineLimits(**{**asdict(self.folder.limits), "tokens_per_block": self.ready["block_size"]})

    def _accept(self, listener: socket.socket, deadline: float) -> socket.socket:
        while time.monotonic() < deadline:
            if self._process.poll() is not None:
                raise self._failure("the engine's process ended before it was ready")
            try:
                connection, _ = listener.accept()
            except TimeoutError:
                continue
            connection.setblocking(False)
            return connection
        raise self._failure(f"the engine's process did not call within {self.folder.start_s:g} s")

    def _wait_ready(self, deadline: float) -> dict[str, Any]:
        while time.monotonic() < deadline:
            for message in self._receive(POLL_S):
                if "ready" in message:
                    return dict(message["ready"])
        raise self._failure(f"the engine was not ready after {self.folder.start_s:g} s")

    def _receive(self, wait_s: float) -> list[dict[str, Any]]:
        """Messages of the worker. :class:`EngineError` when it ended, says that it cannot go on, or talks nonsense."""
        try:
            messages = self._connection.receive(wait_s)
        except ValueError as error:
            raise self._failure(f"the engine's process speaks nonsense: {error}") from error
        except (EOFError, OSError) as error:
            raise self._failure(f"the engine's process ended: {error}") from error
        for message in messages:
            self._heard_s = time.monotonic()
            if "fatal" in message:
                raise self._failure(f"the engine failed: {message['fatal']}")
        return messages

    def _failure(self, what: str) -> EngineError:
        """Ends the worker; its log stays."""
        written = self.log_path.read_text(errors="replace").splitlines() if self.log_path.is_file() else []
        told = "\n".join(written[-LOG_LINES:]) or "it said nothing"
        self._end()
        return EngineError(what, why=f"its log ends:\n{told}", fix=f"the whole log is {self.log_path}; load it again")

    def submit(self, request_id: int, prompt_ids: tuple[int, ...], sampling: Sampling) -> None:
        """Queue a request. :class:`EngineError` when it can never run, with the reason."""
        sampling.check()
        self.config.check_fits(len(prompt_ids), sampling, self.kv_blocks)
        outside = [token for token in prompt_ids if not 0 <= token < self.folder.vocab_size]
        if outside:
            raise EngineError(
                f"request refused: token ids outside the vocabulary of {self.folder.vocab_size}: {outside[:5]}",
                fix="use the tokenizer that belongs to this engine",
            )
        with self._lock:
            if self._closed:
                raise EngineError("the engine is closed", fix="load it again")
            if request_id in self._numbers or any(output.request_id == request_id for output in self._pending):
                raise EngineError(f"request {request_id} is already running", fix="use an id for one request at a time")
            if not self._requests:
                self._heard_s = time.monotonic()
            self._count += 1
            self._numbers[request_id] = self._count
            sequences = set(range(sampling.num_return_sequences))
            self._requests[self._count] = _Request(request_id, tuple(map(int, prompt_ids)), sampling, sequences)
            if self.batching == "inflight":
                self._begin(self._count)

    def _begin(self, number: int) -> None:
        request = self._requests[number]
        request.started = True
        wanted = {**vars(request.sampling), "greedy": request.sampling.greedy}
        self._send({"submit": number, "prompt": request.prompt, "sampling": wanted})

    def _send(self, message: Mapping[str, Any]) -> None:
        """What cannot be sent will be noticed by the next step, in the thread that can tell everybody."""
        try:
            self._connection.send(message)
        except OSError:
            self._heard_s = -math.inf

    def cancel(self, request_id: int) -> bool:
        """End a request; its unfinished sequences finish as "cancelled" in the next step. False: no such request."""
        with self._lock:
            number = self._numbers.pop(request_id, None)
            if number is None:
                return False
            request = self._requests.pop(number)
            if request.started:
                self._send({"cancel": number})
            self._pending += [Output(request_id, index, (), (), "cancelled") for index in sorted(request.sequences)]
            return True

    def step(self) -> list[Output]:
        """New tokens of every sequence since the last call; waits a millisecond for them."""
        with self._lock:
            outputs, self._pending = self._pending, []
            if self.batching == "static":
                self._begin_batch()
            working = bool(self._requests)
        if self._closed or not working:
            return outputs
        messages = self._receive(0.0 if outputs else TICK_S)
        with self._lock:
            self._check_alive()
            return outputs + self._outputs(messages)

    def _begin_batch(self) -> None:
        if any(request.started for request in self._requests.values()):
            return
        free = self.config.max_batch_size
        for number, request in self._requests.items():
            free -= request.sampling.num_return_sequences
            if free < 0:
                return
            self._begin(number)

    def _check_alive(self) -> None:
        silent_s = time.monotonic() - self._heard_s
        if self._requests and silent_s > self.folder.hang_s:
            raise self._failure(f"the engine's process hangs: no token for {self.folder.hang_s:g} s")

    def _outputs(self, messages: list[dict[str, Any]]) -> list[Output]:
        """One output for each sequence: what came for it in several messages is joined."""
        found: dict[tuple[int, int], Output] = {}
        try:
            for message in messages:
                if "result" in message:
                    self._results[message["result"]] = message
                else:
                    self._take(message, found)
        except (KeyError, TypeError, ValueError) as error:
            raise self._failure(f"the engine's process speaks nonsense: {error!r}") from error
        return list(found.values())

    def _take(self, message: dict[str, Any], found: dict[tuple[int, int], Output]) -> None:
        self._stats = message["stats"]
        if self._steps is not None:
            self._steps.seconds |= {step: seconds for step, seconds, *_ in self._stats.get("iterations", ())}
        ones = iter(message["one"])
        for number, token in zip(ones, ones, strict=True):
            self._add(found, number, 0, (token,), (), "")
        for number, index, tokens, log_probs, finish, step, *_ in message["out"]:
            if self._steps is not None and number in self._requests:
                self._steps.add(step, self._requests[number].request_id, number, len(tokens))
            self._add(found, number, index, tuple(tokens), tuple(log_probs), finish)
            if finish:
                self._finish(number, index)

    def _add(
        self,
        found: dict[tuple[int, int], Output],
        number: int,
        index: int,
        tokens: tuple[int, ...],
        log_probs: tuple[float, ...],
        finish: FinishReason,
    ) -> None:
        request = self._requests.get(number)
        if request is None or index not in request.sequences:
            return  # it was on its way when the request was cancelled
        output, before = Output(request.request_id, index, tokens, log_probs, finish), found.get((number, index))
        found[number, index] = output if before is None else joined(before, output)

    def _finish(self, number: int, index: int) -> None:
        request = self._requests.get(number)
        if request is not None:
            request.sequences.discard(index)
            if not request.sequences:
                del self._requests[number], self._numbers[request.request_id]

    @property
    def records(self) -> list[StepRecord]:
        """The steps so far, when ``record_steps``."""
        return [] if self._steps is None else self._steps.records()

    @property
    def closed(self) -> bool:
        return self._closed

    @property
    def has_work(self) -> bool:
        return bool(self._requests or self._pending)

    def stats(self) -> EngineStats:
        with self._lock:
            used = round(self.kv_blocks * self._stats["kv_usage"]) if self._requests else 0
            running = min(int(self._stats["running"]), len(self._requests))
            new = sum(1 for request in self._requests.values() if not request.started)
            return EngineStats(
                active=running,
                waiting=max(len(self._requests) - running, new),
                scheduled=running,
                context=0,
                generation=running,
                max_active=self.config.max_batch_size,
                kv_blocks_max=max(self.kv_blocks, 1),
                kv_blocks_used=used,
                kv_blocks_free=self.kv_blocks - used,
                tokens_per_block=self.config.tokens_per_block,
                steps=int(self._stats["steps"]),
            )

    def call(self, method: str, *args: Any, timeout_s: float = 120.0) -> Any:
        """Run a method of the worker extension in every rank; a list with the result of each.

        From the thread that steps. :class:`EngineError` when the method fails or takes longer.
        """
        with self._lock:
            self._count += 1
            number, deadline = self._count, time.monotonic() + timeout_s
            self._send({"call": number, "method": method, "args": args})
        while number not in self._results:
            if self._closed or time.monotonic() > deadline:
                raise EngineError(f"{method} gave no result within {timeout_s:g} s", fix=f"see {self.log_path}")
            messages = self._receive(POLL_S)
            with self._lock:
                self._pending += self._outputs(messages)
        result = self._results.pop(number)
        if "error" in result:
            raise EngineError(f"{method} failed: {result['error']}", fix=f"see {self.log_path}")
        return result["value"]

    def close(self) -> None:
        """Drop every request and end the worker; a closed engine refuses what comes later. Safe to call twice."""
        if self._closed:
            return
        self._send({"close": True})
        with suppress(subprocess.TimeoutExpired):  # then the guard ends it
            self._process.wait(CLOSE_S)
        self._end()
        shutil.rmtree(self._scratch, ignore_errors=True)

    def _end(self) -> None:
        with self._lock:
            self._closed = True
            self._requests.clear()
            self._numbers.clear()
            self._pending.clear()
        if hasattr(self, "_connection"):
            self._connection.socket.close()
        self._process.stop()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
