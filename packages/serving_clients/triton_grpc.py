"""Triton over gRPC: its connections, and the text model as a transport, in one inference or a stream of responses."""

import queue
import time
from collections import deque
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from typing import TYPE_CHECKING, Any, Literal

from serving_base.errors import UsageError
from serving_base.servers import TEXT_MODEL
from serving_clients.requests import AttemptLimits, ClientError, Piece, Pieces, TextRequest, TimedOut, breaking
from serving_clients.security import VERIFIED, Credential, Tls, refuse_exposure
from serving_clients.triton_wire import (
    ENGINE_MODEL,
    STOP,
    STOP_LIMITS,
    as_tensors,
    grpc_failure,
    triton_fields,
    when_left,
)

if TYPE_CHECKING:
    import numpy as np

CHANNEL: list[tuple[str, int]] = [
    # gRPC's own 1 s to 120 s between two connections would outlast a restart of the server by minutes.
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 1000),
    # Under this name gRPC also keeps the longest time that a connection may take.
    ("grpc.min_reconnect_backoff_ms", 2000),
    # The retries of this package are the only ones.
    ("grpc.enable_retries", 0),
]
TEXT = "text_output"
Arrived = tuple[Any, Any]
"""Result and error, one of them None."""
Arrays = Mapping[str, "np.ndarray"]


class GrpcConnections:
    """Clients of the server at ``address`` ("host:8001") that are kept between requests; for any threads.

    A tritonclient carries one stream at a time; their channels share a connection. ``tls`` None: no encryption. What
    goes wrong raises one of :mod:`serving_clients.requests`.
    """

    def __init__(self, address: str, credential: Credential | None = None, tls: Tls | None = None) -> None:
        import tritonclient.grpc as api

        self._api, self._address, self._credential, self._tls = api, address, credential, tls
        self._channel: dict[str, Any] = {"ssl": tls is not None, "channel_args": CHANNEL}
        if tls and tls.ca_bundle:
            self._channel["root_certificates"] = str(tls.ca_bundle)
        self._idle: deque[Any] = deque()
        self._inputs: dict[str, dict[str, str]] = {}

    def client(self) -> Any:
        """A tritonclient for the caller alone, connected or not."""
        with suppress(IndexError):
            return self._idle.pop()
        return self._api.InferenceServerClient(self._address, **self._channel)

    def connected(self, limits: AttemptLimits) -> Any:
        """A tritonclient for the caller alone, whose channel has just carried an answer."""
        for _ in range(len(self._idle)):
            with suppress(ClientError):  # of a server that is gone; another may have its address
                return self._live(limits)
        return self._live(limits)

    def inputs(self, model: str, limits: AttemptLimits, *, again: bool = False) -> dict[str, str]:
        """Input name -> data type, as the served model said when it was first asked, or ``again`` now."""
        if again or model not in self._inputs:
            with self._lent() as client:
                wait_s = min(limits.connect_s, limits.read_s)
                metadata = client.get_model_metadata(model, client_timeout=wait_s, headers=self._headers())
            self._inputs[model] = {tensor.name: tensor.datatype for tensor in metadata.inputs}
        return self._inputs[model]

    def infer(
        self, model: str, tensors: Arrays, limits: AttemptLimits, *, outputs: Sequence[str] = (), request_id: str = ""
    ) -> dict[str, "np.ndarray"]:
        """One unary inference, which a decoupled model refuses. No ``outputs`` named: all of them."""
        request = self._request(model, tensors, outputs, request_id)
        with self._lent() as client:
            return _arrays(client.infer(**request, client_timeout=limits.read_s, headers=self._headers()))

    def stream(
        self,
        client: Any,
        model: str,
        tensors: Arrays,
        limits: AttemptLimits,
        *,
        outputs: Sequence[str] = (),
        request_id: str = "",
    ) -> Generator[dict[str, "np.ndarray"], None, None]:
        """The responses of one request, sent by ``client`` when the first is taken. Closing it cancels the request.

        The ensemble's only if it has a ``request_id``.
        """
        responses = self._responses(client, model, tensors, limits, outputs, request_id)
        if model != TEXT_MODEL or not request_id:
            return responses  # it notices by itself
        return when_left(responses, lambda: self._stop(request_id))

    def _stop(self, request_id: str) -> None:
        """End the engine's work for a request of the ensemble, over a connection of its own: these may close."""
        with closing(GrpcConnections(self._address, self._credential, self._tls)) as own:
            tensors = as_tensors(STOP, own.inputs(ENGINE_MODEL, STOP_LIMITS))
            for _ in own._responses(own.client(), ENGINE_MODEL, tensors, STOP_LIMITS, (), request_id):
                pass

    def _responses(
        self,
        client: Any,
        model: str,
        tensors: Arrays,
        limits: AttemptLimits,
        outputs: Sequence[str],
        request_id: str,
    ) -> Generator[dict[str, "np.ndarray"], None, None]:
        request = self._request(model, tensors, outputs, request_id)
        arrived: queue.SimpleQueue[Arrived] = queue.SimpleQueue()
        final = whole = False
        client.start_stream(callback=lambda result, error: arrived.put((result, error)), headers=self._headers())
        try:
            with self._failures():
                try:
                    client.async_stream_infer(**request, enable_empty_final_response=True)
                except self._api.InferenceServerException as error:
                    # The stream broke before the request was in it; the callback has the reason.
                    raise (_next(arrived, limits)[1] or error) from error
                while not final:
                    result, failure = _next(arrived, limits)
                    if failure is not None:
                        final = True
                        raise failure
                    response = result.get_response()
                    final = response.parameters["triton_final_response"].bool_param
                    if response.id == request_id and response.outputs:
                        yield _arrays(result)
            whole = True
        finally:
            client.stop_stream(cancel_requests=not final)
            if whole:
                self._idle.append(client)
            else:
                client.close()

    def close(self) -> None:
        """Close what is idle."""
        while self._idle:
            self._idle.pop().close()

    def _live(self, limits: AttemptLimits) -> Any:
        client = self.client()
        try:
            with self._failures():
                client.is_server_live(client_timeout=limits.connect_s, headers=self._headers())
        except ClientError:
            client.close()
            raise
        return client

    @contextmanager
    def _lent(self) -> Iterator[Any]:
        client = self.client()
        try:
            with self._failures():
                yield client
        finally:
            self._idle.append(client)

    @contextmanager
    def _failures(self) -> Iterator[None]:
        """tritonclient's failures as the client's."""
        try:
            yield
        except self._api.InferenceServerException as error:
            raise grpc_failure(error.status(), error.message()) from error

    def _request(self, model: str, tensors: Arrays, outputs: Sequence[str], request_id: str) -> dict[str, Any]:
        wanted = [self._api.InferRequestedOutput(name) for name in outputs] or None
        inputs = [self._input(name, value) for name, value in tensors.items()]
        return {"model_name": model, "inputs": inputs, "outputs": wanted, "request_id": request_id}

    def _input(self, name: str, value: "np.ndarray") -> Any:
        from tritonclient.utils import np_to_triton_dtype

        tensor = self._api.InferInput(name, list(value.shape), np_to_triton_dtype(value.dtype))
        tensor.set_data_from_numpy(value)
        return tensor

    def _headers(self) -> Mapping[str, str]:
        if self._credential is None:
            return {}
        return {self._credential.header.lower(): self._credential.header_value()}


