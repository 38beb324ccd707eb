"""LMI's request and response schema as data: no server, no engine.

Sources: deepjavalibrary/djl-serving engines/python/setup/djl_python, branches 0.32.0-dlc (input_parser.py,
output_formatter.py, rolling_batch/trtllm_rolling_batch.py) and 0.33.0-dlc (lmi_trtllm/request_response_utils.py).
"""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from model_server.protocol import Sampling

Schema = Literal["rolling", "async"]
FinishReason = Literal["length", "eos_token", "stop_sequence", "error"]
JSON, JSON_LINES, SSE = "application/json", "application/jsonlines", "text/event-stream"
DEFAULT_MAX_NEW_TOKENS = 30
SAMPLED = {"top_k": 5, "top_p": 0.85, "temperature": 0.8}
"""What rolling batch takes with do_sample where the request says nothing."""
TENSORRT_LLM_TAG = re.compile(r":0\.(?P<minor>\d+)\.\d+-tensorrtllm")
ASYNC_SINCE = 33
"""The djl-inference tag 0.33.0-tensorrtllm0.21.0-cu128 was the first one, and the last."""
STREAMS = {"json": False, "jsonlines": True, "sse": True}
"""``option.output_formatter`` beats the request's own ``stream``."""


class BadRequest(Exception):
    """A request that the container answers with 424 and this text."""


@dataclass(frozen=True)
class LmiRequest:
    """What ``{"inputs": ..., "parameters": {...}, "stream": ...}`` asks for."""

    inputs: str
    sampling: Sampling
    stream: bool = False
    details: bool = False
    return_full_text: bool = False
    stop: tuple[str, ...] = ()


@dataclass(frozen=True)
class Token:
    """One generated token. An end token has the text ""."""

    id: int
    text: str
    log_prob: float


@dataclass
class Answer:
    """An answer so far; ``finish_reason`` None while it grows."""

    prompt_tokens: int
    tokens: list[Token] = field(default_factory=list)
    finish_reason: FinishReason | None = None
    error: str = ""

    @property
    def text(self) -> str:
        return "".join(token.text for token in self.tokens)


def choose_schema(image: str, settings: Mapping[str, str]) -> Schema:
    """Which of the two schemas an image with these settings speaks; without an image, rolling batch."""
    if settings.get("option.async_mode", "").lower() == "true":
        return "async"
    tag = TENSORRT_LLM_TAG.search(image)
    return "async" if tag is not None and int(tag["minor"]) >= ASYNC_SINCE else "rolling"


def parse_body(body: bytes) -> dict[str, Any]:
    """The JSON object of a request. Raises :class:`BadRequest`."""
    try:
        payload = json.loads(body)
    except ValueError as error:
        raise BadRequest(f"Input Parsing failed. The request is not JSON: {error}") from error
    if not isinstance(payload, dict):
        raise BadRequest(f"Input Parsing failed. The request must be a JSON object, not {type(payload).__name__}")
    return payload


def parse_text_request(payload: Mapping[str, Any], schema: Schema) -> LmiRequest:
    """Read a request in LMI's own schema; parameters that nobody knows are ignored. Raises :class:`BadRequest`."""
    inputs = payload["inputs"]
    if not isinstance(inputs, str) or not inputs:
        raise BadRequest("Input Parsing failed. 'inputs' must be a string that is not empty")
    if payload.get("adapters"):
        raise BadRequest("This engine has no LoRA adapters: its graph has no place for them. Leave 'adapters' out.")
    given = payload.get("parameters") or {}
    if not isinstance(given, dict):
        raise BadRequest("Input Parsing failed. 'parameters' must be an object of key-value pairs")
    return LmiRequest(
        inputs=inputs,
        sampling=read_sampling(given, schema),
        stream=read(payload, "stream", bool, False),
        details=read(given, "details", bool, False),
        return_full_text=read(given, "return_full_text", bool, False),
        stop=read_words(given, "stop_sequences") or read_words(given, "stop"),
    )


def read_sampling(given: Mapping[str, Any], schema: Schema) -> Sampling:
    """How to decode. ``do_sample`` false is greedy, true samples; absent, the other parameters decide."""
    do_sample = read(given, "do_sample", bool, None)
    if do_sample and schema == "rolling":
        given = {**SAMPLED, **{key: value for key, value in given.items() if value is not None}}
    # TensorRT-LLM alone is greedy when it is told neither; 0.33 hands it OpenAI's defaults, which are not.
    top_p = read(given, "top_p", float, 1.0 if schema == "async" else 0.0)
    top_k = max(read(given, "top_k", int, 0), 0)
    greedy = do_sample is False or (top_k == 0 and top_p == 0)
    return Sampling(
        max_new_tokens=read(given, "max_new_tokens", int, DEFAULT_MAX_NEW_TOKENS),
        temperature=read(given, "temperature", float, 1.0),
        top_k=1 if greedy else top_k,
        top_p=top_p or 1.0,
        seed=read(given, "seed", int, None),
        repetition_penalty=read(given, "repetition_penalty", float, 1.0),
        presence_penalty=read(given, "presence_penalty", float, 0.0),
        frequency_penalty=read(given, "frequency_penalty", float, 0.0),
        log_probs=True,
    )


