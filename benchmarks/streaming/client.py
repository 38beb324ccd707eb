"""Many clients of a Triton server in one event loop, as light as Python allows, and when each piece came to them."""

import asyncio
import json
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np


@dataclass(frozen=True)
class Load:
    """``waves`` times ``clients`` requests of ``tokens`` new tokens each; a wave ends before the next one begins.

    ``name`` begins the ids of its requests.
    """

    clients: int
    waves: int
    tokens: int
    streaming: bool
    model: str = "ensemble"
    name: str = ""

    @property
    def all_tokens(self) -> int:
        return self.clients * self.waves * self.tokens


@dataclass
class Pieces:
    """One answer: when each piece came, in seconds of the monotonic clock, and how much it held.

    ``sizes`` are tokens of ``tensorrt_llm`` and bytes of text of the other models. ``began_s``: when it was asked for.
    """

    request_id: str
    began_s: float
    at_s: list[float] = field(default_factory=list)
    sizes: list[int] = field(default_factory=list)


@dataclass(frozen=True)
class Answers:
    seconds: float
    each: list[Pieces]

    def __iter__(self) -> Iterator[Pieces]:
        return iter(self.each)


def ask(grpc_url: str, prompts: list[tuple[str, list[int]]], load: Load) -> Answers:
    """Carry out the load. ``prompts``: text and ids, one for each client. RuntimeError for an answer with an error."""
    return asyncio.run(_ask(grpc_url, prompts, load))


METHOD = "/inference.GRPCInferenceService/ModelStreamInfer"
ERROR, FINAL = b"\n", b"triton_final_response\x12\x02\x08\x01"
"""How the bytes of a response begin that brings an error, and what is in those of an answer's last response."""


async def _ask(grpc_url: str, prompts: list[tuple[str, list[int]]], load: Load) -> Answers:
    """Every client has its stream open, and its requests are bytes, before the first one is sent.

    Responses are read when the last one has come.
    """
    import grpc

    waves = [
        [(name, _request(load, name, *prompt).SerializeToString()) for name, prompt in _named(load, wave, prompts)]
        for wave in range(load.waves)
    ]
    async with grpc.aio.insecure_channel(grpc_url) as channel:
        streams = [channel.stream_stream(METHOD)() for _ in prompts]
        came: list[Came] = []
        await asyncio.gather(*(stream.wait_for_connection() for stream in streams))
        began = time.monotonic()
        for requests in waves:
            came += await asyncio.gather(*map(_one, streams, *zip(*requests, strict=True)))
        seconds = time.monotonic() - began
        for stream in streams:
            await stream.done_writing()
    return Answers(seconds, [_pieces(*each) for each in came])


def _named(load: Load, wave: int, prompts: list[tuple[str, list[int]]]) -> Iterator[tuple[str, tuple[str, list[int]]]]:
    return ((f"{load.name}-{wave}-{number}", prompt) for number, prompt in enumerate(prompts))


Came = tuple[str, float, list[tuple[float, bytes]]]
"""Request id, when it was asked for, and each response with when it came."""


async def _one(stream: Any, request_id: str, request: bytes) -> Came:
    began_s = time.monotonic()
    await stream.write(request)
    came = []
    message = b""
    while not (FINAL in message or message.startswith(ERROR)):
        message = await stream.read()
        came.append((time.monotonic(), message))
    return request_id, began_s, came


def _pieces(request_id: str, began_s: float, came: list[tuple[float, bytes]]) -> Pieces:
    """RuntimeError for an error that came."""
    from tritonclient.grpc import service_pb2

    found = Pieces(request_id, began_s)
    for at_s, message in came:
        response = service_pb2.ModelStreamInferResponse.FromString(message)
        if response.error_message:
            raise RuntimeError(response.error_message)
        if response.infer_response.raw_output_contents:
            found.at_s.append(at_s)
            found.sizes.append(_size(response.infer_response))
    return found


def _size(response: Any) -> int:
    """Tokens of output_ids, or bytes of text_output."""
    content = response.raw_output_contents[0]
    return len(content) - 4 if response.outputs[0].datatype == "BYTES" else len(content) // 4


def _request(load: Load, request_id: str, text: str, ids: list[int]) -> Any:
    from tritonclient.grpc import InferInput, InferRequestedOutput, service_pb2

    output = "output_ids" if load.model == "tensorrt_llm" else "text_output"
    request = service_pb2.ModelInferRequest(model_name=load.model, id=request_id)
    request.parameters["triton_enable_empty_final_response"].bool_param = True
    for name, (value, datatype) in _inputs(load, text, ids).items():
        tensor = InferInput(name, list(value.shape), datatype)
        tensor.set_data_from_numpy(value)
        request.inputs.append(tensor._get_tensor())
        request.raw_input_contents.append(tensor._get_content())
    request.outputs.append(InferRequestedOutput(output)._get_tensor())
    return request


def _inputs(load: Load, text: str, ids: list[int]) -> dict[str, tuple[Any, str]]:
    """Of the three kinds of model: ids, text through the ensemble, and NVIDIA's vllm_backend."""
    if load.model == "tensorrt_llm":
        return {
            "input_ids": (np.array([ids], np.int32), "INT32"),
            "input_lengths": (np.array([[len(ids)]], np.int32), "INT32"),
            "request_output_len": (np.array([[load.tokens]], np.int32), "INT32"),
            "end_id": (np.array([[-1]], np.int32), "INT32"),
            "streaming": (np.array([[load.streaming]]), "BOOL"),
        }
    if load.model == "vllm_model":
        sampling = json.dumps({"temperature": 0.0, "max_tokens": load.tokens, "ignore_eos": True})
        return {
            "text_input": (np.array([text.encode()], np.object_), "BYTES"),
            "sampling_parameters": (np.array([sampling.encode()], np.object_), "BYTES"),
            "exclude_input_in_output": (np.array([True]), "BOOL"),
            "stream": (np.array([load.streaming]), "BOOL"),
        }
    return {
        "text_input": (np.array([[text.encode()]], np.object_), "BYTES"),
        "max_tokens": (np.array([[load.tokens]], np.int32), "INT32"),
        "end_id": (np.array([[-1]], np.int32), "INT32"),
        "stream": (np.array([[load.streaming]]), "BOOL"),
    }
