"""Triton over gRPC: one inference, or a stream of responses."""

import queue
import time
from collections.abc import Iterator, Mapping
from typing import Any, Literal

from playbook.clients.errors import BrokenStream, ClientError, TimedOut
from playbook.clients.requests import Limits, Piece, TextRequest
from playbook.clients.security import VERIFIED, Credential, Tls, refuse_exposure
from playbook.clients.transport import Pieces
from playbook.clients.triton import NUMPY_TYPES
from playbook.clients.triton_wire import TEXT_MODEL, grpc_failure, triton_fields
from serving_base.errors import UsageError

CHANNEL: list[tuple[str, int]] = [
    # gRPC's own 1 s to 120 s between two connections would outlast a restart of the server by minutes.
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 1000),
    # Under this name gRPC also keeps the longest time that a connection may take.
    ("grpc.min_reconnect_backoff_ms", 2000),
    # The retries of this package are the only ones.
    ("grpc.enable_retries", 0),
]
Arrived = tuple[Any, Any]
"""Result and error, one of them None."""


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
        import tritonclient.grpc as api

        refuse_exposure(f"{'grpcs' if tls else 'grpc'}://{address}", credential, tls or VERIFIED)
        if tls and not tls.verify:
            raise UsageError("gRPC cannot leave a certificate unverified", fix="give Tls(ca_bundle=...)")
        self.name = f"triton-grpc-{mode}"
        self._model, self._mode, self._credential = model, mode, credential
        self._address = address
        self._channel: dict[str, Any] = {"ssl": tls is not None, "channel_args": CHANNEL}
        if tls and tls.ca_bundle:
            self._channel["root_certificates"] = str(tls.ca_bundle)
        self._api = api
        self._client = self._connect()
        self._types: dict[str, str] | None = None

    def send(self, request: TextRequest, wire_id: str, limits: Limits, /) -> Pieces:
        texts: list[str] = []
        try:
            tensors = self._tensors(request, limits)
            if self._mode == "infer":
                yield self._infer(tensors, wire_id, limits)
                return
            for text in self._stream(tensors, wire_id, limits):
                texts.append(text)
                yield Piece(text)
        except self._api.InferenceServerException as error:
            raise _broken(grpc_failure(error.status(), error.message()), texts) from error
        except TimedOut as error:
            raise _broken(error, texts) from error

    def redacted(self, text: str) -> str:
        return self._credential.redacted(text) if self._credential else text

    def close(self) -> None:
        self._client.close()

    def _connect(self) -> Any:
        return self._api.InferenceServerClient(self._address, **self._channel)

    def _infer(self, tensors: list[Any], wire_id: str, limits: Limits) -> Piece:
        result = self._client.infer(
            self._model,
            tensors,
            outputs=[self._api.InferRequestedOutput("text_output")],
            request_id=wire_id,
            client_timeout=limits.read_s,
            headers=self._headers(),
        )
        return Piece(_text(result))

    def _stream(self, tensors: list[Any], wire_id: str, limits: Limits) -> Iterator[str]:
        # A tritonclient carries one stream at a time; their channels share a connection.
        client = self._connect()
        arrived: queue.SimpleQueue[Arrived] = queue.SimpleQueue()
        final = False
        client.start_stream(callback=lambda result, error: arrived.put((result, error)), headers=self._headers())
        try:
            try:
                client.async_stream_infer(
                    self._model,
                    tensors,
                    outputs=[self._api.InferRequestedOutput("text_output")],
                    request_id=wire_id,
                    enable_empty_final_response=True,
                )
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
                if response.id == wire_id and response.outputs:
                    yield _text(result)
        finally:
            client.stop_stream(cancel_requests=not final)
            client.close()

    def _tensors(self, request: TextRequest, limits: Limits) -> list[Any]:
        import numpy as np

        if self._types is None:
            metadata = self._client.get_model_metadata(
                self._model, client_timeout=min(limits.connect_s, limits.read_s), headers=self._headers()
            )
            self._types = {tensor.name: tensor.datatype for tensor in metadata.inputs}
        fields = triton_fields(request, self._types) | {"stream": self._mode == "stream"}
        tensors = []
        for name, value in fields.items():
            elements = value if isinstance(value, list) else [value]
            kind = self._types[name]
            if kind == "BYTES":
                elements = [str(element).encode() for element in elements]
            array = np.array([elements], dtype=NUMPY_TYPES[kind])
            tensor = self._api.InferInput(name, list(array.shape), kind)
            tensor.set_data_from_numpy(array)
            tensors.append(tensor)
        return tensors

    def _headers(self) -> Mapping[str, str]:
        if self._credential is None:
            return {}
        return {self._credential.header.lower(): self._credential.header_value()}


def _next(arrived: "queue.SimpleQueue[Arrived]", limits: Limits) -> Arrived:
    waited_s = limits.read_s
    started = time.monotonic()
    try:
        return arrived.get(timeout=waited_s)
    except queue.Empty as error:
        seconds = time.monotonic() - started
        raise TimedOut(f"no response for {seconds:.1f} s", fix="see what the server is busy with") from error


def _text(result: Any) -> str:
    return str(result.as_numpy("text_output").reshape(-1)[0].decode())


def _broken(error: ClientError, texts: list[str]) -> ClientError:
    if not texts:
        return error
    return BrokenStream(f"the answer broke off after {len(texts)} pieces", why=str(error.what), pieces=texts)
