"""The SageMaker transport through real botocore against a small server, event-stream framing included."""

import binascii
import json
import re
import struct
import threading
import time
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import boto3
import pytest
from botocore.config import Config

from serving_base.errors import UsageError
from serving_clients import (
    ONCE,
    BrokenStream,
    Client,
    ClientError,
    DeadlineExceeded,
    Overloaded,
    Refused,
    RetryPolicy,
    SageMakerEndpoint,
    SamplingOptions,
    TextRequest,
    TimedOut,
    Timeouts,
    Unreachable,
)
from serving_clients.sagemaker_endpoint import lines, one_attempt

Connect = Callable[..., Client]
Json = dict[str, Any]
WHOLE: Json = {"generated_text": "one two", "details": {"finish_reason": "length", "generated_tokens": 2}}
FIRST: Json = {"token": {"id": 1, "text": "one", "log_prob": -0.1}}
LAST: Json = {"token": {"id": 2, "text": " two", "log_prob": -0.2}, **WHOLE}
ASYNC_FIRST: Json = {
    "index": 0,
    "token": {"id": None, "text": "one", "logprob": None},
    "generated_text": None,
    "details": None,
}
ASYNC_LAST = {"index": 0, "token": {"id": None, "text": " two", "logprob": None}, **WHOLE}


def event(payload: bytes, kind: str = "PayloadPart", *, exception: bool = False) -> bytes:
    """One message of application/vnd.amazon.eventstream."""
    names = {":message-type": "exception", ":exception-type": kind} if exception else {":message-type": "event"}
    if not exception:
        names[":event-type"] = kind
    headers = b"".join(
        bytes([len(name)]) + name.encode() + b"\x07" + struct.pack(">H", len(value)) + value.encode()
        for name, value in names.items()
    )
    prelude = struct.pack(">II", 16 + len(headers) + len(payload), len(headers))
    message = prelude + struct.pack(">I", binascii.crc32(prelude)) + headers + payload
    return message + struct.pack(">I", binascii.crc32(message))


class Endpoint:
    def __init__(self) -> None:
        self.replies: list[tuple[int, dict[str, str], bytes | list[bytes | str | None]]] = []
        self.bodies: list[Json] = []
        self.paths: list[str] = []
        self.headers: list[dict[str, str]] = []
        self.release = threading.Event()

    def whole(self, body: Json = WHOLE) -> None:
        self.replies.append((200, {}, json.dumps(body).encode()))

    def error(self, status: int, code: str, **body: object) -> None:
        self.replies.append((status, {"x-amzn-ErrorType": code}, json.dumps({"Message": "said", **body}).encode()))

    def stream(self, *messages: bytes | str | None) -> None:
        self.replies.append((200, {"Content-Type": "application/vnd.amazon.eventstream"}, list(messages)))


@pytest.fixture
def endpoint() -> Endpoint:
    return Endpoint()


@pytest.fixture
def connect(endpoint: Endpoint) -> Iterator[Connect]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, *args: object) -> None:
            pass

        def do_POST(self) -> None:
            endpoint.bodies.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
            endpoint.paths.append(self.path)
            endpoint.headers.append(dict(self.headers))
            status, headers, body = endpoint.replies.pop(0)
            self.send_response(status)
            for name, value in headers.items():
                self.send_header(name, value)
            if isinstance(body, bytes):
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)
                return
            self.send_header("Transfer-Encoding", "chunked")
            self.end_headers()
            for message in body:
                if message is None:  # the connection is lost
                    self.close_connection = True
                    return
                if isinstance(message, str):  # silence
                    endpoint.release.wait(5)
                    return
                self.wfile.write(f"{len(message):x}\r\n".encode() + message + b"\r\n")
            self.wfile.write(b"0\r\n\r\n")

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()

    def open_client(
        *,
        stream: bool = False,
        timeouts: Timeouts = Timeouts(1.0, 5.0),  # noqa: B008
        retry: RetryPolicy = ONCE,
        url: str = "",
    ) -> Client:
        runtime = boto3.client(
            "sagemaker-runtime",
            region_name="us-east-1",
            endpoint_url=url or f"http://127.0.0.1:{server.server_port}",
            aws_access_key_id="testing",
            aws_secret_access_key="testing",
            config=one_attempt(timeouts),
        )
        return Client(SageMakerEndpoint(runtime, "llama", stream=stream), retry=retry)

    yield open_client
    endpoint.release.set()
    server.shutdown()
    thread.join()
    server.server_close()


