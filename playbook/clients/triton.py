"""Clients of the served model: HTTP generate and generate_stream, tensors over HTTP and gRPC, health and metrics.

``url`` is the server's HTTP address ("http://127.0.0.1:8000"), ``grpc_url`` its host and port ("127.0.0.1:8001").
Options carry the input names of the model asked: temperature, top_k, top_p, stop_words, end_id, ...

Connections stay open between requests (:mod:`playbook.clients.connections`). ``generate_stream`` and ``grpc_stream``
prepare when called and send when first read, so who times the reading times the request.
"""

import json
import queue
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any

from playbook.clients.connections import connections
from serving_base.errors import RequestRefused, ServerError, UsageError

if TYPE_CHECKING:
    import numpy as np

TEXT_MODEL = "ensemble"
TIMEOUT_S = 60.0

NUMPY_TYPES = {
    "BOOL": "bool",
    "INT32": "int32",
    "INT64": "int64",
    "UINT64": "uint64",
    "FP16": "float16",
    "FP32": "float32",
    "BYTES": "object",
}


def generate(
    url: str, prompt: str, max_tokens: int, *, model: str = TEXT_MODEL, timeout_s: float = TIMEOUT_S, **options: object
) -> str:
    """The answer in one piece. :class:`RequestRefused` with the server's words if it refuses."""
    body = _body(url, prompt, max_tokens, model, options)
    with _reaching(url):
        response = connections().http().post(f"{url}/v2/models/{model}/generate", json=body, timeout=timeout_s)
    answer = _json(response.text)
    _raise_refusal(response.status_code, answer)
    return _first(answer["text_output"])


def generate_stream(
    url: str, prompt: str, max_tokens: int, *, model: str = TEXT_MODEL, timeout_s: float = TIMEOUT_S, **options: object
) -> Iterator[str]:
    """The answer piece by piece, as server-sent events bring it. Leaving the loop closes the connection."""
    body = _body(url, prompt, max_tokens, model, {"stream": True, **options})
    return _events(url, f"{url}/v2/models/{model}/generate_stream", body, timeout_s)


def _events(url: str, path: str, body: Mapping[str, object], timeout_s: float) -> Iterator[str]:
    http = connections().http()
    with _reaching(url), http.stream("POST", path, json=body, timeout=timeout_s) as response:
        if response.is_error:
            _raise_refusal(response.status_code, _json(response.read().decode().removeprefix("data: ")))
        for line in response.iter_lines():
            if line.startswith("data:"):
                event = _json(line.removeprefix("data:"))
                _raise_refusal(response.status_code, event)
                yield _first(event["text_output"])


def infer(
    url: str,
    model: str,
    tensors: Mapping[str, "np.ndarray"],
    *,
    outputs: Sequence[str] = (),
    request_id: str = "",
    timeout_s: float = TIMEOUT_S,
) -> dict[str, "np.ndarray"]:
    """One inference with tensors in and out, over HTTP (``url`` with http://) or gRPC (host:port).

    Only for models that are not decoupled; the server refuses others. No ``outputs`` named: all of them.
    """
    if url.startswith("http://"):
        return _http_infer(url, model, tensors, outputs, request_id, timeout_s)
    import tritonclient.grpc as api

    wanted = [api.InferRequestedOutput(name) for name in outputs] or None
    with _grpc(url) as client:
        return _outputs(client.infer(model, _inputs(api, tensors), outputs=wanted, request_id=request_id))


def _http_infer(
    url: str,
    model: str,
    tensors: Mapping[str, "np.ndarray"],
    outputs: Sequence[str],
    request_id: str,
    timeout_s: float,
) -> dict[str, "np.ndarray"]:
    import tritonclient.http as api

    wanted = [api.InferRequestedOutput(name) for name in outputs] or None
    client = api.InferenceServerClient(url.removeprefix("http://"), network_timeout=timeout_s)
    try:
        return _outputs(client.infer(model, _inputs(api, tensors), outputs=wanted, request_id=request_id))
    except api.InferenceServerException as error:
        raise _refused(error) from error
    finally:
        client.close()


