"""Model file of the ``tensorrtllm`` backend: Triton loads it for every model with ``backend: "tensorrtllm"``.

``pb_utils.TritonError`` and the response flags exist only after Triton has imported this module: use them in methods.
"""

import json
import os
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import triton_python_backend_utils as pb_utils

from model_server.engines import EngineOptions, Logits, ServedEngine, opener_of
from model_server.loop import one_line
from model_server.protocol import Batching
from model_server.triton import stub
from model_server.triton.batcher import Batcher, Figures, refusal
from model_server.triton.outbox import senders_here
from model_server.triton.tensors import is_stop, read_request
from model_server.triton.token_times import EACH_TOKEN, SENDERS, TOKEN_TIMES, TokenTimes
from serving_base.errors import EngineError, PlaybookError, RequestRefused

BATCHING: dict[str, Batching] = {
    "inflight_fused_batching": "inflight",
    "inflight_batching": "inflight",
    "v1": "static",
}

NEW_IN_EACH = "output_ids"
"""The tensor that is another one in each response of a stream."""


class TritonReply:
    """Sends the responses of one request.

    Triton frees the request when it gets the final flag; ``is_cancelled`` after that, or at the same moment, takes the
    whole server down with SIGSEGV. Hence the lock and ``_done``.
    """

    def __init__(self, request: Any, types: Mapping[str, type]) -> None:
        self._sender = request.get_response_sender()
        self._types = {name: types[name] for name in request.requested_output_names() if name in types}
        self._built = stub.BuiltTensors(pb_utils.Tensor)
        self._kept: dict[tuple[str, int], tuple[np.ndarray, Any]] = {}  # each with its array, whose id stays its own
        self._lock = threading.Lock()
        self._done = False

    def send(self, tensors: dict[str, np.ndarray] | None, *, final: bool) -> None:
        response = None
        if tensors is not None:
            response = pb_utils.InferenceResponse(
                [self._tensor(name, value) for name, value in tensors.items() if name in self._types]
            )
        self._send(response, final=final)

    def _tensor(self, name: str, value: np.ndarray) -> Any:
        """Most of a response are the very arrays of the last one, and theirs are the tensors of the last one."""
        if name == NEW_IN_EACH:
            return pb_utils.Tensor(name, value.astype(self._types[name], copy=False))
        kept = self._kept.get((name, id(value)))
        if kept is None:
            if len(self._kept) >= stub.MOST_BUILT:
                self._kept.clear()
            kept = self._kept[name, id(value)] = value, self._built(name, value.astype(self._types[name], copy=False))
        return kept[1]

    def fail(self, message: str, *, cancelled: bool = False, overloaded: bool = False) -> None:
        code = pb_utils.TritonError.INVALID_ARG
        if cancelled:
            code = pb_utils.TritonError.CANCELLED
        elif overloaded:
            code = pb_utils.TritonError.UNAVAILABLE
        self._send(pb_utils.InferenceResponse([], error=pb_utils.TritonError(message, code)), final=True)

    def cancelled(self) -> bool:
        if not self._lock.acquire(blocking=False):
            return False  # a response is on its way, and may take long
        try:
            return not self._done and bool(self._sender.is_cancelled())
        finally:
            self._lock.release()

    def _send(self, response: Any, *, final: bool) -> None:
        with self._lock:
            if self._done:
                return
            self._done = final
            flags = pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL if final else 0
            if response is None:
                self._sender.send(flags=flags)
            else:
                self._sender.send(response, flags=flags)


class TritonPythonModel:
    """The tensorrt_llm model on the engine of its folder."""

    def initialize(self, args: Mapping[str, str]) -> None:
        config = json.loads(args["model_config"])
        parameters = stub.parameters(args)
        self._types = {name: pb_utils.triton_string_to_numpy(kind) for name, kind in stub.outputs(args).items()}
        self._decoupled = pb_utils.using_decoupled_model_transaction_policy(config)
        self._exclude_input = stub.flag(parameters, "exclude_input_in_output", False)
        folder = Path(parameters["gpt_model_path"])
        self._folder = folder
        self._logits: Logits | None = None
        self._engine = load_engine(folder, parameters)
        self._times = TokenTimes(os.environ.get(TOKEN_TIMES, ""))
        self._figures = Figures(pb_utils, args["model_name"], args["model_version"])
        conduct = json.loads((Path(args["model_repository"]) / args["model_version"] / "conduct.json").read_text())
        policy = config.get("dynamic_batching", {}).get("default_queue_policy", {})
        self._batcher = Batcher(
            self._engine,
            self._engine_logits,
            placeholders=conduct["unasked_outputs"] == "zeros" and opener_of(folder).FILLS_UNASKED,
            max_queue_size=int(policy.get("max_queue_size", 0)),
            cancel_check_s=int(parameters.get("cancellation_check_period_ms", "100")) / 1e3,
            observe=self._figures.observe,
            count=self._figures.count,
            times=self._times,
            senders=int(os.environ.get(SENDERS) or senders_here()),
            sharing=not os.environ.get(EACH_TOKEN),
        )

    def _engine_logits(self) -> Logits:
        # A second copy of the weights: only those who ask for logits pay for it.
        if self._logits is None:
            self._logits = opener_of(self._folder).open_logits(self._folder)
        return self._logits

    def execute(self, requests: list[Any]) -> None:
        for request in requests:
            reply = TritonReply(request, self._types)
            request_id = request.request_id()
            try:
                self._accept(request_id, stub.arrays(request), reply)
            except PlaybookError as error:
                reply.fail(refusal(request_id, one_line(error)))

    def _accept(self, request_id: str, tensors: dict[str, np.ndarray], reply: TritonReply) -> None:
        if is_stop(tensors):
            if not request_id:
                raise RequestRefused("a stop request must carry the id of the request to stop", fix="send its id")
            self._batcher.stop(request_id, reply)
            return
        wanted = read_request(tensors, decoupled=self._decoupled, exclude_input=self._exclude_input)
        self._batcher.submit(request_id, wanted, reply)

    def finalize(self) -> None:
        # A metric or is_cancelled call after this returns takes the stub down.
        self._batcher.close()
        self._figures.drop()
        self._times.close()
        self._engine.close()


def load_engine(folder: Path, parameters: Mapping[str, str]) -> ServedEngine:
    """The engine as the model's parameters want it; :class:`EngineError` for a value that it cannot follow."""
    strategy = parameters.get("gpt_model_type", "inflight_fused_batching").lower()
    if strategy not in BATCHING:
        raise EngineError(f"batching_strategy is {strategy!r}", fix=f"use one of {', '.join(BATCHING)}")
    if int(parameters.get("max_beam_width", "1")) > 1:
        raise EngineError("max_beam_width is above 1 and this engine has no beam search", fix="fill in 1")
    reuse = stub.flag(parameters, "enable_kv_cache_reuse", False) if "enable_kv_cache_reuse" in parameters else None
    options = EngineOptions(
        threads=1,  # the other cores are for the server, the tokenizers and the clients
        batching=BATCHING[strategy],
        kv_cache_tokens=int(parameters.get("max_tokens_in_paged_kv_cache", "0")),
        enable_block_reuse=reuse,
        apart=True,
    )
    return opener_of(folder).open_engine(folder, options)
