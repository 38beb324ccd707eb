"""The HTTP transport and the client's security against a small server that misbehaves in the ways of real ones."""

import json
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from serving_base.errors import EnvironmentProblem, UsageError
from serving_clients import (
    ONCE,
    BrokenStream,
    Cancelled,
    Client,
    ClientError,
    Credential,
    DeadlineExceeded,
    Overloaded,
    Refused,
    RetryPolicy,
    SamplingOptions,
    Secret,
    TextRequest,
    TextResult,
    TimedOut,
    Timeouts,
    Tls,
    TritonGrpc,
    TritonHttp,
    Unreachable,
)
from serving_clients.triton_wire import grpc_failure
from waiting import until

NAMES = ("text_input", "max_tokens", "stream", "end_id", "random_seed")
METADATA = {"inputs": [{"name": name, "datatype": "INT32"} for name in NAMES]}
TOKEN = "planted-token-91c7"
Step = Callable[[BaseHTTPRequestHandler], object]
StartServer = Callable[..., str]


class Answers:
    """What the server does with each POST in turn: a callable that is given the handler."""

    def __init__(self) -> None:
        self.steps: list[Step] = []
        self.bodies: list[dict[str, Any]] = []
        self.headers: list[dict[str, str]] = []
        self.stopped: list[dict[str, Any]] = []
        self.gets = 0
        self.release = threading.Event()


def reply(status: int, body: object, **headers: str) -> Step:
    def step(handler: BaseHTTPRequestHandler) -> None:
        data = json.dumps(body).encode() if not isinstance(body, bytes) else body
        handler.send_response(status)
        handler.send_header("Content-Length", str(len(data)))
        for name, value in headers.items():
            handler.send_header(name.replace("_", "-"), value)
        handler.end_headers()
        handler.wfile.write(data)

    return step


def events(*parts: object, end: bool = True) -> Step:
    """A chunked event stream; a callable among the parts runs between two events."""

    def step(handler: BaseHTTPRequestHandler) -> None:
        handler.send_response(200)
        handler.send_header("Content-Type", "text/event-stream; charset=utf-8")
        handler.send_header("Transfer-Encoding", "chunked")
        handler.end_headers()
        for part in parts:
            if callable(part):
                part()
                continue
            data = f"data: {json.dumps({'text_output': part} if isinstance(part, str) else part)}\n\n".encode()
            handler.wfile.write(f"{len(data):x}\r\n".encode() + data + b"\r\n")
            handler.wfile.flush()
        if end:
            handler.wfile.write(b"0\r\n\r\n")
        else:
            handler.connection.shutdown(socket.SHUT_RDWR)
            handler.close_connection = True

    return step


def drop(handler: BaseHTTPRequestHandler) -> None:
    handler.connection.shutdown(socket.SHUT_RDWR)
    handler.close_connection = True


@pytest.fixture
def answers() -> Iterator[Answers]:
    answers = Answers()
    yield answers
    answers.release.set()


