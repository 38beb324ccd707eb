"""A stand-in for vLLM: the names that ``vllm_serving/worker.py`` imports, with answers by rule and faults to order.

Found through PYTHONPATH, which `vllm_stand_in.stand_in_python` sets. ``$VLLM_STAND_IN_FAULT`` is one word: ``fatal`` or
``slow`` (no start; one without end), ``hang``, ``die`` or ``dead`` (after the fifth step no token comes, the process is
killed, the engine breaks), ``nonsense`` or ``late_nonsense`` (at once; to the first request).
"""

import asyncio
import enum
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from types import SimpleNamespace as Namespace
from typing import Any

__version__ = "0.26.0"
FAULT = os.environ.get("VLLM_STAND_IN_FAULT", "")
MODULES = ("engine", "engine.arg_utils", "sampling_params", "v1", "v1.engine", "v1.engine.async_llm", "v1.metrics")
for each in (*MODULES, "v1.metrics.loggers"):
    sys.modules[f"vllm.{each}"] = sys.modules[__name__]

STEP_S = float(os.environ.get("VLLM_STAND_IN_STEP_S", "0.002"))
BLOCKS, BLOCK_SIZE, END_ID, FIRST_WORDS = 1000, 16, 2047, 2000
FAULTY_STEP = 5


def token(prompt: list[int], at: int, draw: int = 0) -> int:
    """The rule: token ``at`` of the answer to ``prompt``; ``draw`` 0 is greedy."""
    return END_ID if at == 5 + sum(prompt) % 40 else (sum(prompt) + 31 * at + 17 * draw) % FIRST_WORDS


def log_probability(at: int) -> float:
    return -(at + 1) / 8


class RequestOutputKind(enum.Enum):
    DELTA = 1


@dataclass
class SamplingParams:
    max_tokens: int
    ignore_eos: bool
    detokenize: bool
    temperature: float
    logprobs: int | None
    n: int = 1
    stop_token_ids: list[int] = field(default_factory=list)
    seed: int | None = None
    repetition_penalty: float = 1.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    output_kind: RequestOutputKind | None = None
    top_k: int = 0
    top_p: float = 1.0

    def __post_init__(self) -> None:
        if self.n > 1 and self.temperature == 0:
            raise ValueError("n must be 1 when using greedy sampling")
        if not 0 < self.top_p <= 1:
            raise ValueError("top_p must be in (0, 1]")


@dataclass
class AsyncEngineArgs:
    model: str
    dtype: str
    kv_cache_dtype: str
    max_num_seqs: int
    max_num_batched_tokens: int
    max_model_len: int
    tensor_parallel_size: int
    enable_prefix_caching: bool
    stream_interval: int
    enforce_eager: bool
    skip_tokenizer_init: bool
    generation_config: str
    seed: int
    kv_cache_memory_bytes: int | None = None
    num_gpu_blocks_override: int | None = None
    gpu_memory_utilization: float = 0.9
    cudagraph_capture_sizes: list[int] | None = None
    worker_extension_cls: str = ""


class StatLoggerBase:
    pass


@dataclass
class Request:
    prompt: list[int]
    params: SamplingParams
    came: asyncio.Queue[Any] = field(default_factory=asyncio.Queue)
    at: int = 0
    ended: bool = False

    def advance(self) -> tuple[list[Any], bool]:
        params, parts = self.params, []
        for index in range(params.n):
            draw = 0 if params.temperature == 0 else 1 + (params.seed or 0) + index
            new = token(self.prompt, self.at, draw)
            reason = "stop" if new in params.stop_token_ids else None
            reason = reason or ("length" if self.at + 1 == params.max_tokens else None)
            scores = None if params.logprobs is None else [{new: Namespace(logprob=log_probability(self.at))}]
            parts.append(Namespace(index=index, token_ids=[new], finish_reason=reason, logprobs=scores))
        self.at += 1
        self.ended = all(part.finish_reason for part in parts)
        return parts, self.ended


