"""OpenAI's chat completions and completions, as an LMI container answers them on /invocations."""

import json
import re
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal
from uuid import uuid4

from model_server.aws.lmi import (
    JSON,
    JSON_LINES,
    SSE,
    Answer,
    BadRequest,
    Schema,
    Token,
    openai_finish_reason,
    read,
    read_sampling,
    read_words,
)
from model_server.protocol import Sampling

Framing = Literal["jsonlines", "sse"]
RenderChat = Callable[[Sequence[Mapping[str, str]]], str]
DONE = b"data: [DONE]\n\n"
LMI_TAG = re.compile(r":0\.(?P<minor>\d+)\.\d+-(?:tensorrtllm|lmi(?P<lmi>\d+))")
SSE_SINCE_LMI = 26
"""Branch 0.36.0-lmi26-dlc is the first one whose rolling batch has ``sse_chat`` (output_formatter.py)."""


@dataclass(frozen=True)
class ChatRequest:
    """What ``messages`` or ``prompt`` asks for; ``chat`` tells which of the two it was."""

    prompt: str
    chat: bool
    sampling: Sampling
    model: str = "lmi"
    stream: bool = False
    include_usage: bool = False
    logprobs: bool = False
    stop: tuple[str, ...] = ()


def choose_framing(image: str, schema: Schema) -> Framing:
    """How an image streams chat chunks. Without an image: server-sent events, as the newest ones."""
    tag = LMI_TAG.search(image)
    if schema == "async" or (tag is not None and int(tag["lmi"] or 0) < SSE_SINCE_LMI):
        return "jsonlines"
    return "sse"


def parse_chat_request(payload: Mapping[str, Any], render: RenderChat) -> ChatRequest:
    """Read a request with ``messages`` or ``prompt``. Raises :class:`BadRequest`, or what ``render`` raises."""
    chat = "messages" in payload
    prompt = render(_messages(payload["messages"])) if chat else payload["prompt"]
    if not isinstance(prompt, str) or not prompt:
        raise BadRequest("Input Parsing failed. 'prompt' must be a string that is not empty")
    if read(payload, "n", int, 1) != 1:
        raise BadRequest("Input Parsing failed. 'n' must be 1: one answer for a request")
    options = payload.get("stream_options") or {}
    if not isinstance(options, dict):
        raise BadRequest("Input Parsing failed. 'stream_options' must be an object")
    return ChatRequest(
        prompt=prompt,
        chat=chat,
        sampling=_sampling(payload),
        model=str(payload.get("model") or "lmi"),
        stream=read(payload, "stream", bool, False),
        include_usage=read(options, "include_usage", bool, False),
        logprobs=bool(payload.get("logprobs")),
        stop=read_words(payload, "stop"),
    )


