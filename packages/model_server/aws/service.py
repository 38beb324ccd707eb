"""What a container serves: requests read, run by the engine's loop, and their answers token by token.

:class:`AnswerBuilder` turns the engine's outputs for one request into the tokens of an answer.
"""

import asyncio
import os
import traceback
from collections.abc import AsyncGenerator, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Protocol

from model_server.aws import lmi
from model_server.aws.chat import ChatFormat, ChatRequest, choose_framing, parse_chat_request
from model_server.aws.lmi import Answer, Token
from model_server.engines import EngineOptions, ServedEngine, opener_of, warm_up
from model_server.loop import EngineJob, EngineLoop, Event, Failed, JobRefused
from model_server.protocol import EngineHung, Output
from model_server.text import Detokenizer, TextCodec
from serving_base.errors import EnvironmentProblem, PlaybookError
from trtllm_check.serving_properties import merge_settings

ERROR_TOKEN = Token(-1, "", -1.0)


class AnswerBuilder:
    """Collects one answer. ``stop``: texts that end it; they stay in it, as TensorRT-LLM leaves them in."""

    def __init__(self, tokenizer: TextCodec, prompt_tokens: int, stop: tuple[str, ...] = ()) -> None:
        self.answer = Answer(prompt_tokens)
        self._end_ids = tokenizer.end_ids
        self._detokenizer = Detokenizer(tokenizer)
        self._stop = stop

    def take(self, output: Output) -> Iterator[Token]:
        """The new tokens, one by one; before the last one comes, the answer has its finish reason.

        Nothing comes after a stop sequence: whoever reads has to cancel the request.
        """
        if output.finish_reason in ("refused", "cancelled"):
            yield self.fail(f"the engine gave the request up: {output.finish_reason}")
        elif output.finish_reason and not output.token_ids:
            yield self.fail(f"the engine ended the answer without a token: {output.finish_reason}")
        for number, (token_id, log_prob) in enumerate(zip(output.token_ids, output.log_probs, strict=True), start=1):
            ends = token_id in self._end_ids
            final = bool(output.finish_reason) and number == len(output.token_ids)
            token = Token(token_id, self._detokenizer.add(token_id, last=final), log_prob)
            self.answer.tokens.append(token)
            if final:
                self.answer.finish_reason = "eos_token" if ends else "length"
            elif self._stop and any(word in self.answer.text for word in self._stop):
                self.answer.finish_reason = "stop_sequence"
            yield token
            if self.answer.finish_reason:
                return

    def fail(self, reason: str) -> Token:
        """End the answer with an error; returns what stands for its last token."""
        self.answer.finish_reason, self.answer.error = "error", reason
        return ERROR_TOKEN


MAX_ROLLING_BATCH_SIZE = 32
JOB_QUEUE_SIZE = 1000
ENDPOINTS_AT_ONCE = 2
"""Of this machine. Each real one has an instance for itself, these share a GPU: chapter 07 moves between two."""

Tokens = AsyncGenerator[tuple[lmi.Answer, lmi.Token], None]
"""The tokens of an answer as they come, each with the answer so far."""


class Format(Protocol):
    """How one answer is written."""

    content_type: str

    def chunk(self, answer: lmi.Answer, token: lmi.Token) -> bytes: ...
    def end(self, answer: lmi.Answer, /) -> bytes: ...
    def whole(self, answer: lmi.Answer) -> bytes: ...


@dataclass(frozen=True)
class Work:
    """A request that the engine can take, and how its answer is written."""

    prompt_ids: tuple[int, ...]
    request: lmi.LmiRequest | ChatRequest
    format: Format


class AwaitedJob(EngineJob):
    """A request in the engine's loop, seen from the event loop."""

    def __init__(self, work: Work, end_ids: frozenset[int]) -> None:
        # As stop words the end tokens are handed out, with their probabilities.
        sampling = replace(work.request.sampling, stop_words=tuple((number,) for number in sorted(end_ids)))
        super().__init__((work.prompt_ids,), (sampling,))
        self._events: asyncio.Queue[Event] = asyncio.Queue()
        self._aio = asyncio.get_running_loop()

    def deliver(self, _row: int, event: Event) -> None:
        """Called in the engine's thread."""
        self._aio.call_soon_threadsafe(self._events.put_nowait, event)

    async def next(self) -> Event:
        return await self._events.get()


