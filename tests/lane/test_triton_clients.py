"""The clients against a server that misbehaves in ways the real one can; the real one is in test_triton_server.py."""

import json
import socket
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import grpc
import numpy as np
import pytest
from tritonclient.grpc import service_pb2, service_pb2_grpc

from serving_base.errors import UsageError
from serving_clients import BrokenStream, Refused, Unreachable, triton

METADATA: dict[str, Any] = {
    "name": "ensemble",
    "inputs": [
        {"name": "text_input", "datatype": "BYTES", "shape": [-1, 1]},
        {"name": "max_tokens", "datatype": "INT32", "shape": [-1, 1]},
        {"name": "temperature", "datatype": "FP32", "shape": [-1, 1]},
        {"name": "stop_words", "datatype": "BYTES", "shape": [-1, -1]},
        {"name": "stream", "datatype": "BOOL", "shape": [-1, 1]},
    ],
    "outputs": [],
}


class Script:
    """What the server answers to the next POST, and what it was sent."""

    def __init__(self) -> None:
        self.status, self.body, self.connections = 200, b"", 0
        self.received: list[dict[str, Any]] = []
        self.asked: list[str] = []


@pytest.fixture
def script() -> Script:
    return Script()


@pytest.fixture
def url(script: Script) -> Iterator[str]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def setup(self) -> None:
            super().setup()
            script.connections += 1

        def log_message(self, *args: object) -> None:
            pass

        def answer(self, status: int, body: bytes) -> None:
            self.send_response(status)
            if self.path.endswith("generate_stream"):
                self.send_header("Content-Type", "text/event-stream; charset=utf-8")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def do_POST(self) -> None:
            script.received.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
            self.answer(script.status, script.body)

        def do_GET(self) -> None:
            script.asked.append(self.path)
            if self.path == "/metrics":
                self.answer(200, script.body)
            else:
                self.answer(200, json.dumps(METADATA).encode())

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.fixture
def dead_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def test_generate_sends_the_options_and_takes_the_text(url: str, script: Script) -> None:
    script.body = b'{"text_output": "hello"}'
    assert triton.generate(url, "Hi", 3, temperature=0.5, stop_words=["a", "b"]) == "hello"
    (received,) = script.received
    assert len(received.pop("id")) == 32
    assert received == {"text_input": "Hi", "max_tokens": 3, "temperature": 0.5, "stop_words": ["a", "b"]}


def test_a_second_request_asks_nothing_and_opens_nothing(url: str, script: Script) -> None:
    """What is timed from outside is the request alone."""
    script.body = b'{"text_output": "hello"}'
    for _ in range(3):
        triton.generate(url, "Hi", 3, temperature=0.5)
    assert (script.connections, script.asked, len(script.received)) == (1, ["/v2/models/ensemble"], 3)


def test_a_stream_over_http_is_prepared_when_called_and_sent_when_read(url: str, script: Script) -> None:
    script.body = b'data: {"text_output": "a"}\n\n'
    pieces = triton.generate_stream(url, "Hi", 3, temperature=0.5)
    assert (script.asked, script.received) == (["/v2/models/ensemble"], [])
    assert list(pieces) == ["a"]
    assert (len(script.asked), len(script.received)) == (1, 1)


class FakeGrpc(service_pb2_grpc.GRPCInferenceServiceServicer):  # type: ignore[misc] # made code without types
    """A decoupled text model that notes what it is asked, and over how many connections."""

    def __init__(self) -> None:
        self.calls: list[str] = []
        self.peers: set[str] = set()
        self.inputs: list[dict[str, Any]] = METADATA["inputs"]

    def _note(self, what: str, context: grpc.ServicerContext) -> None:
        self.calls.append(what)
        self.peers.add(context.peer())

    def ServerLive(self, request: Any, context: grpc.ServicerContext) -> Any:  # noqa: N802 - gRPC's names
        self._note("live", context)
        return service_pb2.ServerLiveResponse(live=True)

    def ModelMetadata(self, request: Any, context: grpc.ServicerContext) -> Any:  # noqa: N802
        self._note("metadata", context)
        answer = service_pb2.ModelMetadataResponse(name=request.name)
        for tensor in self.inputs:
            answer.inputs.add(name=tensor["name"], datatype=tensor["datatype"], shape=tensor["shape"])
        return answer

    def ModelStreamInfer(self, requests: Iterator[Any], context: grpc.ServicerContext) -> Iterator[Any]:  # noqa: N802
        for request in requests:
            self._note("infer", context)
            for text in (b"a", b"b", b""):
                answer = service_pb2.ModelInferResponse(model_name=request.model_name, id=request.id)
                answer.parameters["triton_final_response"].bool_param = not text
                if text:
                    answer.outputs.add(name="text_output", datatype="BYTES", shape=[1])
                    answer.raw_output_contents.append(len(text).to_bytes(4, "little") + text)
                yield service_pb2.ModelStreamInferResponse(infer_response=answer)


@contextmanager
def served(fake: FakeGrpc, address: str = "127.0.0.1:0") -> Iterator[str]:
    server = grpc.server(ThreadPoolExecutor(8))
    service_pb2_grpc.add_GRPCInferenceServiceServicer_to_server(fake, server)
    port = server.add_insecure_port(address)
    server.start()
    try:
        yield f"127.0.0.1:{port}"
    finally:
        server.stop(grace=None).wait()


