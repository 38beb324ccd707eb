"""The table of chapter 06, row by row, against the real server made to fail."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from model_server.triton.server import TritonServer
from serving import PROMPTS, build_tiny_engine, serving, write_tiny_repository
from serving_base.errors import ServerError
from serving_base.servers import server_processes
from serving_clients import (
    FAULTS,
    ONCE,
    Client,
    ClientError,
    Credential,
    Overloaded,
    RetryPolicy,
    SamplingOptions,
    Secret,
    TextRequest,
    TextResult,
    Timeouts,
    TritonGrpc,
    TritonHttp,
    may_repeat,
    triton,
)
from serving_clients.faults import CuttingProxy, Fault, frozen, kill
from serving_clients.requests import Pieces, Transport
from waiting import tried, until

pytestmark = [pytest.mark.server]

TRIES = 5
NEVER_ENDS = SamplingOptions(end_id=-1)
LONG = 300
OUTPUT_TOKENS = "nv_llm_output_token_len_sum"
PATIENT = RetryPolicy(max_attempts=1000, base_s=0.05, cap_s=0.5)
"""Until the server is back, however long a busy machine takes: the test's own limit comes first."""
Seen = TextResult | ClientError
Connect = Callable[..., Client]


def question(**options: Any) -> TextRequest:
    defaults: dict[str, Any] = {"max_tokens": LONG, "sampling": NEVER_ENDS}
    return TextRequest(PROMPTS[0], **(defaults | options))


def caught(client: Client, request: TextRequest) -> Seen:
    """What the caller sees."""
    try:
        return client.generate(request)
    except ClientError as error:
        return error


class Lost:
    """A server that a fault may break, and that is whole again for the next one."""

    def __init__(self, server: TritonServer) -> None:
        self.server = server

    def restart(self) -> None:
        self.server.stop()
        self.server.start()

    def mend(self) -> None:
        """A case that failed may have left it down: the next one finds it up all the same."""
        try:
            server_processes(self.server.pid)
        except ServerError:
            self.restart()

    @contextmanager
    def down(self) -> Iterator[None]:
        kill(self.server)
        try:
            yield
        finally:
            self.restart()


@pytest.fixture(scope="module")
def engine_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_tiny_engine(tmp_path_factory.mktemp("engine") / "engine")


@pytest.fixture(scope="module")
def breakable(tmp_path_factory: pytest.TempPathFactory, engine_folder: Path) -> Iterator[Lost]:
    folder = tmp_path_factory.mktemp("small-queue") / "repository"
    with serving(folder, engine_folder, max_batch_size=4, max_queue_size=2) as server:
        yield Lost(server)


@pytest.fixture
def lost(breakable: Lost) -> Lost:
    breakable.mend()
    return breakable


class Watched:
    """A transport; ``missed`` is set when it finds no server."""

    def __init__(self, transport: Transport) -> None:
        self.transport, self.missed = transport, threading.Event()
        self.name, self.redacted, self.close = transport.name, transport.redacted, transport.close

    def send(self, *request: Any) -> Pieces:
        try:
            yield from self.transport.send(*request)
        except ClientError:
            self.missed.set()
            raise


def http_transport(lost: Lost) -> Watched:
    return Watched(TritonHttp(lost.server.http_url, stream=True))


def grpc_transport(lost: Lost) -> Watched:
    return Watched(TritonGrpc(lost.server.grpc_url))


def http(lost: Lost, **options: Any) -> Client:
    return Client(http_transport(lost), **options)


def grpc(lost: Lost, **options: Any) -> Client:
    return Client(grpc_transport(lost), **options)


TRANSPORTS: dict[Connect, Callable[[Lost], Watched]] = {http: http_transport, grpc: grpc_transport}


@contextmanager
def back_when_missed(lost: Lost, transport: Watched) -> Iterator[None]:
    """The killed server starts anew once an attempt has found it gone."""
    transport.missed.clear()

    def restart() -> None:
        transport.missed.wait()
        lost.restart()

    comes_back = threading.Thread(target=restart)
    comes_back.start()
    try:
        yield
    finally:
        transport.missed.set()
        comes_back.join()


def down(lost: Lost, connect: Connect) -> Seen:
    with lost.down(), connect(lost, retry=ONCE) as client:
        return caught(client, question())