class TritonGrpc:
    """The text model at ``address`` ("host:8001"). ``tls`` None: no encryption.

    ``mode`` "stream": piece by piece, from a decoupled model; "whole": in one piece, over a stream too, which both
    kinds of model allow; "infer": one unary call, which a decoupled model refuses.
    """

    def __init__(
        self,
        address: str,
        *,
        model: str = TEXT_MODEL,
        mode: Literal["stream", "whole", "infer"] = "stream",
        credential: Credential | None = None,
        tls: Tls | None = None,
    ) -> None:
        refuse_exposure(f"{'grpcs' if tls else 'grpc'}://{address}", credential, tls or VERIFIED)
        if tls and not tls.verify:
            raise UsageError("gRPC cannot leave a certificate unverified", fix="give Tls(ca_bundle=...)")
        self.name = f"triton-grpc-{mode}"
        self._model, self._mode, self._credential = model, mode, credential
        self._grpc = GrpcConnections(address, credential, tls)

    def send(self, request: TextRequest, wire_id: str, limits: AttemptLimits, /) -> Pieces:
        types = self._grpc.inputs(self._model, limits)
        tensors = as_tensors(triton_fields(request, types) | {"stream": self._mode == "stream"}, types)
        asked: dict[str, Any] = {"outputs": [TEXT], "request_id": wire_id}
        if self._mode == "infer":
            yield Piece(_text(self._grpc.infer(self._model, tensors, limits, **asked)))
            return
        got: list[str] = []
        responses = self._grpc.stream(self._grpc.client(), self._model, tensors, limits, **asked)
        with breaking(got), closing(responses):
            for response in responses:
                got.append(_text(response))
                yield Piece(got[-1])

    def redacted(self, text: str) -> str:
        return self._credential.redacted(text) if self._credential else text

    def close(self) -> None:
        self._grpc.close()


def _next(arrived: "queue.SimpleQueue[Arrived]", limits: AttemptLimits) -> Arrived:
    started = time.monotonic()
    try:
        return arrived.get(timeout=limits.read_s)
    except queue.Empty as error:
        seconds = time.monotonic() - started
        raise TimedOut(f"no response for {seconds:.1f} s", fix="see what the server is busy with") from error


def _arrays(result: Any) -> dict[str, "np.ndarray"]:
    return {output.name: result.as_numpy(output.name) for output in result.get_response().outputs}


def _text(response: Arrays) -> str:
    return str(response[TEXT].reshape(-1)[0].decode())
