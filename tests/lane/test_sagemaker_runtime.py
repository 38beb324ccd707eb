"""The fake runtime in front of containers that misbehave: what boto3's caller sees."""

import re
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import boto3
import pytest
from botocore.config import Config
from botocore.eventstream import EventStreamBuffer
from botocore.exceptions import ClientError, EventStreamError

from model_server.aws import runtime
from model_server.aws.fake import Front, listen
from model_server.aws.hosting import Hosting
from model_server.aws.registry import Registry

HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: application/jsonlines\r\n"
CHUNKED = HEAD + b"Transfer-Encoding: chunked\r\n\r\n"


def chunk(data: bytes) -> bytes:
    return f"{len(data):x}\r\n".encode() + data + b"\r\n"


class OneContainer:
    """Routes everything to one address."""

    def __init__(self, url: str) -> None:
        self.url = url

    def route(self, name: str, target: str = "") -> tuple[str, str]:
        return target or "AllTraffic", self.url

    create = find = all = update = update_weights = delete = None


def read_request(connection: socket.socket) -> bytes:
    """All of it: to close a connection with bytes unread resets it, and what was answered is lost on the way."""
    with connection.makefile("rb") as reader:
        head = b""
        while (line := reader.readline()) not in (b"\r\n", b""):
            head += line
        length = re.search(rb"(?i)^content-length: *(\d+)", head, re.MULTILINE)
        return head + b"\r\n" + reader.read(int(length[1]) if length else 0)