def grpc_infer(
    grpc_url: str,
    model: str,
    tensors: Mapping[str, "np.ndarray"],
    *,
    outputs: Sequence[str] = (),
    request_id: str = "",
    timeout_s: float = TIMEOUT_S,
) -> Iterator[dict[str, "np.ndarray"]]:
    """Responses of one request over a gRPC stream, which works in both modes. Leaving the loop cancels the request.

    ``model`` notices it, unless it is an ensemble, whose steps run to their end.
    """
    import tritonclient.grpc as api

    request = {
        "model_name": model,
        "inputs": _inputs(api, tensors),
        "outputs": [api.InferRequestedOutput(name) for name in outputs] or None,
        "request_id": request_id,
    }
    return _responses(grpc_url, _connected(grpc_url), request, timeout_s)


def _responses(
    grpc_url: str, client: Any, request: Mapping[str, Any], timeout_s: float
) -> Iterator[dict[str, "np.ndarray"]]:
    import tritonclient.grpc as api

    arrived: queue.SimpleQueue[tuple[Any, Any]] = queue.SimpleQueue()
    final = whole = False
    client.start_stream(callback=lambda result, error: arrived.put((result, error)))
    try:
        try:
            client.async_stream_infer(**request, enable_empty_final_response=True)
        except api.InferenceServerException as error:
            # The stream broke before the request was in it; the callback has the reason.
            raise _refused(_next(arrived, timeout_s)[1] or error) from error
        while not final:
            result, failure = _next(arrived, timeout_s)
            if failure is not None:
                final = True
                raise _refused(failure)
            response = result.get_response()
            final = response.parameters["triton_final_response"].bool_param
            if response.outputs:
                yield _outputs(result)
        whole = True
    finally:
        client.stop_stream(cancel_requests=not final)
        if whole:
            connections().give_back(grpc_url, client)
        else:
            client.close()


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


def text_tensors(url: str, model: str, values: Mapping[str, object]) -> dict[str, "np.ndarray"]:
    """``values`` as tensors [1, n] of the types that the served model declares. Unknown names raise UsageError."""
    import numpy as np

    types = _types(url, model, values)
    tensors = {}
    for name, value in values.items():
        elements = list(value) if isinstance(value, list | tuple) else [value]
        if types[name] == "BYTES":
            elements = [str(element).encode("utf-8") for element in elements]
        tensors[name] = np.array([elements], dtype=NUMPY_TYPES[types[name]])
    return tensors


def input_types(url: str, model: str) -> dict[str, str]:
    """Input name -> data type of a served model, as the server says it now."""
    if url.startswith("http://"):
        with _reaching(url):
            response = _get(f"{url}/v2/models/{model}")
        answer = _json(response.text)
        _raise_refusal(response.status_code, answer)
        return {tensor["name"]: tensor["datatype"] for tensor in answer["inputs"]}
    with _grpc(url) as client:
        metadata = client.get_model_metadata(model)
    return {tensor.name: tensor.datatype for tensor in metadata.inputs}


def _types(url: str, model: str, values: Mapping[str, object]) -> dict[str, str]:
    """The model's input types, asked once. :class:`UsageError` for a name in ``values`` that it lacks."""
    known = connections().types(url, model, set(values), lambda: input_types(url, model))
    _refuse_unknown(values, known, model)
    return known


@dataclass(frozen=True)
class Health:
    """What the server says of itself."""

    live: bool
    ready: bool
    version: str
    models: dict[str, bool]


def health(url: str, models: Sequence[str] = (TEXT_MODEL,)) -> Health:
    """Ask for liveness, readiness, version, and whether each of ``models`` is ready."""
    with _reaching(url):
        live, ready = (_get(f"{url}/v2/health/{word}").is_success for word in ("live", "ready"))
        version = _get(f"{url}/v2").json()["version"]
        states = {name: _get(f"{url}/v2/models/{name}/ready").is_success for name in models}
    return Health(live, ready, version, states)


