"""Chapter 06: values that its checks accept, and values that they refuse."""

import threading
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from types import SimpleNamespace as Thing
from typing import Any

import serving_clients as real
from chapter_cells import Case, Fresh
from serving_clients.requests import ClientError

GOOD = real.TextResult("id", "un, deux", ("un", ", deux"), 2, "stop", (), 1.0, 2.0, "http")
ATTEMPT: Any = Thing(started_s=1.0, outcome="ok")


def failed(kind: type[ClientError], pieces: int = 0, attempts: int = 1) -> ClientError:
    """An error of this kind after so many pieces and attempts."""
    error = kind("no")
    error.pieces, error.attempts = ("a",) * pieces, (ATTEMPT,) * attempts
    return error


@contextmanager
def nothing(*_: object, **__: object) -> Iterator[Thing]:
    yield Thing(url="")


def connecting(*outcomes: object, stream: object = None) -> Any:
    """A ``connect`` whose clients answer with ``outcomes``, one after the other; a stream ends in ``stream``."""
    left = list(outcomes)

    def pieces(request: object) -> Iterator[str]:
        yield "a"
        if isinstance(stream, Exception):
            raise stream

    client = Thing(map=lambda asked: iter([left.pop(0) for _ in asked]), stream=pieces, cancel=lambda name: None)

    @contextmanager
    def connect(**options: object) -> Iterator[Thing]:
        yield client

    return connect


class Stub:
    """The names of ``serving_clients``, some of them changed; its faults break no server."""

    faults = Thing(frozen=nothing, kill=lambda server: None, CuttingProxy=nothing)

    def __init__(self, **changed: object) -> None:
        vars(self).update(changed)

    def __getattr__(self, name: str) -> Any:
        return getattr(real, name)


COMMON = {"clients": Stub(), "server": Thing(http_url="", grpc_url="", ports=(0,)), "prompt": "un", "greedy": None}
TABLE = {fault.name: fault for fault in real.FAULTS}
SEEN: dict[str, Any] = {"faults": TABLE, "seen": set(), "sees": lambda name, outcome: None}


def hung(*outcomes: object) -> dict[str, Any]:
    return {**COMMON, **SEEN, "request": None, "connect": Fresh(lambda: connecting(*outcomes))}


def naive(returns: bool) -> dict[str, Any]:
    released = threading.Event()

    def ask(text: str, tokens: int) -> None:
        if not returns:
            released.wait(3)

    return {**COMMON, "naive": ask, "threading": threading}


def four(*texts: str) -> dict[str, Any]:
    """Four transports whose answers are ``texts``."""
    left = list(texts)

    @contextmanager
    def client(transport: object) -> Iterator[Thing]:
        yield Thing(generate=lambda request: Thing(text=left.pop(0), transport="", pieces=()))

    transport = lambda *words, **options: None  # noqa: E731
    given = Stub(Client=client, TritonHttp=transport, TritonGrpc=transport)
    return {**COMMON, "request": None, "clients": given}


def cut(pieces: int) -> dict[str, Any]:
    outcome = failed(real.BrokenStream, pieces=pieces)
    client = lambda transport: Thing(map=lambda asked: iter([outcome]))  # noqa: E731
    return {**COMMON, **SEEN, "clients": Stub(Client=client, TritonHttp=lambda url, stream: None)}


def refused(attempts: int) -> dict[str, Any]:
    outcome = failed(real.Refused, attempts=attempts)
    connect = Fresh(lambda: connecting(outcome, stream=failed(real.Cancelled)))
    return {**COMMON, **SEEN, "long": Thing(request_id="a"), "connect": connect}


def burst(answered: int) -> dict[str, Any]:
    outcomes = [GOOD] * answered + [failed(real.QueueFull)] * (12 - answered)
    return {
        **COMMON,
        **SEEN,
        "threading": threading,
        "Counter": Counter,
        "ThreadPoolExecutor": ThreadPoolExecutor,
        "connect": Fresh(lambda: connecting(*outcomes)),
    }


def crowd(*rejected: int) -> dict[str, Any]:
    """Crowds of a hundred, one after the other, of which so many are refused."""
    outcomes = [each for n in rejected for each in [failed(real.Overloaded)] * n + [GOOD] * (100 - n)]
    sampling = Thing(sampling=real.SamplingOptions())
    given = {"herd_size": 100, "max_queue_size": 1, "long": sampling}
    return {**COMMON, **SEEN, **given, "connect": Fresh(lambda: connecting(*outcomes))}


