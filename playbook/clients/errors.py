"""The few ways in which a request can fail, the same for every transport. Each says whether it may be sent again."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from playbook.clients.requests import Attempt
from serving_base.errors import PlaybookError


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
