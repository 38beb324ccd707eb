"""The engine process of the vllm lane: vLLM's ``AsyncLLM`` behind a Unix socket, one JSON object a line.

``python worker.py SOCKET`` connects to SOCKET, on which the caller listens; it ends when that closes. It is run by the
interpreter that has vLLM, which need not have anything of ours: standard library and vLLM only.

In: ``{"start": {"model", "args", "iterations"}}`` first, then ``{"submit": n, "prompt": [...], "sampling": {...}}``,
``{"cancel": n}``, ``{"call": n, "method", "args"}`` (a method of the worker extension), ``{"close": true}``.
Out: ``{"ready": {...}}`` first, then ``{"one": [n, token, n, token...], "out": [[n, sequence, tokens, log-probs,
finish, step]...], "stats": {...}}``, all that one turn of the event loop brought, of each sequence in one place;
``{"result": n, "value" or "error"}``; ``{"fatal": reason}`` last.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import time
import traceback
from collections.abc import Iterable, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import Any

from vllm import SamplingParams, __version__
from vllm.engine.arg_utils import AsyncEngineArgs
from vllm.sampling_params import RequestOutputKind
from vllm.v1.engine.async_llm import AsyncLLM
from vllm.v1.metrics.loggers import StatLoggerBase

LINE_LIMIT = 1 << 26
REASON_LENGTH = 2000
SHUTDOWN_S = 1.0
"""What vLLM's own processes may take to end by themselves, which on a CPU they never do (vLLM 0.32 waits 5 s)."""
FINISHES = {None: "", "stop": "end_id", "length": "length"}
"""vLLM's finish reason -> ours; any other is "cancelled"."""


class Iterations:
    """What vLLM said of its iterations: the last figures, and one entry for each iteration where they are wanted.

    An entry: number, seconds since the one before, prompts finished, tokens of prompts, tokens generated.
    """

    def __init__(self) -> None:
        self.wanted = False
        self.entries: list[list[float]] = []
        self.stats: dict[str, float] = {"running": 0, "waiting": 0, "kv_usage": 0.0, "steps": 0}
        self._last_s = time.perf_counter()

    def add(self, scheduler: Any, iteration: Any) -> None:
        now = time.perf_counter()
        steps = int(self.stats["steps"]) + 1
        self.stats["steps"] = steps
        if scheduler is not None:
            self.stats |= {
                "running": scheduler.num_running_reqs,
                "waiting": scheduler.num_waiting_reqs,
                "kv_usage": scheduler.kv_cache_usage,
            }
        if self.wanted and iteration is not None:
            prompts = len(iteration.time_to_first_tokens_iter)
            self.entries.append(
                [steps, now - self._last_s, prompts, iteration.num_prompt_tokens, iteration.num_generation_tokens]
            )
        self._last_s = now

    def begin(self) -> None:
        """An idle engine gets work: its next iteration starts now."""
        self._last_s = time.perf_counter()

    def take(self) -> dict[str, Any]:
        """The figures, and the entries since the last call."""
        entries, self.entries = self.entries, []
        return self.stats | ({"iterations": entries} if entries else {})


ITERATIONS = Iterations()


class IterationLogger(StatLoggerBase):  # type: ignore[misc] # vLLM is in another environment
    """vLLM makes one itself, so what it hears goes to :data:`ITERATIONS`."""

    def __init__(self, vllm_config: Any, engine_index: int = 0) -> None:
        pass

    def record(self, scheduler_stats: Any = None, iteration_stats: Any = None, *_: Any, **__: Any) -> None:
        ITERATIONS.add(scheduler_stats, iteration_stats)

    def log_engine_initialized(self) -> None:
        pass


def sampling_params(wanted: dict[str, Any]) -> SamplingParams:
    """TensorRT-LLM's meanings: greedy is one answer, an end token only where the request names one, seed 0."""
    greedy, end = wanted["greedy"], wanted["end_id"]
    chosen = {} if greedy else {name: wanted[name] for name in ("temperature", "top_k", "top_p")}
    return SamplingParams(
        n=1 if greedy else wanted["num_return_sequences"],
        max_tokens=wanted["max_new_tokens"],
        stop_token_ids=[end] if end is not None and end >= 0 else [],
        ignore_eos=True,
        seed=None if greedy else wanted["seed"] or 0,
        repetition_penalty=wanted["repetition_penalty"],
        presence_penalty=wanted["presence_penalty"],
        frequency_penalty=wanted["frequency_penalty"],
        logprobs=0 if wanted["log_probs"] else None,
        detokenize=False,
        output_kind=RequestOutputKind.DELTA,
        **({"temperature": 0.0} | chosen),
    )