def request(**options: Any) -> TextRequest:
    defaults: dict[str, Any] = {"prompt": "Hi", "max_tokens": 2}
    return TextRequest(**(defaults | options))


def test_a_whole_answer_and_the_request_in_lmis_schema(connect: Connect, endpoint: Endpoint) -> None:
    endpoint.whole()
    sampling = SamplingOptions(temperature=0.5, top_p=0.9, seed=3, stop=("END",))
    result = connect().generate(request(sampling=sampling, request_id="r"))
    assert (result.text, result.tokens, result.finish, result.transport) == ("one two", 2, "length", "sagemaker")
    assert endpoint.paths == ["/endpoints/llama/invocations"]
    assert endpoint.headers[0]["X-Amzn-SageMaker-Inference-Id"].startswith("r.1.")
    assert endpoint.bodies == [
        {
            "inputs": "Hi",
            "parameters": {
                "max_new_tokens": 2,
                "details": True,
                "do_sample": True,
                "temperature": 0.5,
                "top_p": 0.9,
                "seed": 3,
                "stop_sequences": ["END"],
            },
            "stream": False,
        }
    ]


def test_without_options_decoding_is_greedy(connect: Connect, endpoint: Endpoint) -> None:
    endpoint.whole()
    connect().generate(request())
    assert endpoint.bodies[0]["parameters"] == {"max_new_tokens": 2, "details": True, "do_sample": False}


def as_line(chunk: Json) -> bytes:
    return json.dumps(chunk).encode() + b"\n"


@pytest.mark.parametrize("chunks", [(FIRST, LAST), (ASYNC_FIRST, ASYNC_LAST)], ids=["rolling batch", "async"])
def test_a_stream_of_either_schema(connect: Connect, endpoint: Endpoint, chunks: tuple[Json, ...]) -> None:
    endpoint.stream(*(event(as_line(chunk)) for chunk in chunks))
    result = connect(stream=True).generate(request())
    assert (result.pieces, result.tokens, result.finish) == (("one", " two"), 2, "length")
    assert endpoint.paths == ["/endpoints/llama/invocations-response-stream"]
    assert endpoint.bodies[0]["stream"] is True


def test_parts_may_end_anywhere_and_lines_may_be_blank(connect: Connect, endpoint: Endpoint) -> None:
    text = as_line(FIRST) + b"\n" + as_line(LAST)
    endpoint.stream(*(event(text[at : at + 7]) for at in range(0, len(text), 7)))
    assert connect(stream=True).generate(request()).pieces == ("one", " two")


def test_lines_of_parts() -> None:
    assert list(lines([b"a\nb", b"c\n\n", b"\n", b"d"])) == [b"a", b"bc"]


def test_an_answer_without_its_last_line_is_broken(connect: Connect, endpoint: Endpoint) -> None:
    endpoint.stream(event(as_line(FIRST)))
    with pytest.raises(BrokenStream, match="after 1 pieces") as caught:
        connect(stream=True).generate(request())
    assert caught.value.pieces == ("one",)


def test_a_connection_lost_in_mid_answer_keeps_the_pieces(connect: Connect, endpoint: Endpoint) -> None:
    endpoint.stream(event(as_line(FIRST)), None)
    with pytest.raises(BrokenStream) as caught:
        connect(stream=True).generate(request())
    assert caught.value.pieces == ("one",)


def test_a_silence_in_mid_answer_keeps_the_pieces(connect: Connect, endpoint: Endpoint) -> None:
    endpoint.stream(event(as_line(FIRST)), "silence")
    with pytest.raises(BrokenStream) as caught:
        connect(stream=True, timeouts=Timeouts(1.0, 0.3)).generate(request())
    assert caught.value.pieces == ("one",)


@pytest.mark.parametrize("kind", ["ModelStreamError", "InternalStreamFailure"])
def test_an_exception_in_the_stream_keeps_the_pieces(connect: Connect, endpoint: Endpoint, kind: str) -> None:
    endpoint.stream(event(as_line(FIRST)), event(b'{"Message": "StreamBroken"}', kind, exception=True))
    with pytest.raises(BrokenStream) as caught:
        connect(stream=True).generate(request())
    assert caught.value.pieces == ("one",)


