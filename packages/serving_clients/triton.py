"""Thin clients of Triton: generate and generate_stream over HTTP, tensors and text over gRPC, health and metrics.

``url`` is the server's HTTP address ("http://127.0.0.1:8000"), ``grpc_url`` its host and port ("127.0.0.1:8001").
Options carry the input names of the model asked: temperature, top_k, top_p, stop_words, end_id, ...
``timeout_s`` is the longest silence. What goes wrong raises one of :mod:`serving_clients.requests`.

The functions stand on the connections of the transports, those of this process: they stay open between requests, and a
model is asked once for its inputs. ``generate_stream``, ``grpc_infer`` and ``grpc_stream`` prepare when called and send
when first read, so who times the reading times the request.
"""

import atexit
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from functools import cache
from typing import TYPE_CHECKING

from serving_base.errors import UsageError
from serving_base.servers import TEXT_MODEL
from serving_clients.requests import AttemptLimits, Timeouts, new_id
from serving_clients.triton_grpc import GrpcConnections
from serving_clients.triton_http import HttpConnections, texts
from serving_clients.triton_wire import as_tensors

if TYPE_CHECKING:
    import httpx
    import numpy as np

TIMEOUT_S = 60.0


def generate(
    url: str, prompt: str, max_tokens: int, *, model: str = TEXT_MODEL, timeout_s: float = TIMEOUT_S, **options: object
) -> str:
    """The answer in one piece."""
    return "".join(_asked(url, model, "generate", prompt, max_tokens, options, _limits(timeout_s)))


def generate_stream(
    url: str, prompt: str, max_tokens: int, *, model: str = TEXT_MODEL, timeout_s: float = TIMEOUT_S, **options: object
) -> Iterator[str]:
    """The answer piece by piece, as server-sent events bring it. Leaving the loop ends the request."""
    options = {"stream": True, **options}
    return _asked(url, model, "generate_stream", prompt, max_tokens, options, _limits(timeout_s))


def _asked(
    url: str,
    model: str,
    path: str,
    prompt: str,
    max_tokens: int,
    options: Mapping[str, object],
    limits: AttemptLimits,
) -> Iterator[str]:
    if set(options) - {"stream"}:
        model_url = f"{url}/v2/models/{model}"
        # The server drops a field that it does not know without a word.
        _types(lambda again: _http().inputs(model_url, limits, again=again), options, model_url)
    body = {"text_input": prompt, "max_tokens": max_tokens, "id": new_id(), **options}
    return texts(_http().asked(url, model, path, body, limits))


def infer(
    grpc_url: str,
    model: str,
    tensors: Mapping[str, "np.ndarray"],
    *,
    outputs: Sequence[str] = (),
    request_id: str = "",
    timeout_s: float = TIMEOUT_S,
) -> dict[str, "np.ndarray"]:
    """One inference with tensors in and out; no ``outputs`` named: all of them.

    Only for models that are not decoupled; the server refuses others.
    """
    return _grpc(grpc_url).infer(model, tensors, _limits(timeout_s), outputs=outputs, request_id=request_id)


def grpc_infer(
    grpc_url: str,
    model: str,
    tensors: Mapping[str, "np.ndarray"],
    *,
    outputs: Sequence[str] = (),
    request_id: str = "",
    timeout_s: float = TIMEOUT_S,
) -> Iterator[dict[str, "np.ndarray"]]:
    """Responses of one request over a gRPC stream, which works in both modes. Leaving the loop ends the request."""
    limits, request_id = _limits(timeout_s), request_id or new_id()
    client = _grpc(grpc_url).connected(limits)
    return _grpc(grpc_url).stream(client, model, tensors, limits, outputs=outputs, request_id=request_id)


def grpc_stream(
    grpc_url: str,
    prompt: str,
    max_tokens: int,
    *,
    model: str = TEXT_MODEL,
    timeout_s: float = TIMEOUT_S,
    **options: object,
) -> Iterator[str]:
    """The answer piece by piece over a gRPC stream."""
    values = {"text_input": prompt, "max_tokens": max_tokens, "stream": True, **options}
    tensors = text_tensors(grpc_url, model, values)
    answers = grpc_infer(grpc_url, model, tensors, outputs=["text_output"], timeout_s=timeout_s)
    return (answer["text_output"][0].decode("utf-8") for answer in answers)


def text_tensors(
    grpc_url: str, model: str, values: Mapping[str, object], timeout_s: float = TIMEOUT_S
) -> dict[str, "np.ndarray"]:
    """``values`` as tensors [1, n] of the types that the served model declares. Unknown names raise UsageError."""
    limits = _limits(timeout_s)
    return as_tensors(values, _types(lambda again: _grpc(grpc_url).inputs(model, limits, again=again), values, model))


@dataclass(frozen=True)
class Health:
    """What the server says of itself."""

    live: bool
    ready: bool
    version: str
    models: dict[str, bool]


def health(url: str, models: Sequence[str] = (TEXT_MODEL,)) -> Health:
    """Ask for liveness, readiness, version, and whether each of ``models`` is ready."""
    live, ready = (_get(f"{url}/v2/health/{word}").is_success for word in ("live", "ready"))
    version = _get(f"{url}/v2").json()["version"]
    return Health(live, ready, version, {name: _get(f"{url}/v2/models/{name}/ready").is_success for name in models})


def metrics(metrics_url: str) -> dict[str, float]:
    """Every figure of /metrics: 'nv_inference_count{model="ensemble",version="1"}' -> value."""
    lines = _get(metrics_url).text.splitlines()
    samples = (line.rsplit(" ", 1) for line in lines if line and not line.startswith("#"))
    return {name: float(value) for name, value in samples}


def _get(url: str) -> "httpx.Response":
    return _http().get(url, _limits(TIMEOUT_S))


def _types(ask: Callable[[bool], dict[str, str]], values: Mapping[str, object], model: str) -> dict[str, str]:
    """The model's input types, asked again where a name is new. :class:`UsageError` for one that it lacks."""
    known = ask(False)
    if values.keys() - known.keys():
        known = ask(True)  # another server may have taken the address
    for name in values.keys() - known.keys():
        near = get_close_matches(name, known, n=1)
        raise UsageError(
            f"{model.rpartition('/')[2]} has no input {name!r}",
            fix=f"did you mean {near[0]!r}?" if near else f"it has: {', '.join(known)}",
        )
    return known


def _limits(timeout_s: float) -> AttemptLimits:
    return AttemptLimits(Timeouts(timeout_s, timeout_s), math.inf)


@cache
def _http() -> HttpConnections:
    found = HttpConnections()
    atexit.register(found.close)
    return found


@cache
def _grpc(grpc_url: str) -> GrpcConnections:
    found = GrpcConnections(grpc_url)
    atexit.register(found.close)
    return found