def metrics(metrics_url: str) -> dict[str, float]:
    """Every figure of /metrics: 'nv_inference_count{model="ensemble",version="1"}' -> value."""
    with _reaching(metrics_url):
        text = _get(metrics_url).text
    samples = (line.rsplit(" ", 1) for line in text.splitlines() if line and not line.startswith("#"))
    return {name: float(value) for name, value in samples}


def _get(url: str) -> Any:
    return connections().http().get(url, timeout=TIMEOUT_S)


@contextmanager
def _reaching(url: str) -> Iterator[None]:
    import httpx

    try:
        yield
    except httpx.TransportError as error:
        what = "stopped answering" if isinstance(error, httpx.ReadError | httpx.ReadTimeout) else "does not answer"
        raise ServerError(f"the server at {url} {what}", why=repr(error), fix="look into its log") from error


def _connected(address: str) -> Any:
    import tritonclient.grpc as api

    try:
        return connections().take_grpc(address)
    except api.InferenceServerException as error:
        raise _refused(error) from error


@contextmanager
def _grpc(address: str) -> Iterator[Any]:
    """A client for one unary call; a refusal as this package's error."""
    import tritonclient.grpc as api

    client = _connected(address)
    try:
        yield client
    except api.InferenceServerException as error:
        raise _refused(error) from error
    finally:
        connections().give_back(address, client)


def _body(url: str, prompt: str, max_tokens: int, model: str, options: Mapping[str, object]) -> dict[str, object]:
    if set(options) - {"stream"}:
        # The server drops a field that it does not know without a word.
        _types(url, model, options)
    return {"text_input": prompt, "max_tokens": max_tokens, **options}


def _refuse_unknown(values: Mapping[str, object], known: Mapping[str, str], model: str) -> None:
    for name in values:
        if name not in known:
            near = get_close_matches(name, known, n=1)
            raise UsageError(
                f"{model} has no input {name!r}",
                fix=f"did you mean {near[0]!r}?" if near else f"it has: {', '.join(known)}",
            )


def _inputs(api: Any, tensors: Mapping[str, "np.ndarray"]) -> list[Any]:
    from tritonclient.utils import np_to_triton_dtype

    inputs = []
    for name, value in tensors.items():
        tensor = api.InferInput(name, list(value.shape), np_to_triton_dtype(value.dtype))
        tensor.set_data_from_numpy(value)
        inputs.append(tensor)
    return inputs


def _outputs(result: Any) -> dict[str, "np.ndarray"]:
    response = result.get_response()
    if isinstance(response, dict):
        names = [output["name"] for output in response.get("outputs", [])]
    else:
        names = [output.name for output in response.outputs]
    return {name: result.as_numpy(name) for name in names}


def _next(arrived: "queue.SimpleQueue[tuple[Any, Any]]", timeout_s: float) -> tuple[Any, Any]:
    try:
        return arrived.get(timeout=timeout_s)
    except queue.Empty as error:
        raise ServerError(f"no response for {timeout_s:g} s", fix="look into the server's log") from error


def _json(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError as error:
        raise ServerError(f"the server answered something that is not JSON: {text[:200]!r}") from error


def _raise_refusal(status: int, answer: Any) -> None:
    # With several responses to a plain generate the status is 200 and the body an error.
    if isinstance(answer, dict) and "error" in answer:
        raise RequestRefused(f"the server refused the request ({status})", why=str(answer["error"]))


def _refused(error: Any) -> RequestRefused | ServerError:
    if "failed to connect" in error.message().lower():
        return ServerError("the server does not answer", why=error.message(), fix="look into its log")
    return RequestRefused(f"the server refused the request ({error.status()})", why=error.message())


def _first(value: Any) -> str:
    return str(value[0] if isinstance(value, list) else value)