@dataclass
class GrowingAnswer:
    """One sequence as it comes. Its stop words are ours, not vLLM's, whose end in the middle of a text."""

    end_id: int
    words: Sequence[tuple[int, ...]]
    over: bool = False
    _tail: list[int] = field(default_factory=list)

    def take(self, tokens: list[int], reason: str | None) -> tuple[list[int], str]:
        """The new tokens to keep, and why the sequence ended with them ("" if it did not)."""
        finish = FINISHES.get(reason, "cancelled")
        if finish == "end_id" and tokens and tokens[-1] == self.end_id:
            tokens = tokens[:-1]
        stop = self._first_stop(tokens)
        if stop is not None:
            tokens, finish = tokens[:stop], "stop_words"
        self.over = bool(finish)
        return tokens, finish

    def _first_stop(self, tokens: list[int]) -> int | None:
        """How many of ``tokens`` there are up to the end of the first stop word."""
        longest = max(map(len, self.words), default=0)
        for count, token in enumerate(tokens if longest else (), 1):
            self._tail = [*self._tail, token][-longest:]
            if any(tuple(self._tail[-len(word) :]) == word for word in self.words):
                return count
        return None


class Worker:
    """Serves the requests of one connection."""

    def __init__(self, engine: AsyncLLM, send: Any) -> None:
        self._engine, self._send = engine, send
        self._loop = asyncio.get_running_loop()
        self._tasks: dict[int, asyncio.Task[None]] = {}
        self._calls: set[asyncio.Task[None]] = set()
        self._rows: dict[tuple[int, ...], list[Any]] = {}
        self.ended: asyncio.Future[str] = self._loop.create_future()

    def end(self, reason: str) -> None:
        """``reason``: why the engine broke; "": nobody listens any more."""
        if not self.ended.done():
            self.ended.set_result(reason)

    def take(self, message: dict[str, Any]) -> bool:
        """Do what a message wants; False: it wants the end."""
        if "submit" in message:
            number = message["submit"]
            if not self._tasks:
                ITERATIONS.begin()
            serving = self._serve(number, message["prompt"], message["sampling"])
            self._tasks[number] = self._loop.create_task(serving)
        elif "cancel" in message:
            task = self._tasks.pop(message["cancel"], None)
            if task is not None:
                task.cancel()  # leaving vLLM's generator ends the request in the engine
        elif "call" in message:
            task = self._loop.create_task(self._call(message["call"], message["method"], message["args"]))
            self._calls.add(task)
            task.add_done_callback(self._calls.discard)
        else:
            return not message["close"]
        return True

    async def _serve(self, number: int, prompt: list[int], wanted: dict[str, Any]) -> None:
        try:
            await self._answer(number, prompt, wanted)
        except (ValueError, TypeError) as error:
            self._put([number, 0, [], [], "refused", 0, str(error)[:REASON_LENGTH]])
        except Exception as error:
            self.end(repr(error))
        finally:
            self._tasks.pop(number, None)

    async def _answer(self, number: int, prompt: list[int], wanted: dict[str, Any]) -> None:
        words = [tuple(word) for word in wanted["stop_words"]]
        params = sampling_params(wanted)
        copies = wanted["num_return_sequences"] // params.n  # greedy sequences are all the same
        answers = [GrowingAnswer(-1 if wanted["end_id"] is None else wanted["end_id"], words) for _ in range(params.n)]
        async with aclosing(self._engine.generate({"prompt_token_ids": prompt}, params, str(number))) as outputs:
            async for output in outputs:
                for part in output.outputs:
                    if not answers[part.index].over:
                        self._take(number, answers[part.index], part, copies)
                if all(answer.over for answer in answers):
                    return  # and leaving ends the request in the engine

    def _take(self, number: int, answer: GrowingAnswer, part: Any, copies: int) -> None:
        given = list(part.token_ids)
        tokens, finish = answer.take(given, part.finish_reason)
        scores = [found[token].logprob for token, found in zip(given, part.logprobs or (), strict=False)]
        if tokens or finish:
            for index in range(part.index, part.index + copies):
                self._put([number, index, tokens, scores[: len(tokens)], finish, ITERATIONS.stats["steps"]])

    async def _call(self, number: int, method: str, args: list[Any]) -> None:
        try:
            self._send({"result": number, "value": await self._engine.collective_rpc(method, args=tuple(args))})
        except Exception as error:
            self._send({"result": number, "error": repr(error)[:REASON_LENGTH]})

    def _put(self, row: list[Any]) -> None:
        if not self._rows:
            self._loop.call_soon(self._flush)
        number, index, tokens, scores, _, step, *_ = row
        before = self._rows.setdefault((number, index, step) if ITERATIONS.wanted else (number, index), row)
        if before is not row:  # two steps in one turn
            row[2:4] = before[2] + tokens, before[3] + scores
            before[:] = row

    def _flush(self) -> None:
        rows, self._rows = self._rows, {}
        self._send(packed(rows.values(), whole=ITERATIONS.wanted) | {"stats": ITERATIONS.take()})


