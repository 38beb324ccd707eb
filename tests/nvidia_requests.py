"""Requests as NVIDIA's clients make them, over tritonclient."""

import queue
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from types import ModuleType
from typing import Any

import numpy as np
import tritonclient.grpc as grpcclient
from tritonclient.utils import np_to_triton_dtype

from serving import END_ID

NEW_TOKENS = 12
PAD_ID = 2044
Tensors = dict[str, np.ndarray]


def tensor(api: ModuleType, name: str, value: np.ndarray) -> Any:
    made = api.InferInput(name, list(value.shape), np_to_triton_dtype(value.dtype))
    made.set_data_from_numpy(value)
    return made


def inputs(api: ModuleType, values: Tensors) -> list[Any]:
    return [tensor(api, name, value) for name, value in values.items()]


def model_values(ids: list[int], new_tokens: int = NEW_TOKENS, streaming: bool = False, **more: np.ndarray) -> Tensors:
    """What the token client sends by habit."""
    values = {
        "input_ids": np.array([ids], np.int32),
        "input_lengths": np.array([[len(ids)]], np.int32),
        "request_output_len": np.array([[new_tokens]], np.int32),
        "beam_width": np.array([[1]], np.int32),
        "temperature": np.array([[1.0]], np.float32),
        "streaming": np.array([[streaming]], bool),
        "end_id": np.array([[END_ID]], np.int32),
        "pad_id": np.array([[PAD_ID]], np.int32),
        "return_log_probs": np.array([[False]], bool),
        "runtime_top_k": np.array([[1]], np.int32),
        "runtime_top_p": np.array([[0.0]], np.float32),
    }
    return values | more


def text_values(prompts: list[str], new_tokens: int = NEW_TOKENS, stream: bool = False, **more: np.ndarray) -> Tensors:
    """What the text client sends by habit."""
    column = np.ones((len(prompts), 1))
    values = {
        "text_input": np.array([[prompt.encode()] for prompt in prompts], object),
        "max_tokens": (column * new_tokens).astype(np.int32),
        "stream": column.astype(bool) & stream,
        "beam_width": column.astype(np.int32),
        "temperature": column.astype(np.float32),
        "bad_words": np.array([[b""] for _ in prompts], object),
        "stop_words": np.array([[b""] for _ in prompts], object),
    }
    return values | more


def stop_values() -> Tensors:
    return {
        "input_ids": np.zeros((1, 1), np.int32),
        "input_lengths": np.zeros((1, 1), np.int32),
        "request_output_len": np.zeros((1, 1), np.int32),
        "stop": np.array([[True]]),
    }


@contextmanager
def stream(url: str) -> Iterator[tuple[grpcclient.InferenceServerClient, "queue.Queue[Any]"]]:
    arrived: queue.Queue[Any] = queue.Queue()
    with grpcclient.InferenceServerClient(url) as client:
        client.start_stream(callback=lambda result, error: arrived.put(error or result))
        yield client, arrived


def answers(url: str, model: str, values: Tensors, outputs: Sequence[str] = (), request_id: str = "") -> list[Any]:
    """Send, close the stream as the clients do, and read what came; stop_stream ends when every final flag is there."""
    wanted = [grpcclient.InferRequestedOutput(name) for name in outputs] or None
    with stream(url) as (client, arrived):
        client.async_stream_infer(model, inputs(grpcclient, values), outputs=wanted, request_id=request_id)
        client.stop_stream()
    return list(arrived.queue)


def texts(results: list[Any]) -> list[str]:
    return [result.as_numpy("text_output")[0].decode() for result in results]


def tokens(results: list[Any]) -> list[int]:
    return [token for result in results for token in result.as_numpy("output_ids")[0, 0].tolist()]