def test_a_model_that_fails_after_status_200_is_broken(connect: Connect, endpoint: Endpoint) -> None:
    failed = {"token": {"text": ""}, "generated_text": "one", "details": {"finish_reason": "error"}}
    endpoint.stream(event(as_line(FIRST)), event(as_line(failed)))
    with pytest.raises(BrokenStream, match="failed in mid-answer"):
        connect(stream=True).generate(request())


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(
    ("status", "code", "body", "error"),
    [
        (424, "ModelError", {"OriginalStatusCode": 429}, Overloaded),
        (424, "ModelError", {"OriginalStatusCode": 503}, Overloaded),
        (424, "ModelError", {"OriginalStatusCode": 424}, Refused),
        (424, "ModelError", {"OriginalStatusCode": 500}, Refused),
        (400, "ThrottlingException", {}, Overloaded),
        (429, "ThrottlingException", {}, Overloaded),
        (503, "ServiceUnavailable", {}, Overloaded),
        (429, "ModelNotReadyException", {}, Overloaded),
        (500, "InternalFailure", {}, Unreachable),
        (400, "ValidationError", {}, Refused),
        (403, "AccessDeniedException", {}, Refused),
        (403, "ExpiredTokenException", {}, Refused),
    ],
)
def test_each_answer_is_one_of_the_few_errors(
    connect: Connect, endpoint: Endpoint, stream: bool, status: int, code: str, body: Json, error: type[ClientError]
) -> None:
    endpoint.error(status, code, **body)
    with pytest.raises(error) as caught:
        connect(stream=stream).generate(request())
    assert type(caught.value) is error
    assert code in caught.value.what


def test_an_overloaded_container_is_asked_again(connect: Connect, endpoint: Endpoint) -> None:
    endpoint.error(424, "ModelError", OriginalStatusCode=503)
    endpoint.whole()
    result = connect(retry=RetryPolicy(base_s=0.01)).generate(request())
    assert [attempt.outcome for attempt in result.attempts] == ["Overloaded", "ok"]


def test_no_byte_in_time(connect: Connect, endpoint: Endpoint) -> None:
    endpoint.stream("silence")
    with pytest.raises(TimedOut) as caught:
        connect(stream=True, timeouts=Timeouts(1.0, 0.3)).generate(request())
    assert caught.value.pieces == ()


def test_nobody_listens(connect: Connect) -> None:
    with pytest.raises(Unreachable) as caught:
        connect(url="http://127.0.0.1:9").generate(request())
    assert not caught.value.sent


def test_leaving_the_stream_closes_it(connect: Connect, endpoint: Endpoint) -> None:
    endpoint.stream(event(as_line(FIRST)), "silence")
    answer = connect(stream=True, timeouts=Timeouts(1.0, 60.0)).stream(request())
    assert next(answer) == "one"
    started = time.monotonic()
    answer.close()
    assert time.monotonic() - started < 30  # and not the read timeout's 60


def test_the_deadline_is_looked_at_between_pieces(connect: Connect, endpoint: Endpoint) -> None:
    endpoint.stream(event(as_line(FIRST)), event(as_line(LAST)))
    answer = connect(stream=True).stream(request(deadline_s=2))
    next(answer)
    time.sleep(2.1)
    with pytest.raises(DeadlineExceeded):
        next(answer)


def test_what_a_proxy_repeats_of_a_signature_is_hidden(connect: Connect, endpoint: Endpoint) -> None:
    """Keys of a role are not in the environment; they are known by the names around them."""
    said = "Authorization: AWS4-HMAC-SHA256 Credential=ROLEKEY/2026, Signature=0f1e, x-amz-security-token: SESS/+="
    endpoint.error(403, "AccessDeniedException", Message=said)
    with pytest.raises(Refused) as caught:
        connect().generate(request())
    assert not {"ROLEKEY", "0f1e", "SESS"} & set(re.split(r"[^A-Za-z0-9]", str(caught.value)))


@pytest.mark.parametrize("config", [None, Config(retries={"max_attempts": 3}), Config(retries={"mode": "adaptive"})])
def test_a_boto3_client_that_retries_by_itself_is_not_taken(config: Config | None) -> None:
    keys = {"aws_access_key_id": "testing", "aws_secret_access_key": "testing"}
    runtime = boto3.client("sagemaker-runtime", region_name="us-east-1", config=config, **keys)
    with pytest.raises(UsageError, match="retries by itself"):
        SageMakerEndpoint(runtime, "llama")