@pytest.fixture
def start_server(answers: Answers) -> Iterator[StartServer]:
    """Starts a server, with TLS if it is given a context; returns its URL."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, *args: object) -> None:
            pass

        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            if self.path == "/v2/models/tensorrt_llm/generate_stream":
                answers.stopped.append(body)
                reply(200, {"model_name": "tensorrt_llm"})(self)
                return
            answers.bodies.append(body)
            answers.headers.append(dict(self.headers))
            answers.steps.pop(0)(self)

        def do_GET(self) -> None:
            answers.gets += 1
            reply(200, METADATA)(self)

    servers: list[tuple[ThreadingHTTPServer, threading.Thread]] = []

    def start(context: ssl.SSLContext | None = None) -> str:
        server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        if context is not None:
            server.socket = context.wrap_socket(server.socket, server_side=True)
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        servers.append((server, thread))
        return f"http://127.0.0.1:{server.server_port}"

    yield start
    answers.release.set()
    for server, thread in servers:
        server.shutdown()
        thread.join()
        server.server_close()


@pytest.fixture
def url(start_server: StartServer) -> str:
    return start_server()


def ask(
    url: str,
    *,
    stream: bool = False,
    credential: Credential | None = None,
    retry: RetryPolicy = ONCE,
    timeouts: Timeouts | None = None,
    **options: Any,
) -> TextResult:
    transport = TritonHttp(url, stream=stream, credential=credential)
    with Client(transport, retry=retry, timeouts=timeouts or Timeouts(1.0, 5.0)) as client:
        return client.generate(TextRequest("Hi", max_tokens=3, **options))


OK = reply(200, {"text_output": "hello"})


def test_a_plain_answer(url: str, answers: Answers) -> None:
    answers.steps = [OK]
    assert ask(url, request_id="r").text == "hello"
    assert answers.bodies[0].pop("id").startswith("r.1.")
    assert answers.bodies == [{"text_input": "Hi", "max_tokens": 3, "stream": False}]
    assert answers.gets == 0  # no options, no question for the model's inputs


def test_options_go_under_the_names_that_the_model_has(url: str, answers: Answers) -> None:
    answers.steps = [OK]
    ask(url, sampling=SamplingOptions(seed=7, end_id=2))
    assert (answers.bodies[0]["random_seed"], answers.bodies[0]["end_id"]) == (7, 2)
    assert answers.gets == 1


def test_an_option_that_the_model_lacks_is_refused_before_it_is_sent(url: str, answers: Answers) -> None:
    with pytest.raises(Refused, match="no input for top_k"):
        ask(url, sampling=SamplingOptions(top_k=3))
    assert answers.bodies == []


@pytest.mark.parametrize(
    ("status", "said", "error"),
    [
        (400, "text_input is empty", Refused),
        (401, "who are you", Refused),
        (403, "This API is restricted, expecting header 'x'", Refused),
        (404, "unknown model", Refused),
        (422, "no", Refused),
        (500, "failed to parse the request JSON buffer", Refused),
        (307, "elsewhere", Refused),
        (429, "slow down", Overloaded),
        (503, "Exceeds maximum queue size", Overloaded),
        (400, "in ensemble 'ensemble', Exceeds maximum queue size", Overloaded),
        (503, "busy", Overloaded),
        (408, "too slow", TimedOut),
        (504, "upstream", TimedOut),
        (502, "bad gateway", Unreachable),
        (499, "the server is shutting down", Unreachable),
        (400, "in ensemble 'ensemble', the server is shutting down", Unreachable),
    ],
)
@pytest.mark.parametrize("stream", [False, True])
def test_each_status_is_one_of_the_few_errors(
    url: str, answers: Answers, status: int, said: str, error: type[ClientError], stream: bool
) -> None:
    answers.steps = [reply(status, {"error": said}, Location="http://elsewhere/")]
    with pytest.raises(error) as caught:
        ask(url, stream=stream)
    assert type(caught.value) is error
    assert caught.value.why == said
    assert str(status) in caught.value.what


def test_an_error_behind_status_200_is_an_error(url: str, answers: Answers) -> None:
    answers.steps = [reply(200, {"error": "generate expects model to produce exactly 1 response"})]
    with pytest.raises(Refused, match="exactly 1 response"):
        ask(url)


def test_retry_after_is_read(url: str, answers: Answers) -> None:
    answers.steps = [reply(503, {"error": "busy"}, Retry_After="7")]
    with pytest.raises(Overloaded) as caught:
        ask(url)
    assert caught.value.retry_after_s == 7.0


def test_another_kind_of_server_is_named(url: str, answers: Answers) -> None:
    answers.steps = [reply(200, b"<html>welcome</html>")]
    with pytest.raises(Refused, match="this is no Triton"):
        ask(url)


def test_nobody_listens() -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        with pytest.raises(Unreachable) as caught:
            ask(f"http://127.0.0.1:{probe.getsockname()[1]}")
    assert not caught.value.sent


def test_a_connection_lost_before_the_answer_may_have_delivered_the_request(url: str, answers: Answers) -> None:
    answers.steps = [drop]
    with pytest.raises(Unreachable) as caught:
        ask(url)
    assert caught.value.sent


def test_silence_is_a_time_out_and_the_late_answer_is_dropped(url: str, answers: Answers) -> None:
    """The answer of the abandoned attempt comes while the next request is asked, and must not be taken for its."""

    def late(handler: BaseHTTPRequestHandler) -> None:
        answers.release.wait(60)
        reply(200, {"text_output": "late"})(handler)

    answers.steps = [late, OK, OK]
    with Client(TritonHttp(url), timeouts=Timeouts(5.0, 1.0)) as client:
        first = client.generate(TextRequest("Hi", max_tokens=3))
        answers.release.set()
        second = client.generate(TextRequest("Hi", max_tokens=3))
    assert (first.text, second.text) == ("hello", "hello")
    assert [attempt.outcome for attempt in first.attempts] == ["TimedOut", "ok"]
    assert len(second.attempts) == 1
    until(lambda: answers.stopped, "the engine is told to end the abandoned attempt")
    assert [body["id"] for body in answers.stopped] == [answers.bodies[0]["id"]]
    assert answers.stopped[0]["stop"] is True


def test_the_answer_to_another_request_is_not_delivered(url: str, answers: Answers) -> None:
    answers.steps = [reply(200, {"text_output": "theirs", "id": "someone.1"}), OK]
    with pytest.raises(BrokenStream, match="another request"):
        ask(url)


def test_a_stream_is_read_event_by_event(url: str, answers: Answers) -> None:
    answers.steps = [events("a", "b", "c")]
    assert ask(url, stream=True).pieces == ("a", "b", "c")


def test_a_stream_that_is_cut_keeps_its_pieces(url: str, answers: Answers) -> None:
    answers.steps = [events("a", "b", end=False)]
    with pytest.raises(BrokenStream, match="after 2 pieces") as caught:
        ask(url, stream=True)
    assert caught.value.pieces == ("a", "b")


def test_a_stream_that_falls_silent_keeps_its_pieces(url: str, answers: Answers) -> None:
    answers.steps = [events("a", lambda: answers.release.wait(60))]
    with pytest.raises(BrokenStream) as caught:
        ask(url, stream=True, timeouts=Timeouts(5.0, 1.0))
    assert caught.value.pieces == ("a",)
    assert "ReadTimeout" in caught.value.why


def test_an_error_event_after_pieces_keeps_them(url: str, answers: Answers) -> None:
    answers.steps = [events("a", {"error": "the server is shutting down"})]
    with pytest.raises(BrokenStream) as caught:
        ask(url, stream=True)
    assert (caught.value.pieces, caught.value.why) == (("a",), "the server is shutting down")


def test_the_deadline_ends_a_silence_that_began_just_before_it(url: str, answers: Answers) -> None:
    """The read timeout alone would start anew at the last piece."""
    answers.steps = [events(lambda: time.sleep(0.5), "a", lambda: answers.release.wait(60))]
    started = time.monotonic()
    with pytest.raises(DeadlineExceeded) as caught:
        ask(url, stream=True, deadline_s=2, timeouts=Timeouts(5.0, 60.0))
    assert time.monotonic() - started < 30  # with the read timeout it were 60
    assert caught.value.pieces == ("a",)


def test_closing_the_client_from_another_thread_ends_a_silent_stream(url: str, answers: Answers) -> None:
    gave_up = threading.Event()  # the server has said nothing more, and its client left before it would

    def wait() -> None:
        if not answers.release.wait(30):
            gave_up.set()

    answers.steps = [events("a", wait)]
    client = Client(TritonHttp(url, stream=True), timeouts=Timeouts(5.0, 900.0))
    answer = client.stream(TextRequest("Hi", max_tokens=3, deadline_s=900))  # longer than the server's silence
    assert next(answer) == "a"
    threading.Timer(0.1, client.close).start()
    with pytest.raises(Cancelled) as caught:
        next(answer)
    assert caught.value.pieces == ("a",)
    assert not gave_up.is_set()


# Security


def test_the_header_carries_what_the_environment_holds_at_that_moment(
    url: str, answers: Answers, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers.steps = [OK, OK]
    monkeypatch.setenv("MY_TOKEN", TOKEN)
    ask(url, credential=Credential(Secret("MY_TOKEN")))
    assert answers.headers[0]["Authorization"] == f"Bearer {TOKEN}"
    monkeypatch.setenv("MY_TOKEN", "rotated")
    ask(url, credential=Credential(Secret("MY_TOKEN"), header="X-Api-Key", scheme=""))
    assert answers.headers[1]["X-Api-Key"] == "rotated"


@pytest.mark.parametrize("value", ["", "  ", "zwei\nZeilen", "schlüssel"])
def test_a_secret_that_cannot_be_sent_is_named_not_shown(value: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MY_TOKEN", value)
    with pytest.raises(EnvironmentProblem, match=r"\$MY_TOKEN") as caught:
        ask("http://127.0.0.1:1", credential=Credential(Secret("MY_TOKEN")))
    assert not value.strip() or value not in str(caught.value)


def test_a_secret_given_instead_of_its_name_is_not_repeated() -> None:
    with pytest.raises(UsageError) as caught:
        Secret("hf_abcdefgh")
    assert "hf_abcdefgh" not in f"{caught.value} {caught.value!r}"


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda secret: TritonHttp("http://serving.example:8000", credential=secret), "in plain text"),
        (lambda secret: TritonHttp("http://10.0.0.7:8000", credential=secret), "in plain text"),
        (lambda secret: TritonHttp("http://127.0.0.1.example:8000", credential=secret), "in plain text"),
        (lambda secret: TritonGrpc("serving.example:8001", credential=secret), "in plain text"),
        (
            lambda secret: TritonHttp("https://serving.example", credential=secret, tls=Tls(verify=False)),
            "without knowing who",
        ),
        (lambda secret: TritonHttp("http://user:word@127.0.0.1:8000"), "user name or password"),
        (lambda secret: TritonGrpc("127.0.0.1:8001", tls=Tls(verify=False)), "gRPC cannot"),
    ],
)
def test_a_secret_is_not_sent_where_others_could_read_it(make: Callable[[Credential], object], says: str) -> None:
    with pytest.raises(UsageError, match=says):
        make(Credential(Secret("MY_TOKEN")))


@pytest.mark.parametrize("url", ["http://127.0.0.1:8000", "http://localhost:8000", "http://[::1]:8000", "https://a.b"])
def test_a_secret_may_go_to_this_machine_and_over_tls(url: str) -> None:
    TritonHttp(url, credential=Credential(Secret("MY_TOKEN"))).close()


def test_a_certificate_is_verified_unless_told_otherwise() -> None:
    assert Tls().context().verify_mode is ssl.CERT_REQUIRED
    assert Tls().context().check_hostname
    assert Tls(verify=False).context().verify_mode is ssl.CERT_NONE


@pytest.mark.parametrize(
    ("status", "said", "error", "sent"),
    [
        ("StatusCode.UNAVAILABLE", "failed to connect to all addresses; Connection refused", Unreachable, False),
        ("StatusCode.UNAVAILABLE", "Socket closed", Unreachable, True),
        ("StatusCode.UNAVAILABLE", "Exceeds maximum queue size", Overloaded, None),
        ("StatusCode.UNAVAILABLE", "This protocol is restricted, expecting header 'x'", Refused, None),
        (None, "in ensemble 'ensemble', [request id: 1] Exceeds maximum queue size", Overloaded, None),
        (None, "in ensemble 'ensemble', the server is shutting down", Unreachable, True),
        (None, "text_input is empty", Refused, None),
        ("StatusCode.DEADLINE_EXCEEDED", "Deadline Exceeded", TimedOut, None),
        ("StatusCode.CANCELLED", "CANCELLED", Unreachable, True),
        ("StatusCode.RESOURCE_EXHAUSTED", "", Overloaded, None),
        ("StatusCode.INVALID_ARGUMENT", "no", Refused, None),
        ("StatusCode.UNIMPLEMENTED", "decoupled", Refused, None),
    ],
)
def test_each_grpc_failure_is_one_of_the_few_errors(
    status: str | None, said: str, error: type[ClientError], sent: bool | None
) -> None:
    failure = grpc_failure(status, said)
    assert type(failure) is error
    assert getattr(failure, "sent", None) == sent


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A certificate for the loopback that only its owner knows."""
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "localhost")])
    now = datetime.now(UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName("localhost")]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    folder = tmp_path_factory.mktemp("tls")
    private = serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    (folder / "key.pem").write_bytes(key.private_bytes(serialization.Encoding.PEM, *private))
    (folder / "cert.pem").write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
    return folder