class AsyncLLM:
    """Steps all requests that fit; its process is a child, as vLLM's EngineCore is."""

    def __init__(self, args: AsyncEngineArgs, loggers: list[Callable[..., Any]]) -> None:
        blocks = round(BLOCKS * args.gpu_memory_utilization / 0.9)
        self.vllm_config = Namespace(
            cache_config=Namespace(block_size=BLOCK_SIZE, num_gpu_blocks=args.num_gpu_blocks_override or blocks),
            scheduler_config=Namespace(
                max_num_seqs=args.max_num_seqs, max_num_batched_tokens=args.max_num_batched_tokens
            ),
            model_config=Namespace(max_model_len=args.max_model_len),
            compilation_config=Namespace(cudagraph_capture_sizes=args.cudagraph_capture_sizes),
        )
        self._loggers = [logger(self.vllm_config, 0) for logger in loggers]
        self._slots = args.max_num_seqs
        self._requests: dict[str, Request] = {}
        self._core = subprocess.Popen(["sleep", "1000"], start_new_session=True)
        self._task = asyncio.get_running_loop().create_task(self._run())
        self._steps = 0

    @classmethod
    def from_engine_args(cls, args: AsyncEngineArgs, stat_loggers: list[Callable[..., Any]]) -> "AsyncLLM":
        if FAULT == "fatal":
            raise ValueError("Free memory on device cuda:0 is less than desired")
        if FAULT == "slow":
            time.sleep(1000)
        return cls(args, stat_loggers)

    async def generate(
        self, prompt: dict[str, list[int]], params: SamplingParams, request_id: str
    ) -> AsyncIterator[Any]:
        if len(prompt["prompt_token_ids"]) == 13:
            raise ValueError("13 tokens bring no luck")
        if request_id in self._requests:
            raise RuntimeError(f"request {request_id} is already running")
        request = self._requests[request_id] = Request(prompt["prompt_token_ids"], params)
        try:
            while True:
                parts, ended = await request.came.get()
                if isinstance(parts, Exception):
                    raise parts
                yield Namespace(outputs=parts)
                if ended:
                    return
        finally:
            self._requests.pop(request_id, None)

    async def _run(self) -> None:
        while True:
            await asyncio.sleep(STEP_S)
            running = [one for one in self._requests.values() if not one.ended][: self._slots]
            if running:
                self._step(running)

    def _step(self, running: list[Request]) -> None:
        self._steps += 1
        if self._steps > FAULTY_STEP and FAULT == "hang":
            return
        if self._steps > FAULTY_STEP and FAULT == "die":
            os.kill(os.getpid(), signal.SIGKILL)
        new = sum(1 for request in running if not request.at)
        for request in running:
            if self._steps > FAULTY_STEP and FAULT == "dead":
                request.came.put_nowait((RuntimeError("EngineCore encountered an issue"), True))
            else:
                request.came.put_nowait(request.advance())
        scheduler = Namespace(
            num_running_reqs=len(running),
            num_waiting_reqs=len(self._requests) - len(running),
            kv_cache_usage=len(running) / 100,
        )
        iteration = Namespace(
            time_to_first_tokens_iter=[0.0] * new, num_prompt_tokens=new, num_generation_tokens=len(running)
        )
        for logger in self._loggers:
            logger.record(scheduler_stats=scheduler, iteration_stats=iteration, mm_cache_stats=None, engine_idx=0)

    async def collective_rpc(self, method: str, args: tuple[Any, ...] = ()) -> list[Any]:
        if method != "add":
            raise AttributeError(f"the worker has no {method}")
        return [sum(args)]

    def shutdown(self, timeout: float) -> None:
        self._task.cancel()
        self._core.kill()
        self._core.wait()


def speak_nonsense(address: str) -> None:
    """In place of the worker: to the start, or to the first request, answer what is no message."""
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(address)
        lines = connection.makefile("rb")
        wanted = json.loads(lines.readline())["start"]["args"]
        if FAULT == "late_nonsense":
            sizes = {"block_size": BLOCK_SIZE, "kv_blocks": BLOCKS, "max_num_seqs": wanted["max_num_seqs"]}
            connection.sendall(json.dumps({"ready": sizes}).encode() + b"\n")
            lines.readline()
        connection.sendall(b'{"out": [[1, 0, "x"\n' if FAULT == "nonsense" else b'{"out": [[1, 0]], "stats": {}}\n')
        time.sleep(1000)


if FAULT.endswith("nonsense"):
    speak_nonsense(sys.argv[1])
