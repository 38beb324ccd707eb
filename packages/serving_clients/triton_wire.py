"""What the Triton transports share: a request as Triton's fields, and Triton's answers as the client's errors."""

import math
import re
import threading
from collections.abc import Callable, Collection, Generator, Mapping
from contextlib import closing, suppress
from typing import TYPE_CHECKING, Any, TypeVar

from serving_clients.requests import (
    DEFAULT_TIMEOUTS,
    AttemptLimits,
    ClientError,
    Overloaded,
    Refused,
    TextRequest,
    TimedOut,
    Unreachable,
)

if TYPE_CHECKING:
    import numpy as np

T = TypeVar("T")

NUMPY_TYPES = {
    "BOOL": "bool",
    "INT32": "int32",
    "INT64": "int64",
    "UINT32": "uint32",
    "UINT64": "uint64",
    "FP16": "float16",
    "FP32": "float32",
    "BYTES": "object",
}
ENGINE_MODEL = "tensorrt_llm"
"""The model in which an ensemble's requests run, by their own id."""
STOP: dict[str, object] = {"input_ids": [0], "input_lengths": [1], "request_output_len": [1], "stop": True}
"""What ends the request of the same id there; all but ``stop`` only has to be there."""
STOP_LIMITS = AttemptLimits(DEFAULT_TIMEOUTS, math.inf)
FIELDS: dict[str, tuple[str, ...]] = {
    "temperature": ("temperature",),
    "top_k": ("top_k",),
    "top_p": ("top_p",),
    "seed": ("random_seed", "seed"),
    "stop": ("stop_words",),
    "end_id": ("end_id",),
    "pad_id": ("pad_id",),
}
"""Sampling option -> the names that releases of tensorrtllm_backend give its input; the model says which it has."""

NO_ROOM = re.compile(r"[Ee]xceeds maximum queue size|Maximum queue size of|Request timeout expired")
"""Triton's max_queue_size, the old V1 batcher's, and a request that waited too long in Triton's queue."""
GOING_DOWN = re.compile(
    r"shutting down|[Ss]erver is stopping|[Ss]erver exiting|is not ready|Socket closed|Stub process .* is not healthy"
)
NOT_CONNECTED = re.compile(r"failed to connect|Connection refused|DNS resolution failed|Name or service not known")
FORBIDDEN = re.compile(r"restricted, expecting header")


def triton_fields(request: TextRequest, known: Collection[str]) -> dict[str, Any]:
    """Input name -> value. ``known``: the served model's inputs, asked only for options beyond the prompt.

    :class:`Refused` for an option that the model lacks: Triton's generate would drop it without a word.
    """
    fields: dict[str, Any] = {"text_input": request.prompt, "max_tokens": request.max_tokens}
    for option, names in FIELDS.items():
        value = getattr(request.sampling, option)
        if value is None or value == ():
            continue
        name = next((name for name in names if name in known), "")
        if not name:
            raise Refused(
                f"the served model has no input for {option}", fix=f"leave it out; it has: {', '.join(sorted(known))}"
            )
        fields[name] = list(value) if isinstance(value, tuple) else value
    return fields


def as_tensors(values: Mapping[str, object], types: Mapping[str, str]) -> dict[str, "np.ndarray"]:
    """``values`` by input name as tensors [1, n] of Triton's ``types``."""
    import numpy as np

    tensors = {}
    for name, value in values.items():
        elements = list(value) if isinstance(value, list | tuple) else [value]
        if types[name] == "BYTES":
            elements = [str(element).encode("utf-8") for element in elements]
        tensors[name] = np.array([elements], dtype=NUMPY_TYPES[types[name]])
    return tensors


def when_left(answers: Generator[T, None, None], stop: Callable[[], object]) -> Generator[T, None, None]:
    """``answers``; if they are left, or do not come, before their end, ``stop`` is called in a thread of its own.

    An ensemble looks for a cancellation between its steps only, and the engine is one of them.
    """
    try:
        with closing(answers):
            yield from answers
    except (GeneratorExit, TimedOut, Unreachable):
        threading.Thread(target=_stop, args=[stop], name="stop", daemon=True).start()
        raise


def _stop(stop: Callable[[], object]) -> None:
    with suppress(ClientError):  # the server may be what is gone
        stop()


def needs_metadata(request: TextRequest) -> bool:
    """Whether the request has options whose names only the served model knows."""
    return any(getattr(request.sampling, option) not in (None, ()) for option in FIELDS)


def http_failure(status: int, said: str, retry_after_s: float | None) -> ClientError:
    """The error for an HTTP answer that is not a success; ``said``: its words."""
    what = f"the server answered {status}"
    if status in (429, 503) or NO_ROOM.search(said):
        return Overloaded(what, why=said, fix="come back later, or serve more", retry_after_s=retry_after_s)
    if status in (408, 504):
        return TimedOut(what, why=said, fix="see what the server is busy with")
    # 499: Triton cancelled it itself, at its end. 502: a proxy without a server behind it.
    if status in (499, 502) or GOING_DOWN.search(said):
        return Unreachable(what, why=said, fix="see whether the server is being restarted", sent=True)
    return Refused(what, why=said, fix="correct the request: the same one fails again")


def grpc_failure(status: str | None, said: str) -> ClientError:
    """The error for an InferenceServerException. ``status`` like "StatusCode.UNAVAILABLE", None inside a stream.

    UNAVAILABLE stands for four different things, so the words decide first.
    """
    what = f"the server answered {status.removeprefix('StatusCode.')}" if status else "the server answered an error"
    if NO_ROOM.search(said) or status == "StatusCode.RESOURCE_EXHAUSTED":
        return Overloaded(what, why=said, fix="come back later, or serve more")
    if NOT_CONNECTED.search(said):
        return Unreachable("the server does not answer", why=said, fix="see whether it runs")
    if FORBIDDEN.search(said):
        return Refused(what, why=said, fix="send the header that the server expects")
    if status == "StatusCode.DEADLINE_EXCEEDED":
        return TimedOut("no answer in time", why=said, fix="see what the server is busy with")
    if status in ("StatusCode.UNAVAILABLE", "StatusCode.CANCELLED") or GOING_DOWN.search(said):
        return Unreachable(what, why=said, fix="see whether the server is being restarted", sent=True)
    return Refused(what, why=said, fix="correct the request: the same one fails again")