class ChatFormat:
    """Formats one answer: chunks while it grows, or the whole."""

    def __init__(self, request: ChatRequest, framing: Framing) -> None:
        self._request = request
        self._framing = framing
        self._shown = 0
        self._first = True
        streamed = SSE if framing == "sse" else JSON_LINES
        self.content_type = streamed if request.stream else JSON
        kind = "chat.completion" if request.chat else "text_completion"
        self._head = {
            "id": f"{'chatcmpl' if request.chat else 'cmpl'}-{uuid4().hex}",
            "object": kind,
            "created": int(time.time()),
            "model": request.model,
        }

    def chunk(self, answer: Answer, token: Token) -> bytes:
        """The chunk of ``token``, the newest one; what may become a stop sequence is held back."""
        text = answer.text
        visible = visible_length(text, self._request.stop, finished=answer.finish_reason is not None)
        piece, self._shown = text[self._shown : visible], max(visible, self._shown)
        choice: dict[str, Any] = {"index": 0, "finish_reason": None, "logprobs": self._logprobs([token])}
        if answer.finish_reason is not None:
            choice["finish_reason"] = openai_finish_reason(answer.finish_reason)
        if self._request.chat:
            choice["delta"] = {"role": "assistant", "content": piece} if self._first else {"content": piece}
        else:
            choice["text"] = piece
        self._first = False
        chunk: dict[str, Any] = {**self._stream_head(), "choices": [choice]}
        if answer.finish_reason == "error":
            chunk["error"] = {"message": answer.error}
        return self._frame(chunk)

    def end(self, answer: Answer) -> bytes:
        """What follows the last chunk: usage, if it was asked for, and the end mark."""
        usage = b""
        if self._request.include_usage:
            usage = self._frame({**self._stream_head(), "choices": [], "usage": _usage(answer)})
        return usage + (DONE if self._framing == "sse" else b"")

    def whole(self, answer: Answer) -> bytes:
        text = answer.text[: visible_length(answer.text, self._request.stop, finished=True)]
        assert answer.finish_reason is not None
        choice: dict[str, Any] = {
            "index": 0,
            "finish_reason": openai_finish_reason(answer.finish_reason),
            "logprobs": self._logprobs(answer.tokens),
        }
        if self._request.chat:
            choice["message"] = {"role": "assistant", "content": text}
        else:
            choice["text"] = text
        body: dict[str, Any] = {**self._head, "choices": [choice], "usage": _usage(answer)}
        if answer.finish_reason == "error":
            body["error"] = {"message": answer.error}
        return json.dumps(body, ensure_ascii=False).encode() + b"\n"

    def _stream_head(self) -> dict[str, Any]:
        return {**self._head, "object": "chat.completion.chunk"} if self._request.chat else self._head

    def _frame(self, chunk: Mapping[str, Any]) -> bytes:
        line = json.dumps(chunk, ensure_ascii=False).encode()
        return b"data: " + line + b"\n\n" if self._framing == "sse" else line + b"\n"

    def _logprobs(self, tokens: Sequence[Token]) -> dict[str, Any] | None:
        if not self._request.logprobs:
            return None
        entries = [
            {"token": token.text, "logprob": token.log_prob, "bytes": list(token.text.encode())} for token in tokens
        ]
        return {"content": [{**entry, "top_logprobs": [entry]} for entry in entries]}


def visible_length(text: str, stop: Sequence[str], *, finished: bool) -> int:
    """How much of ``text`` may be shown: up to a stop sequence, or to what may still become one."""
    found = [position for word in stop if (position := text.find(word)) >= 0]
    if found:
        return min(found)
    if finished:
        return len(text)
    held = (length for word in stop for length in range(1, len(word)) if text.endswith(word[:length]))
    return len(text) - max(held, default=0)


def _messages(messages: Any) -> list[dict[str, str]]:
    if not isinstance(messages, list) or not messages:
        raise BadRequest("Input Parsing failed. 'messages' must be a list that is not empty")
    read_messages = []
    for number, message in enumerate(messages):
        if not isinstance(message, dict) or not isinstance(message.get("role"), str):
            raise BadRequest(f"Input Parsing failed. messages[{number}] must be an object with a role")
        read_messages.append({"role": message["role"], "content": _content(message.get("content"), number)})
    return read_messages


def _content(content: Any, number: int) -> str:
    """A message's text; of parts, the texts in lines, as 0.33 joins them."""
    if isinstance(content, str):
        return content
    if not isinstance(content, list):
        raise BadRequest(f"Input Parsing failed. messages[{number}].content must be a string or a list of parts")
    for part in content:
        kind = part.get("type") if isinstance(part, dict) else part
        if kind != "text" or not isinstance(part.get("text"), str):
            raise BadRequest(f"Input Parsing failed. messages[{number}] has a part that is not text: {kind!r}")
    return "\n".join(part["text"] for part in content)


def _sampling(payload: Mapping[str, Any]) -> Sampling:
    """OpenAI's parameters under LMI's names; a temperature above 0, which is the default, samples."""
    temperature = read(payload, "temperature", float, 1.0)
    given = {
        "do_sample": temperature > 0,
        "temperature": temperature,
        "top_p": read(payload, "top_p", float, 1.0),
        "max_new_tokens": payload.get("max_completion_tokens", payload.get("max_tokens")),
    }
    for name in ("top_k", "seed", "repetition_penalty", "presence_penalty", "frequency_penalty"):
        given[name] = payload.get(name)
    return read_sampling(given, "async")


def _usage(answer: Answer) -> dict[str, int]:
    prompt, new = answer.prompt_tokens, len(answer.tokens)
    return {"prompt_tokens": prompt, "completion_tokens": new, "total_tokens": prompt + new}