def restarted(lost: Lost, connect: Connect) -> Seen:
    kill(lost.server)
    transport = TRANSPORTS[connect](lost)
    with back_when_missed(lost, transport), Client(transport, retry=PATIENT) as client:
        seen = caught(client, question(max_tokens=8))
    assert len(seen.attempts) > 1
    assert {attempt.outcome for attempt in seen.attempts[:-1]} <= {"Unreachable", "TimedOut"}
    return seen


def read_on(answer: Iterator[str], pieces: list[str]) -> ClientError | None:
    """Take what comes into ``pieces``; the error that ends it, None if it ends well."""
    try:
        for piece in answer:
            pieces.append(piece)  # noqa: PERF402 - what came before the error is kept
    except ClientError as error:
        return error
    return None


def killed(lost: Lost, connect: Connect) -> Seen:
    """On a busy machine the answer may be whole before its server is killed: then again."""
    for _ in range(TRIES):
        with connect(lost, retry=ONCE) as client:
            answer = client.stream(question(max_tokens=700))
            pieces = [next(answer)]
            kill(lost.server)
            seen = read_on(answer, pieces)
        lost.restart()
        if seen is not None:
            break
    assert seen is not None and seen.pieces == tuple(pieces)
    assert 1 <= len(pieces) < 700
    return seen


def truncated(lost: Lost, connect: Connect) -> Seen:
    port = lost.server.ports[0 if connect is http else 1]
    with CuttingProxy(port, after_bytes=4000) as proxy:
        transport: Transport = TritonHttp(proxy.url, stream=True)
        if connect is grpc:
            transport = TritonGrpc(proxy.url.removeprefix("http://"))
        with Client(transport, retry=ONCE) as client:
            seen = caught(client, question())
    assert 1 <= len(seen.pieces) < LONG
    return seen


def hung(lost: Lost, connect: Connect) -> Seen:
    with connect(lost, retry=ONCE, timeouts=Timeouts(connect_s=0.3, read_s=0.3)) as client, frozen(lost.server):
        return caught(client, question())


def hung_for_long(lost: Lost, connect: Connect) -> Seen:
    with connect(lost, retry=PATIENT, timeouts=Timeouts(connect_s=0.3, read_s=0.3)) as client, frozen(lost.server):
        seen = caught(client, question(deadline_s=3.0))
        assert 1 < len(seen.attempts) < 1000  # it was the deadline that ended them
        return seen


def full_queue(lost: Lost, connect: Connect) -> Seen:
    with connect(lost, retry=ONCE, max_in_flight=24) as client:

        def refused() -> Overloaded | None:
            outcomes = list(client.map(question() for _ in range(24)))
            assert not all(isinstance(outcome, ClientError) for outcome in outcomes)
            return next((outcome for outcome in outcomes if isinstance(outcome, Overloaded)), None)

        return tried(refused, "24 requests at once find no room in a queue of 2")


def bad_request(lost: Lost, connect: Connect) -> Seen:
    with connect(lost) as client:
        seen = caught(client, TextRequest("word " * 300, max_tokens=4))
    assert isinstance(seen, ClientError) and "exceeds max_input_len 256" in seen.why
    assert len(seen.attempts) == 1
    return seen


def clients_queue_full(lost: Lost, connect: Connect) -> Seen:
    with connect(lost, max_in_flight=1, max_waiting=0) as client:
        holds = client.stream(question())
        next(holds)
        seen = caught(client, question())
        holds.close()
    assert seen.attempts == ()
    return seen


def cancelled(lost: Lost, connect: Connect) -> Seen | None:
    with connect(lost) as client:
        request = question()
        answer = client.stream(request)
        next(answer)
        assert client.cancel(request.request_id)
        return read_on(answer, [])


def caller_leaves(lost: Lost, connect: Connect) -> None:
    def left() -> float | None:
        tokens = abandoned(lost, connect, max_tokens=700)
        return tokens if tokens < 700 else None

    tried(left, "an abandoned answer ends before its end")


def abandoned(lost: Lost, connect: Connect, max_tokens: int) -> float:
    """Tokens that the engine generated for a caller who left after the first."""
    wait_until_idle(lost.server)
    before = generated(lost.server)
    with connect(lost) as client:
        answer = client.stream(question(max_tokens=max_tokens))
        next(answer)
        with frozen(lost.server):
            answer.close()  # the caller is free, and does not wait for the answer's end
    until(lambda: generated(lost.server) > before, "the engine ends the abandoned answer")
    return generated(lost.server) - before


def generated(server: TritonServer) -> float:
    """Tokens of all answers that the server has finished."""
    return sum(value for name, value in triton.metrics(server.metrics_url).items() if OUTPUT_TOKENS in name)


