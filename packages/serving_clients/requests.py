"""What a caller asks, what comes back and how it can fail, the same for every transport; and what a transport is."""

import time
import uuid
from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Protocol

from serving_base.errors import PlaybookError, UsageError

INT32_MAX = 2**31 - 1


def new_id() -> str:
    """An id that no other request has."""
    return uuid.uuid4().hex


@dataclass(frozen=True)
class SamplingOptions:
    """How tokens are chosen; None leaves a value to the server. All None is greedy decoding on Triton and LMI.

    ``end_id`` and ``pad_id``: token ids that end and pad an answer, on Triton only; LMI knows them from the tokenizer.
    """

    temperature: float | None = None
    top_k: int | None = None
    top_p: float | None = None
    seed: int | None = None
    stop: tuple[str, ...] = ()
    end_id: int | None = None
    pad_id: int | None = None


@dataclass(frozen=True)
class TextRequest:
    """One question. ``deadline_s`` counts from the call, with the wait for a slot and all retries in it.

    ``idempotent``: asking twice does no harm but work, which holds for plain generation; without it nothing is sent
    again once it may have arrived. ``restart``: a stream that broke after its first piece may begin again, which is
    right where the same request gives the same tokens (greedy decoding, or a seed).
    """

    prompt: str
    max_tokens: int
    sampling: SamplingOptions = SamplingOptions()
    request_id: str = field(default_factory=new_id)
    deadline_s: float = 60.0
    idempotent: bool = True
    restart: bool = False

    def __post_init__(self) -> None:
        if not self.prompt:
            raise UsageError("the prompt is empty", fix="send a text")
        # Triton's JSON parser answers 500 for a float and wraps a number beyond int32 silently
        if type(self.max_tokens) is not int or not 1 <= self.max_tokens <= INT32_MAX:
            raise UsageError(f"max_tokens is {self.max_tokens!r}", fix="use a whole number from 1 to 2**31 - 1")
        if not self.request_id:
            raise UsageError("the request has an empty id", fix="leave request_id out to get one")
        if self.deadline_s <= 0:
            raise UsageError(f"deadline_s is {self.deadline_s}", fix="use a number of seconds above 0")


@dataclass(frozen=True)
class Piece:
    """A part of an answer. ``tokens`` and ``finish`` where the server tells them, usually with the last piece."""

    text: str
    tokens: int | None = None
    finish: str | None = None


@dataclass(frozen=True)
class Attempt:
    """One time that a request was sent. ``started_s``: on this process's monotonic clock.

    ``outcome``: "ok" or the name of the error; ``wait_s``: the pause that followed it.
    """

    started_s: float
    seconds: float
    outcome: str
    wait_s: float = 0.0


@dataclass(frozen=True)
class TextResult:
    """One answer. Times count from the call. ``tokens`` and ``finish`` are None where the server does not say."""

    request_id: str
    text: str
    pieces: tuple[str, ...]
    tokens: int | None
    finish: str | None
    attempts: tuple[Attempt, ...]
    ttft_ms: float
    e2e_ms: float
    transport: str


@dataclass(frozen=True)
class Timeouts:
    """Of one attempt: to reach the server, and the longest silence between two bytes of its answer."""

    connect_s: float = 2.0
    read_s: float = 30.0


DEFAULT_TIMEOUTS = Timeouts()


@dataclass(frozen=True)
class AttemptLimits:
    """What one attempt may take: :class:`Timeouts`, cut to what the request's deadline leaves."""

    timeouts: Timeouts
    ends_at: float

    @property
    def remaining_s(self) -> float:
        """Seconds to the deadline, never below a millisecond, because libraries take 0 for "no limit"."""
        return max(self.ends_at - time.monotonic(), 0.001)

    @property
    def connect_s(self) -> float:
        return min(self.timeouts.connect_s, self.remaining_s)

    @property
    def read_s(self) -> float:
        return min(self.timeouts.read_s, self.remaining_s)


class ClientError(PlaybookError):
    """Base of them. ``pieces``: the texts that had arrived; ``attempts``: what was tried; ``request_id``: for whom."""

    def __init__(self, what: str, *, why: str = "", fix: str = "", pieces: Sequence[str] = ()) -> None:
        super().__init__(what, why=why, fix=fix)
        self.pieces = tuple(pieces)
        self.request_id = ""
        self.attempts: tuple[Attempt, ...] = ()


class Refused(ClientError):
    """The server understood and said no (bad input, unknown model, wrong token). The same request fails again."""


class Overloaded(ClientError):
    """The server has no room now and did not take the request. ``retry_after_s``: when to come back, if it said so."""

    def __init__(self, what: str, *, why: str = "", fix: str = "", retry_after_s: float | None = None) -> None:
        super().__init__(what, why=why, fix=fix)
        self.retry_after_s = retry_after_s


class QueueFull(ClientError):
    """This client has as many requests waiting as it may. Nothing was sent."""


class Unreachable(ClientError):
    """No answer came because the connection, or the server behind it, failed.

    ``sent``: the request may have arrived, so that the server may have worked on it.
    """

    def __init__(self, what: str, *, why: str = "", fix: str = "", sent: bool = False) -> None:
        super().__init__(what, why=why, fix=fix)
        self.sent = sent


class TimedOut(ClientError):
    """An attempt was given up after too long a silence. The server may still be working on it."""


class DeadlineExceeded(ClientError):
    """The request's own time is over, or would be before another attempt. Never sent again."""


class BrokenStream(ClientError):
    """The answer stopped before its end; ``pieces`` has what came until then."""


class Cancelled(ClientError):
    """The caller gave the request up."""


@contextmanager
def breaking(texts: Sequence[str]) -> Iterator[None]:
    """A failure inside has ``texts`` as its pieces, and is a :class:`BrokenStream` if any had arrived."""
    try:
        yield
    except ClientError as error:
        error.pieces = tuple(texts)
        if not texts or isinstance(error, BrokenStream):
            raise
        what = f"the answer broke off after {len(texts)} pieces"
        raise BrokenStream(what, why=error.why or error.what, pieces=texts) from error


Pieces = Generator[Piece, None, None]
"""An answer that is arriving. Closing it cancels the request at the server, where the transport can."""


class Transport(Protocol):
    """Sends one request once. It retries nothing and maps every failure to an error of `serving_clients.requests`."""

    name: str

    def send(self, request: TextRequest, wire_id: str, limits: AttemptLimits, /) -> Pieces:
        """The answer's pieces as they arrive, one or many. ``wire_id``: unique for each attempt."""
        ...

    def redacted(self, text: str) -> str:
        """``text`` without any secret that this transport sends."""
        ...

    def close(self) -> None: ...