def test_a_stream_over_grpc_is_prepared_when_called_and_only_the_request_when_read() -> None:
    """Chapter 05 times the reading: no question about the model and no channel may be in it."""
    fake = FakeGrpc()
    with served(fake) as address:
        for _ in range(3):
            pieces = triton.grpc_stream(address, "Hi", 3, temperature=0.5)
            before = list(fake.calls)
            assert list(pieces) == ["a", "b"]
            assert fake.calls == [*before, "infer"]
    assert fake.calls.count("metadata") == 1
    assert len(fake.peers) == 1


def test_streams_at_once_share_a_connection() -> None:
    fake = FakeGrpc()
    with served(fake) as address:
        streams = [triton.grpc_stream(address, "Hi", 3) for _ in range(4)]
        assert [next(stream) for stream in streams] == ["a"] * 4
        assert [list(stream) for stream in streams] == [["b"]] * 4
    assert len(fake.peers) == 1


def test_another_server_at_the_same_address_is_asked_for_what_the_first_lacked() -> None:
    old, new = FakeGrpc(), FakeGrpc()
    new.inputs = [*METADATA["inputs"], {"name": "random_seed", "datatype": "UINT64", "shape": [-1, 1]}]
    with served(old) as address:
        assert list(triton.grpc_stream(address, "Hi", 3)) == ["a", "b"]
        with pytest.raises(UsageError, match="random_seed"):
            triton.grpc_stream(address, "Hi", 3, random_seed=7)
    with served(new, address):
        assert list(triton.grpc_stream(address, "Hi", 3, random_seed=7)) == ["a", "b"]


def test_several_texts_give_the_first(url: str, script: Script) -> None:
    script.body = b'{"text_output": ["one", "two"]}'
    assert triton.generate(url, "Hi", 3) == "one"


def test_a_misspelt_option_is_refused_before_it_is_sent(url: str, script: Script) -> None:
    with pytest.raises(UsageError, match="did you mean 'temperature'"):
        triton.generate(url, "Hi", 3, temprature=0.5)
    assert script.received == []


def test_an_error_with_status_200_is_an_error(url: str, script: Script) -> None:
    script.body = b'{"error": "generate expects model to produce exactly 1 response"}'
    with pytest.raises(Refused, match="exactly 1 response"):
        triton.generate(url, "Hi", 3)


def test_the_servers_words_reach_the_reader(url: str, script: Script) -> None:
    script.status, script.body = 400, b'{"error": "in ensemble, text_input is empty"}'
    with pytest.raises(Refused, match="text_input is empty"):
        triton.generate(url, "", 3)


def test_a_proxys_page_is_not_taken_for_an_answer(url: str, script: Script) -> None:
    script.status, script.body = 502, b"<html>bad gateway</html>"
    with pytest.raises(Unreachable, match="bad gateway"):
        triton.generate(url, "Hi", 3)


def test_events_are_read_and_blank_lines_skipped(url: str, script: Script) -> None:
    script.body = b'data: {"text_output": "a"}\n\n: comment\n\ndata:{"text_output": "b"}\n\n'
    assert list(triton.generate_stream(url, "Hi", 3)) == ["a", "b"]
    assert script.received[0]["stream"] is True


def test_an_error_in_mid_stream_is_raised_after_the_pieces(url: str, script: Script) -> None:
    script.body = b'data: {"text_output": "a"}\n\ndata: {"error": "the server is shutting down"}\n\n'
    pieces = triton.generate_stream(url, "Hi", 3)
    assert next(pieces) == "a"
    with pytest.raises(BrokenStream, match="shutting down") as caught:
        next(pieces)
    assert caught.value.pieces == ("a",)


def test_a_refused_stream_says_why(url: str, script: Script) -> None:
    script.status, script.body = 400, b'data: {"error": "text_input is empty"}\n\n'
    with pytest.raises(Refused, match="text_input is empty"):
        list(triton.generate_stream(url, "", 3))


def test_metrics_are_parsed_with_their_labels(url: str, script: Script) -> None:
    script.body = b'# HELP x\n# TYPE x gauge\nx{a="1",b="two words"} 3\ny 1.5e-05\n'
    assert triton.metrics(f"{url}/metrics") == {'x{a="1",b="two words"}': 3.0, "y": 1.5e-05}


def test_values_become_tensors_of_the_declared_types() -> None:
    with served(FakeGrpc()) as address:
        values = {"text_input": "é", "max_tokens": 3, "stop_words": ["a", "b"]}
        tensors = triton.text_tensors(address, "ensemble", values)
    assert tensors["text_input"].tolist() == [["é".encode()]]
    assert (tensors["max_tokens"].dtype, tensors["max_tokens"].shape) == (np.dtype("int32"), (1, 1))
    assert tensors["stop_words"].shape == (1, 2)


@pytest.mark.parametrize(
    "ask",
    [
        lambda port: triton.generate(f"http://127.0.0.1:{port}", "Hi", 3),
        lambda port: list(triton.generate_stream(f"http://127.0.0.1:{port}", "Hi", 3)),
        lambda port: triton.health(f"http://127.0.0.1:{port}"),
        lambda port: triton.metrics(f"http://127.0.0.1:{port}/metrics"),
        lambda port: triton.infer(f"127.0.0.1:{port}", "ensemble", {"max_tokens": np.array([[1]], np.int32)}),
        lambda port: list(triton.grpc_infer(f"127.0.0.1:{port}", "m", {"max_tokens": np.array([[1]], np.int32)})),
        lambda port: triton.grpc_stream(f"127.0.0.1:{port}", "Hi", 3),
    ],
    ids=["generate", "generate_stream", "health", "metrics", "infer", "grpc_infer", "grpc_stream"],
)
def test_a_server_that_is_not_there(ask: Callable[[int], object], dead_port: int) -> None:
    with pytest.raises(Unreachable, match="does not answer"):
        ask(dead_port)