def read(given: Mapping[str, Any], name: str, kind: type, default: Any) -> Any:
    """One parameter; null is as good as absent. :class:`BadRequest` for another type."""
    value = given.get(name)
    if value is None:
        return default
    fits = isinstance(value, kind) or (kind is float and isinstance(value, int))
    if not fits or (kind is not bool and isinstance(value, bool)):
        raise BadRequest(f"Input Parsing failed. '{name}' must be of type {kind.__name__}, and is {value!r}")
    return value


def read_words(given: Mapping[str, Any], name: str) -> tuple[str, ...]:
    """A text or a list of texts."""
    value = given.get(name) or []
    words = [value] if isinstance(value, str) else value
    if not isinstance(words, list) or not all(isinstance(word, str) for word in words):
        raise BadRequest(f"Input Parsing failed. '{name}' must be a list of strings, and is {value!r}")
    return tuple(word for word in words if word)


def error_body(message: str) -> bytes:
    """What goes out with 424."""
    return json.dumps({"error": message, "code": 424}, ensure_ascii=False).encode()


class TextFormat:
    """Writes an answer in one of LMI's two schemas. ``sse``: stream lines as server-sent events."""

    def __init__(self, request: LmiRequest, schema: Schema, *, sse: bool = False) -> None:
        self._request = request
        self._schema = schema
        self._sse = sse
        streamed = SSE if sse else JSON_LINES
        self.content_type = streamed if request.stream else JSON

    def chunk(self, answer: Answer, token: Token) -> bytes:
        """The line of ``token``, the newest one; the last line says how the answer ended."""
        write = _rolling_line if self._schema == "rolling" else _async_line
        line = _dump(write(self._request, answer, token))
        return b"data: " + line + b"\n" if self._sse else line

    def end(self, _: Answer) -> bytes:
        """Nothing: the last line says it all."""
        return b""

    def whole(self, answer: Answer) -> bytes:
        request = self._request
        if answer.finish_reason == "error":
            error = {"error": answer.error, "code": 400, "details": {"finish_reason": "error"}}
            return _dump({"generated_text": None, **error})
        if self._schema == "rolling":
            tokens = [_rolling_token(token) for token in answer.tokens]
            details = _rolling_details(request, answer) | {"tokens": tokens}
        else:
            # 0.33 fills in stop_reason here, which is null unless a stop sequence ended the answer.
            stopped = answer.finish_reason if answer.finish_reason == "stop_sequence" else None
            details = {"finish_reason": stopped, "generated_tokens": len(answer.tokens), "seed": request.sampling.seed}
        return _dump(
            {"generated_text": _shown_text(request, answer), **({"details": details} if request.details else {})}
        )


def openai_finish_reason(reason: FinishReason) -> str:
    """As OpenAI's schema has it."""
    return reason if reason in ("length", "error") else "stop"


def _rolling_line(request: LmiRequest, answer: Answer, token: Token) -> dict[str, Any]:
    line: dict[str, Any] = {"token": _rolling_token(token)}
    if answer.finish_reason is not None:
        line["generated_text"] = _shown_text(request, answer)
        if request.details:
            line["details"] = _rolling_details(request, answer)
    if answer.finish_reason == "error":
        line["token"] |= {"special_token": True, "error_msg": answer.error}
        line.setdefault("details", {"finish_reason": "error"})
    return line


def _async_line(request: LmiRequest, answer: Answer, token: Token) -> dict[str, Any]:
    line: dict[str, Any] = {
        "index": 0,
        "token": {"id": None, "text": token.text, "logprob": None},
        "generated_text": None,
        "details": None,
    }
    if answer.finish_reason is not None:
        line["generated_text"] = _shown_text(request, answer)
    if answer.finish_reason == "error" or (answer.finish_reason and request.details):
        line["details"] = {
            "finish_reason": openai_finish_reason(answer.finish_reason),
            "seed": request.sampling.seed,
            "generated_tokens": len(answer.tokens) + 1,  # 0.33 adds one too many, and readers of it subtract it
            "input_length": answer.prompt_tokens,
        }
    return line


def _rolling_token(token: Token) -> dict[str, Any]:
    return {"id": token.id, "text": token.text, "log_prob": token.log_prob}


def _rolling_details(request: LmiRequest, answer: Answer) -> dict[str, Any]:
    return {
        "finish_reason": answer.finish_reason,
        "generated_tokens": len(answer.tokens),
        "inputs": request.inputs,
    }


def _shown_text(request: LmiRequest, answer: Answer) -> str:
    return request.inputs + answer.text if request.return_full_text else answer.text


def _dump(value: Mapping[str, Any]) -> bytes:
    # Always with a newline: the line readers of AWS's notebooks wait for it, after the last line and a lone one too.
    return json.dumps(value, ensure_ascii=False).encode() + b"\n"