def test_tls_with_ones_own_authority_and_without(authority: Path, answers: Answers, start_server: StartServer) -> None:
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(authority / "cert.pem", authority / "key.pem")
    url = start_server(context).replace("http://127.0.0.1", "https://localhost")
    answers.steps = [events("a", "b"), OK]

    def ask_with(tls: Tls) -> TextResult:
        with Client(TritonHttp(url, stream=True, tls=tls), retry=ONCE) as client:
            return client.generate(TextRequest("Hi", max_tokens=3, deadline_s=5))

    with pytest.raises(Unreachable, match="CERTIFICATE_VERIFY_FAILED") as caught:
        ask_with(Tls())
    assert answers.bodies == []
    assert not caught.value.sent
    assert ask_with(Tls(ca_bundle=authority / "cert.pem")).pieces == ("a", "b")
    assert ask_with(Tls(verify=False)).text == "hello"


def test_the_deadline_cuts_a_silent_tls_stream(authority: Path, answers: Answers, start_server: StartServer) -> None:
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(authority / "cert.pem", authority / "key.pem")
    url = start_server(context).replace("http://127.0.0.1", "https://localhost")
    answers.steps = [events(lambda: time.sleep(0.5), "a", lambda: answers.release.wait(60))]
    transport = TritonHttp(url, stream=True, tls=Tls(ca_bundle=authority / "cert.pem"))
    started = time.monotonic()
    with Client(transport, timeouts=Timeouts(5.0, 60.0)) as client, pytest.raises(DeadlineExceeded):
        client.generate(TextRequest("Hi", max_tokens=3, deadline_s=2))
    assert time.monotonic() - started < 30
