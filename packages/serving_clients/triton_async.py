"""Triton over gRPC for asyncio: many requests at once in one thread, each with a place in the server's queue."""

import math
from collections.abc import AsyncIterator
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Self

from serving_base.servers import TEXT_MODEL
from serving_clients.requests import TextRequest
from serving_clients.triton_grpc import CHANNEL, TEXT
from serving_clients.triton_wire import as_tensors, grpc_failure, triton_fields


@dataclass(frozen=True)
class Place:
    """What a request says to the queue of the model that it is sent to; the queue must be configured for both.

    ``priority`` 1 goes first, 0 is the model's default. After ``patience_s`` in the queue the request is refused, if
    the policy has ``allow_timeout_override`` and a longer ``default_timeout_microseconds``
    (triton-inference-server/core, scheduler_utils.cc: with a default of 0 the request's own time counts for nothing).
    """

    priority: int = 0
    patience_s: float = math.inf

    def fields(self) -> dict[str, int]:
        """As tritonclient wants them; the time in whole microseconds."""
        timeout = {"timeout": max(1, int(self.patience_s * 1e6))} if math.isfinite(self.patience_s) else {}
        return {"priority": self.priority, **timeout}


ANYWHERE = Place()


class AsyncTriton:
    """The text model at ``address`` ("host:8001"), without encryption and without retries; for one event loop.

    A context manager: ``async with AsyncTriton(address) as triton``. What goes wrong raises one of
    :mod:`serving_clients.requests`.
    """

    def __init__(self, address: str, *, model: str = TEXT_MODEL) -> None:
        self._address, self._model = address, model
        self._types: dict[str, str] = {}
        self._client: Any = None

    async def __aenter__(self) -> Self:
        import tritonclient.grpc.aio as api

        self._client = api.InferenceServerClient(self._address, channel_args=CHANNEL)
        metadata = await self._asked(self._client.get_model_metadata(self._model))
        self._types = {tensor.name: tensor.datatype for tensor in metadata.inputs}
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._client.close()

    async def generate(self, request: TextRequest, place: Place = ANYWHERE) -> str:
        """The whole answer. Sampling and length are the request's; its deadline and retries are the caller's work."""
        from tritonclient.grpc import InferInput, InferRequestedOutput
        from tritonclient.utils import InferenceServerException, np_to_triton_dtype

        inputs = []
        tensors = as_tensors(triton_fields(request, self._types) | {"stream": False}, self._types)
        for name, value in tensors.items():
            inputs.append(InferInput(name, list(value.shape), np_to_triton_dtype(value.dtype)))
            inputs[-1].set_data_from_numpy(value)
        asked = {"model_name": self._model, "inputs": inputs, "outputs": [InferRequestedOutput(TEXT)]}

        async def only_one() -> AsyncIterator[dict[str, Any]]:
            yield asked | place.fields() | {"enable_empty_final_response": True}

        texts: list[str] = []
        try:
            responses = self._client.stream_infer(only_one())
            try:
                async for result, failure in responses:
                    if failure is not None:
                        raise failure
                    if result.get_response().outputs:
                        texts.append(result.as_numpy(TEXT).reshape(-1)[0].decode())
                    if result.get_response().parameters["triton_final_response"].bool_param:
                        break
            finally:
                responses.cancel()
        except InferenceServerException as error:
            raise grpc_failure(error.status(), error.message()) from error
        return "".join(texts)

    async def _asked(self, call: Any) -> Any:
        from tritonclient.utils import InferenceServerException

        try:
            return await call
        except InferenceServerException as error:
            raise grpc_failure(error.status(), error.message()) from error