def wait_until_idle(server: TritonServer) -> None:
    name = 'nv_trt_llm_request_metrics{model="tensorrt_llm",request_type="active",version="1"}'
    until(lambda: not triton.metrics(server.metrics_url)[name], "the server works for nobody")


MAKE: dict[str, Callable[[Lost, Connect], Seen | None]] = {
    "down": down,
    "restarted": restarted,
    "killed in mid-stream": killed,
    "truncated stream": truncated,
    "hung": hung,
    "hung for long": hung_for_long,
    "full queue": full_queue,
    "bad request": bad_request,
    "client's queue full": clients_queue_full,
    "cancelled": cancelled,
    "caller leaves": caller_leaves,
}
REPEATED = {  # by default, with idempotent=False, with restart=True
    "yes": (True, True, True),
    "if idempotent": (True, False, True),
    "only with restart=True": (False, False, True),
    "no": (False, False, False),
}
ELSEWHERE = {"wrong token"}


def test_every_row_of_the_table_is_tested() -> None:
    assert {fault.name for fault in FAULTS} == set(MAKE) | ELSEWHERE


@pytest.mark.parametrize("connect", [http, grpc])
@pytest.mark.parametrize("fault", [fault for fault in FAULTS if fault.name in MAKE], ids=lambda fault: fault.name)
def test_what_the_caller_sees(fault: Fault, connect: Connect, lost: Lost) -> None:
    seen = MAKE[fault.name](lost, connect)
    assert ("nothing" if seen is None else type(seen).__name__) == fault.sees
    if isinstance(seen, ClientError):
        kinds: tuple[dict[str, bool], ...] = ({}, {"idempotent": False}, {"restart": True})
        repeated = tuple(may_repeat(seen, question(**kind)) for kind in kinds)
        assert repeated == REPEATED[fault.repeated.split(":")[0]]
    with connect(lost, retry=PATIENT) as client:  # the server is whole again
        assert client.generate(question(max_tokens=4)).text


@pytest.mark.parametrize("stream", [False, True])
def test_a_wrong_token_is_refused_and_shown_nowhere(
    stream: bool, tmp_path: Path, engine_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Triton can only compare a static header; a gateway answers 401 or 403 alike."""
    (row,) = [fault for fault in FAULTS if fault.name == "wrong token"]
    monkeypatch.setenv("SERVED_TOKEN", "planted-right-7f31")
    monkeypatch.setenv("OTHER_TOKEN", "planted-wrong-8e42")
    repository = write_tiny_repository(tmp_path / "repository", engine_folder)
    option = "--http-restricted-api=inference:x-token=planted-right-7f31"
    with TritonServer(repository, options=[option]) as server:

        def ask(variable: str) -> Seen:
            credential = Credential(Secret(variable), header="x-token", scheme="")
            with Client(TritonHttp(server.http_url, stream=stream, credential=credential)) as client:
                return caught(client, TextRequest(PROMPTS[0], max_tokens=4))

        answered = ask("SERVED_TOKEN")
        assert isinstance(answered, TextResult) and answered.text
        seen = ask("OTHER_TOKEN")
    assert type(seen).__name__ == row.sees
    assert len(seen.attempts) == 1
    assert "planted" not in f"{seen} {seen!r} {vars(seen)}"


def test_a_restart_goes_on_where_the_answer_broke(lost: Lost) -> None:
    """With greedy decoding the caller gets the whole answer once, though two servers made it."""
    transport = http_transport(lost)
    with Client(transport, retry=PATIENT) as client:
        whole = client.generate(question()).text
        answer = client.stream(question(restart=True))
        got = [next(answer)]
        kill(lost.server)
        with back_when_missed(lost, transport):
            assert read_on(answer, got) is None
    assert "".join(got) == whole


def test_the_unary_call_works_on_a_model_that_is_not_decoupled(tmp_path: Path, engine_folder: Path) -> None:
    with serving(tmp_path / "repository", engine_folder, decoupled=False) as server:
        with Client(TritonGrpc(server.grpc_url, mode="infer")) as client:
            by_grpc = client.generate(question(max_tokens=8))
        with Client(TritonHttp(server.http_url)) as client:
            by_http = client.generate(question(max_tokens=8))
    assert by_grpc.text == by_http.text
    assert (by_grpc.transport, by_http.transport) == ("triton-grpc-infer", "triton-http")