def herds(lost: int = 0) -> dict[str, Any]:
    """Two runs of four clients, of which the second run leaves ``lost`` without an answer."""
    answer = Thing(**vars(GOOD))
    answered = real.TextResult(**(vars(answer) | {"attempts": (ATTEMPT,)}))
    unanswered = failed(real.DeadlineExceeded)
    outcomes = [answered] * (8 - lost) + [unanswered] * lost
    given = {"herd_size": 4, "patience_s": 9.0, "restart": lambda: 2.0, "long": Thing(sampling=real.SamplingOptions())}
    return {
        **COMMON,
        **given,
        "ThreadPoolExecutor": ThreadPoolExecutor,
        "connect": Fresh(lambda: connecting(*outcomes)),
    }


def ended(stubs: tuple[int, ...] = (), regions: tuple[str, ...] = ()) -> dict[str, Any]:
    return {"server": Thing(stop=lambda: Thing(stubs=stubs, regions=regions))}


TIMED_OUT, LATE = failed(real.TimedOut), failed(real.DeadlineExceeded, attempts=2)
WHOLE = {**SEEN, "unlucky": None, "result": GOOD, "pieces": ["un"], "rest": ", deux", "whole": "un, deux"}


def async_crowd(*texts: str, threads: int = 0) -> dict[str, Any]:
    return {"texts_async": list(texts), "threads_added": threads, "results": [Thing(text="un")]}


def queued(order: str, *late: type[ClientError], hurried: type[ClientError] | None = real.Overloaded) -> dict[str, Any]:
    refused = {f"late {number}": failed(kind) for number, kind in enumerate(late)}
    if hurried:
        refused["hurried"] = failed(hurried)
    return {"clients": real, "order": order.split(), "refused_by": refused}


def wrong_token(attempts: int) -> dict[str, Any]:
    """A gateway that refused a request after so many attempts."""
    client = Thing(map=lambda asked: [failed(real.Refused, attempts=attempts)])

    @contextmanager
    def connected(transport: object) -> Iterator[Thing]:
        yield client

    stub = Stub(Client=connected, TritonHttp=lambda url, **options: None)
    gateway = Thing(server_port=1, shutdown=lambda: None)
    return {**COMMON, **SEEN, "clients": stub, "gateway": gateway, "wrong": None}


PASSED = queued("first urgent normal normal normal", real.Overloaded)

CASES = [
    Case("06-07", "after a second of a hung server", naive(returns=False), naive(returns=True)),
    Case("06-11", "four transports, one answer", four(*["un"] * 8), four("un", "un", "un", "deux")),
    Case("06-14", "hung: the caller sees TimedOut", hung(TIMED_OUT, LATE), hung(GOOD, LATE)),
    Case("06-20", "the pieces that came are kept", cut(3), cut(0)),
    Case("06-23", "the caller gets one whole answer", WHOLE, {"rest": ", trois"}),
    Case("06-25", "it was sent once", refused(1), refused(2)),
    Case("06-27", "at least 6 are answered", burst(6), burst(2)),
    Case("06-30", "the full queue refuses some", crowd(30), crowd(100)),
    Case("06-30", "the full queue refuses some", crowd(0, 0, 30), crowd(0, 0, 0)),
    Case("06-32", "every client is answered in the end", herds(), herds(lost=1)),
    Case("06-47", "the server left nothing behind", ended(), ended(regions=("triton_python_backend_shm_region_1",))),
    Case("06-async-c", "no thread was added", async_crowd("un", "un"), async_crowd("un", threads=2)),
    Case("06-async-c", "each of the crowd got an answer", async_crowd("un", "un"), async_crowd("un", "")),
    Case("06-async-c", "each got the answer", async_crowd("un", "un"), async_crowd("un", "deux")),
    Case("06-async-g", "the urgent request passes", PASSED, queued("first normal normal urgent", real.Overloaded)),
    Case("06-async-g", "what finds the queue full", PASSED, queued("first urgent normal normal", real.TimedOut)),
    Case("06-async-g", "what finds the queue full", PASSED, queued("first urgent normal normal")),
    Case(
        "06-async-g",
        "the hurried one is refused",
        PASSED,
        queued("first urgent normal normal", real.Overloaded, hurried=None),
    ),
    Case("06-gate-c", "a wrong token is sent once", wrong_token(1), wrong_token(2)),
]