def packed(rows: Iterable[list[Any]], *, whole: bool) -> dict[str, list[Any]]:
    """Rows of one token and nothing else, which most are, as two numbers: a third of the time to write and to read.

    ``whole``: none of them, for a reader who wants their steps.
    """
    one: list[int] = []
    out = []
    for row in rows:
        number, index, tokens, scores, finish, *_ = row
        if whole or index or finish or scores or len(tokens) != 1:
            out.append(row)
        else:
            one += number, tokens[0]
    return {"one": one, "out": out}


async def warm_up(engine: AsyncLLM) -> None:
    """Two tokens for nobody: the first step compiles, and log-probabilities do even in eager mode."""
    params = SamplingParams(max_tokens=2, ignore_eos=True, detokenize=False, temperature=0.0, logprobs=0)
    async for _ in engine.generate({"prompt_token_ids": [0]}, params, "warm-up"):
        pass


def ready(engine: AsyncLLM, loaded_s: float, first_step_s: float) -> dict[str, Any]:
    """What the engine turned out to be."""
    config = engine.vllm_config
    return {
        "version": __version__,
        "loaded_s": round(loaded_s, 2),
        "first_step_s": round(first_step_s, 2),
        "block_size": config.cache_config.block_size,
        "kv_blocks": config.cache_config.num_gpu_blocks or 0,
        "max_num_seqs": config.scheduler_config.max_num_seqs,
        "max_num_tokens": config.scheduler_config.max_num_batched_tokens,
        "max_model_len": config.model_config.max_model_len,
        "graph_sizes": list(config.compilation_config.cudagraph_capture_sizes or ()),
    }


async def serve(reader: asyncio.StreamReader, send: Any) -> None:
    """Start the engine that the first line asks for, and answer until the connection ends or the engine breaks."""
    began = time.perf_counter()
    wanted = json.loads(await reader.readline())["start"]
    ITERATIONS.wanted = wanted["iterations"]
    arguments = AsyncEngineArgs(model=wanted["model"], **wanted["args"])
    engine = AsyncLLM.from_engine_args(arguments, stat_loggers=[IterationLogger])
    try:
        loaded_s = time.perf_counter() - began
        await warm_up(engine)
        send({"ready": ready(engine, loaded_s, time.perf_counter() - began - loaded_s)})
        worker = Worker(engine, send)
        reading = asyncio.ensure_future(_read(reader, worker))
        reading.add_done_callback(lambda _: worker.end(""))
        reason = await worker.ended
        if reason:
            raise RuntimeError(f"the engine broke: {reason}")
        reading.result()
    finally:
        engine.shutdown(timeout=SHUTDOWN_S)


async def _read(reader: asyncio.StreamReader, worker: Worker) -> None:
    while (line := await reader.readline()) and worker.take(json.loads(line)):
        pass


async def main(address: str) -> int:
    reader, writer = await asyncio.open_unix_connection(address, limit=LINE_LIMIT)

    def send(message: dict[str, Any]) -> None:
        writer.write(json.dumps(message, separators=(",", ":"), default=str).encode() + b"\n")

    try:
        await serve(reader, send)
    except Exception as error:
        traceback.print_exc()
        send({"fatal": repr(error)[:REASON_LENGTH]})
        await writer.drain()
        return 1
    return 0


if __name__ == "__main__":
    status = asyncio.run(main(sys.argv[1]))
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)  # the engine has ended; Python's own end would take 4 s more