@contextmanager
def container(serve: Callable[[socket.socket, bytes], object]) -> Iterator[str]:
    """A container that reads a request and then does ``serve``."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def run() -> None:
            while True:
                try:
                    connection, _ = listener.accept()
                except OSError:
                    return
                with connection:
                    serve(connection, read_request(connection))

        threading.Thread(target=run, daemon=True).start()
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
        listener.shutdown(socket.SHUT_RDWR)


@contextmanager
def caller(serve: Callable[[socket.socket, bytes], object]) -> Iterator[Any]:
    """A boto3 client of a runtime whose endpoints are all that container."""
    with container(serve) as url:
        endpoints: Any = OneContainer(url)
        none: Any = None
        front = Front(
            Hosting(Registry("123456789012", "us-east-1"), endpoints),
            runtime.Runtime(endpoints, "us-east-1", "123456789012"),
            scheduler=none,
            moto=none,
        )
        server = listen(front, 0)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        try:
            yield boto3.client(
                "sagemaker-runtime",
                endpoint_url=f"http://127.0.0.1:{server.port}",
                region_name="us-east-1",
                aws_access_key_id="testing",
                aws_secret_access_key="testing",
                config=Config(retries={"total_max_attempts": 1}),
            )
        finally:
            server.shutdown()
            server.server_close()


def ask(client: Any, **arguments: Any) -> dict[str, Any]:
    answer: dict[str, Any] = client.invoke_endpoint(
        EndpointName="e", Body=b"{}", ContentType="application/json", **arguments
    )
    return answer


def ask_stream(client: Any, **arguments: Any) -> dict[str, Any]:
    answer: dict[str, Any] = client.invoke_endpoint_with_response_stream(EndpointName="e", Body=b"{}", **arguments)
    return answer


def parts(answer: dict[str, Any]) -> list[bytes]:
    return [event["PayloadPart"]["Bytes"] for event in answer["Body"]]


def test_each_chunk_is_one_part_however_it_arrives() -> None:
    data = [b'{"a": 1}\n', b"x" * 20_000 + b"\n", b"half a line", b" and the rest\n"]

    def serve(connection: socket.socket, request: bytes) -> None:
        wire = CHUNKED + b"".join(chunk(piece) for piece in data) + b"0\r\n\r\n"
        for start in range(0, len(wire), 7_001):
            connection.sendall(wire[start : start + 7_001])

    with caller(serve) as client:
        answer = ask_stream(client)
        assert parts(answer) == data and answer["ContentType"] == "application/jsonlines"


def test_a_stream_that_breaks_off_ends_with_an_error() -> None:
    def serve(connection: socket.socket, request: bytes) -> None:
        connection.sendall(CHUNKED + chunk(b"one\n"))

    with caller(serve) as client:
        events = iter(ask_stream(client)["Body"])
        assert next(events) == {"PayloadPart": {"Bytes": b"one\n"}}
        with pytest.raises(EventStreamError, match=r"ModelStreamError.*broke off"):
            next(events)


def test_a_stream_cut_in_a_chunk_ends_with_an_error() -> None:
    def serve(connection: socket.socket, request: bytes) -> None:
        connection.sendall(CHUNKED + b"ff\r\nonly this")

    with caller(serve) as client, pytest.raises(EventStreamError, match="broke off"):
        list(ask_stream(client)["Body"])


def test_a_container_that_hangs_in_a_stream(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runtime, "STREAM_TIMEOUT_S", 0.3)
    released = threading.Event()

    def serve(connection: socket.socket, request: bytes) -> None:
        connection.sendall(CHUNKED + chunk(b"one\n"))
        released.wait(10)

    with caller(serve) as client:
        with pytest.raises(EventStreamError, match="stopped sending"):
            list(ask_stream(client)["Body"])
        released.set()


@pytest.mark.parametrize("call", [ask, ask_stream])
def test_a_container_that_never_answers(monkeypatch: pytest.MonkeyPatch, call: Callable[..., dict[str, Any]]) -> None:
    monkeypatch.setattr(runtime, "INVOCATION_TIMEOUT_S", 0.3)
    monkeypatch.setattr(runtime, "STREAM_TIMEOUT_S", 0.3)
    released = threading.Event()
    with caller(lambda connection, request: released.wait(10)) as client:
        with pytest.raises(ClientError) as raised:
            call(client)
        released.set()
    assert raised.value.response["Error"]["Code"] == "ModelError" and raised.value.response["OriginalStatusCode"] == 0


@pytest.mark.parametrize("call", [ask, ask_stream])
def test_a_container_that_hangs_up(call: Callable[..., dict[str, Any]]) -> None:
    with caller(lambda connection, request: None) as client, pytest.raises(ClientError) as raised:
        call(client)
    response = raised.value.response
    assert (response["Error"]["Code"], response["ResponseMetadata"]["HTTPStatusCode"]) == ("ServiceUnavailable", 503)


@pytest.mark.parametrize("call", [ask, ask_stream])
def test_the_containers_error_is_a_model_error(call: Callable[..., dict[str, Any]]) -> None:
    def serve(connection: socket.socket, request: bytes) -> None:
        body = b'{"code": 503, "message": "busy"}'
        connection.sendall(b"HTTP/1.1 503 Busy\r\nContent-Length: %d\r\n\r\n" % len(body) + body)

    with caller(serve) as client, pytest.raises(ClientError) as raised:
        call(client)
    response = raised.value.response
    assert (response["Error"]["Code"], response["OriginalStatusCode"]) == ("ModelError", 503)
    assert response["OriginalMessage"] == '{"code": 503, "message": "busy"}' and response["LogStreamArn"]
    assert response["ResponseMetadata"]["HTTPStatusCode"] == 424


@pytest.mark.parametrize("call", [ask, ask_stream])
def test_headers_pass_both_ways(call: Callable[..., dict[str, Any]]) -> None:
    seen = []

    def serve(connection: socket.socket, request: bytes) -> None:
        seen.append(request.decode().lower())
        told = b"X-Amzn-SageMaker-Custom-Attributes: trace=2\r\nContent-Length: 3\r\n\r\none"
        connection.sendall(HEAD + told)

    with caller(serve) as client:
        answer = call(
            client, CustomAttributes="trace=1", InferenceId="i-1", Accept="application/json", TargetVariant="B"
        )
        assert (answer["CustomAttributes"], answer["InvokedProductionVariant"]) == ("trace=2", "B")
        assert parts(answer) == [b"one"] if call is ask_stream else answer["Body"].read() == b"one"
    told = [
        "post /invocations ",
        "x-amzn-sagemaker-custom-attributes: trace=1",
        "x-amzn-sagemaker-inference-id: i-1",
        "accept: application/json",
    ]
    assert all(part in seen[0] for part in told)
    assert "authorization" not in seen[0]


def test_frames_are_what_botocore_reads() -> None:
    buffer = EventStreamBuffer()
    buffer.add_data(runtime.payload_part(b"\x00data") + runtime.stream_exception("ModelStreamError", Message="m"))
    part, error = (message.to_response_dict() for message in buffer)
    assert (part["body"], part["headers"][":event-type"]) == (b"\x00data", "PayloadPart")
    assert (error["body"], error["headers"][":exception-type"]) == (b'{"Message": "m"}', "ModelStreamError")
