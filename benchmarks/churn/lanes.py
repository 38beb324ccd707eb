"""The lanes of the embedded engine: the engine itself, Triton's models, the LMI container."""

import json
import threading
from collections.abc import Callable, Iterator, Sequence
from itertools import count
from typing import Any

import numpy as np

from benchmarks.churn.churn import Answer, Ask, End, Tokens
from cpu_serving.engine import Engine, Sampling
from model_server.text import TextCodec
from serving_clients import triton

Call = Callable[[Ask, threading.Event], Answer | None]


class EngineLane:
    """The engine, stepped by whoever collects. Ids are used again as soon as a request has ended."""

    def __init__(self, engine: Engine, codec: TextCodec) -> None:
        self._engine = engine
        self._codec = codec
        self._number_of: dict[int, int] = {}
        self._tokens: dict[int, list[int]] = {}

    def submit(self, number: int, ask: Ask) -> None:
        request_id = next(i for i in count() if i not in self._number_of)
        self._number_of[request_id] = number
        self._tokens[request_id] = []
        ids = self._codec.encode(ask.text, special_tokens=True)
        self._engine.submit(request_id, ids, Sampling(max_new_tokens=ask.new_tokens))

    def cancel(self, number: int) -> None:
        self._engine.cancel(next(i for i, n in self._number_of.items() if n == number))

    def collect(self) -> list[End]:
        ends = []
        for output in self._engine.step():
            self._tokens[output.request_id] += output.token_ids
            if output.finish_reason:
                answer = (*self._tokens.pop(output.request_id), *_refused(output.finish_reason))
                number = self._number_of.pop(output.request_id)
                ends.append(End(number, answer, output.finish_reason == "cancelled"))
        return ends


def _refused(reason: str) -> Tokens:
    """An answer that equals none."""
    return (-1,) if reason == "refused" else ()


def triton_ids(url: str, codec: TextCodec, *, streaming: bool) -> Call:
    """Token ids to ``tensorrt_llm``; ``url`` of gRPC."""

    def call(ask: Ask, leave: threading.Event) -> Answer | None:
        ids = codec.encode(ask.text, special_tokens=True)
        tensors: dict[str, np.ndarray[Any, Any]] = {
            "input_ids": np.array([ids], np.int32),
            "input_lengths": np.array([[len(ids)]], np.int32),
            "request_output_len": np.array([[ask.new_tokens]], np.int32),
            "streaming": np.array([[streaming]], bool),
        }
        answer: list[int] = []
        for piece in triton.grpc_infer(url, "tensorrt_llm", tensors, timeout_s=120):
            if "output_ids" in piece:
                answer += piece["output_ids"][0, 0].tolist()
            if leave.is_set():
                break
        return tuple(answer)

    return call


def triton_text(url: str, *, streaming: bool) -> Call:
    """Text to ``ensemble``; ``url`` of HTTP."""

    def call(ask: Ask, leave: threading.Event) -> Answer | None:
        if not streaming:
            return triton.generate(url, ask.text, ask.new_tokens, timeout_s=120)
        return _join(triton.generate_stream(url, ask.text, ask.new_tokens, timeout_s=120), leave)

    return call


def _join(pieces: Iterator[str], leave: threading.Event) -> str:
    answer = ""
    for piece in pieces:
        answer += piece
        if leave.is_set():
            break
    return answer


def lmi_text(port: int, *, streaming: bool) -> Call:
    """``/invocations`` of the LMI container."""
    import httpx

    client = httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=120, trust_env=False)

    def call(ask: Ask, leave: threading.Event) -> Answer | None:
        body = {"inputs": ask.text, "parameters": {"max_new_tokens": ask.new_tokens}, "stream": streaming}
        if not streaming:
            return str(_ok(client.post("/invocations", json=body)).json()["generated_text"])
        with client.stream("POST", "/invocations", json=body) as response:
            return _join(_texts(_ok(response).iter_lines()), leave)

    return call


def _ok(response: Any) -> Any:
    response.raise_for_status()
    return response


def _texts(lines: Iterator[str]) -> Iterator[str]:
    for line in lines:
        yield json.loads(line)["token"]["text"]


def sizes(codec: TextCodec, asks: Sequence[Ask]) -> dict[str, tuple[int, int]]:
    """Shortest and longest prompt of each kind, in tokens."""
    lengths: dict[str, list[int]] = {}
    for ask in asks:
        lengths.setdefault(ask.kind, []).append(len(codec.encode(ask.text, special_tokens=True)))
    return {kind: (min(all_), max(all_)) for kind, all_ in lengths.items()}