class Service:
    """What the container serves: a tokenizer and an engine, once they are loaded."""

    def __init__(self, model: Path, engine: Path, image: str) -> None:
        self._engine_folder = engine
        path = model / "serving.properties"
        text = path.read_text(encoding="utf-8") if path.is_file() else ""
        self._settings = merge_settings(text, os.environ)
        self._schema = lmi.choose_schema(image, self._settings)
        self._framing = choose_framing(image, self._schema)
        self._tokenizer: TextCodec | None = None
        self._engine: ServedEngine | None = None
        self.loop: EngineLoop[AwaitedJob] | None = None
        self.failure = ""

    def load(self) -> None:
        """Load the engine. What goes wrong is in ``failure``."""
        try:
            for name in ("option.tensor_parallel_degree", "option.pipeline_parallel_degree"):
                require_one(name, self._settings.get(name, "1"))
            self._tokenizer = TextCodec.load(
                self._engine_folder / "tokenizer", fix="upload the engine folder with its tokenizer/"
            )
            engine = opener_of(self._engine_folder).open_engine(
                self._engine_folder, EngineOptions(gpu_sharers=ENDPOINTS_AT_ONCE, apart=True)
            )
            self._engine = engine
            warm_up(engine)
            self.loop = EngineLoop(
                engine,
                AwaitedJob.deliver,
                max_running=self._number("option.max_rolling_batch_size", MAX_ROLLING_BATCH_SIZE),
                max_waiting=self._number("job_queue_size", JOB_QUEUE_SIZE),
                survives=(EngineHung,),
            )
        except PlaybookError as error:
            self.failure = str(error)
        except Exception:
            self.failure = traceback.format_exc()

    def close(self) -> None:
        """Tell those who wait, and free the engine."""
        if self.loop is not None:
            self.loop.close("the container is shutting down")
        if self._engine is not None:
            self._engine.close()

    @property
    def healthy(self) -> bool:
        return self.loop is not None and not self.loop.broken

    def read(self, body: bytes) -> Work:
        """Read a request. Raises BadRequest and RequestRefused."""
        tokenizer = self._tokenizer
        assert tokenizer is not None
        payload = lmi.parse_body(body)
        if "messages" in payload or "prompt" in payload:
            chat = parse_chat_request(payload, tokenizer.render_chat)
            return Work(tuple(tokenizer.encode_prompt(chat.prompt)), chat, ChatFormat(chat, self._framing))
        if "inputs" not in payload:
            raise lmi.BadRequest("Input Parsing failed. invalid payload. must contain prompt, inputs, or messages")
        text = lmi.parse_text_request(payload, self._schema)
        formatter = self._settings.get("option.output_formatter", "")
        text = replace(text, stream=lmi.STREAMS.get(formatter, text.stream))
        form = lmi.TextFormat(text, self._schema, sse=formatter == "sse")
        return Work(tuple(tokenizer.encode_prompt(text.inputs)), text, form)

    async def begin(self, work: Work) -> tuple[AwaitedJob, Tokens]:
        """Queue a request and wait for its first token. Raises BadRequest, EngineError and JobQueueFull.

        Whoever does not read the tokens to their end has to end() the job.
        """
        assert self.loop is not None and self._tokenizer is not None
        job = AwaitedJob(work, self._tokenizer.end_ids)
        self.loop.check(job)
        self.loop.submit(job)
        try:
            first = await job.next()
        except asyncio.CancelledError:
            self.end(job)
            raise
        if isinstance(first, JobRefused):
            raise lmi.BadRequest(first.reason)
        builder = AnswerBuilder(self._tokenizer, len(work.prompt_ids), work.request.stop)
        return job, answer_tokens(job, first, builder)

    def end(self, job: AwaitedJob) -> None:
        """Safe after the job's own end."""
        assert self.loop is not None
        self.loop.cancel(job)

    def _number(self, key: str, default: int) -> int:
        written = self._settings.get(key, str(default))
        if not written.isdecimal() or int(written) < 1:
            raise EnvironmentProblem(f"{key}={written} is not a number above 0", fix="write one in serving.properties")
        return int(written)


async def answer_tokens(job: AwaitedJob, first: Event, builder: AnswerBuilder) -> Tokens:
    """Every token of an answer as it comes, with the answer so far."""
    event = first
    while True:
        if isinstance(event, Failed | JobRefused):
            yield builder.answer, builder.fail(event.reason)
            return
        for token in builder.take(event):
            yield builder.answer, token
        if builder.answer.finish_reason is not None:
            return
        event = await job.next()


def require_one(name: str, degree: str) -> None:
    """This machine is one device."""
    if degree not in ("1", "max"):
        raise EnvironmentProblem(
            f"{name}={degree}, and this machine has one device", fix="write 1 or max for the embedded lane"
        )
