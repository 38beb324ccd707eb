"""tensorrt_llm_bls: the ensemble's job written out in python, which is where one would add logic of one's own."""

import json
import time
import uuid
from collections import deque
from collections.abc import Generator, Iterator, Mapping
from contextlib import closing
from typing import Any

import numpy as np
import triton_python_backend_utils as pb_utils

from model_server.triton import stub
from serving_base.errors import RequestRefused

Tensors = dict[str, np.ndarray]

TO_PREPROCESSING = {
    "text_input": "QUERY",
    "decoder_text_input": "DECODER_QUERY",
    "max_tokens": "REQUEST_OUTPUT_LEN",
    "bad_words": "BAD_WORDS_DICT",
    "stop_words": "STOP_WORDS_DICT",
    "embedding_bias_words": "EMBEDDING_BIAS_WORDS",
    "embedding_bias_weights": "EMBEDDING_BIAS_WEIGHTS",
    "end_id": "END_ID",
    "pad_id": "PAD_ID",
}
TO_MODEL = {
    "INPUT_ID": "input_ids",
    "REQUEST_INPUT_LEN": "input_lengths",
    "DECODER_INPUT_ID": "decoder_input_ids",
    "REQUEST_DECODER_INPUT_LEN": "decoder_input_lengths",
    "BAD_WORDS_IDS": "bad_words_list",
    "STOP_WORDS_IDS": "stop_words_list",
    "REQUEST_OUTPUT_LEN": "request_output_len",
    "OUT_END_ID": "end_id",
    "OUT_PAD_ID": "pad_id",
}
# Before 0.11.0 no model knows of a decoder's own input, and postprocessing takes log-probabilities (0.8.0: must have).
DECODER = frozenset({"DECODER_INPUT_ID", "REQUEST_DECODER_INPUT_LEN"})
LOG_PROBS = ("cum_log_probs", "output_log_probs")
RENAMED = {"top_k": "runtime_top_k", "top_p": "runtime_top_p", "length_penalty": "len_penalty", "stream": "streaming"}
KEPT_S = 2.0
"""How long a finished iterator of responses lives on.

Triton's stub forgets it in a thread of its own, which does not hold the GIL (2.51, SendCleanupId). If that is the last
to hold it, the arrays in it are freed there, and on Python 3.12 the stub dies of a segmentation fault: seen when
clients leave a stream. So this side must be the last.
"""
UNSUPPORTED = ("image", "video", "num_draft_tokens", "use_draft_logits")


class CallFailed(Exception):
    """A model that was called answered with an error."""


class TritonPythonModel:
    """Calls preprocessing, tensorrt_llm and postprocessing for each request."""

    def initialize(self, args: Mapping[str, str]) -> None:
        parameters = stub.parameters(args)
        self._decoupled = pb_utils.using_decoupled_model_transaction_policy(json.loads(args["model_config"]))
        self._accumulate = stub.flag(parameters, "accumulate_tokens", False)
        self._model = parameters.get("tensorrt_llm_model_name", "tensorrt_llm")
        has_decoder = "decoder_text_input" in stub.inputs(args)
        self._prepared = [name for name in TO_MODEL if has_decoder or name not in DECODER]
        self._log_probs = () if has_decoder else LOG_PROBS
        self._passed = [name for name in stub.outputs(args) if name != "text_output"]
        self._finished: deque[tuple[float, Any]] = deque()

    def execute(self, requests: list[Any]) -> list[Any] | None:
        if not self._decoupled:
            return [self._answer(request) for request in requests]
        for request in requests:
            self._stream(request)
        return None

    def _answer(self, request: Any) -> Any:
        try:
            return next(self._run(request))
        except (CallFailed, RequestRefused) as error:
            return _error(error)

    def _stream(self, request: Any) -> None:
        sender = request.get_response_sender()
        try:
            with closing(self._run(request)) as responses:
                for response in responses:
                    sender.send(response)
                    # Safe without a lock: this thread alone sends the final flag.
                    if sender.is_cancelled():
                        break
        except (CallFailed, RequestRefused) as error:
            sender.send(_error(error), flags=pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)
            return
        sender.send(flags=pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)

    def _run(self, request: Any) -> Generator[Any, None, None]:
        tensors = stub.arrays(request)
        _refuse_unsupported(tensors)
        # Only what was asked for: the stub drops other outputs without holding the GIL, which kills it on Python 3.12.
        asked = set(request.requested_output_names())
        # Of its own, so that ending this request ends no other with the same id.
        request_id = f"{request.request_id() or 'bls'}.{uuid.uuid4().hex[:8]}"
        prepared = next(self._call("preprocessing", _renamed(tensors, TO_PREPROCESSING), self._prepared, request_id))
        inputs = {TO_MODEL[name]: value for name, value in prepared.items()}
        for name, value in tensors.items():
            if name not in TO_PREPROCESSING:
                inputs[RENAMED.get(name, name)] = value
        answers = self._call(
            self._model,
            {name: _batched(value) for name, value in inputs.items()},
            ["output_ids", "sequence_length", *(name for name in self._passed if name in {*asked, *self._log_probs})],
            request_id,
            decoupled=self._decoupled,
        )
        try:
            streaming = "stream" in tensors and bool(tensors["stream"].reshape(-1)[0])
            for texts in self._texts(answers, streaming=streaming):
                yield pb_utils.InferenceResponse([pb_utils.Tensor(*item) for item in texts.items() if item[0] in asked])
        except GeneratorExit:
            if self._decoupled:
                self._end(request_id, answers)
            raise

    def _texts(self, answers: Iterator[Tensors], *, streaming: bool) -> Iterator[Tensors]:
        kept: dict[tuple[int, int], list[int]] = {}
        for answer in answers:
            if "output_ids" not in answer:
                continue
            ids, length = answer["output_ids"], answer["sequence_length"]
            if streaming and self._accumulate:
                key = (_index(answer, "batch_index"), _index(answer, "sequence_index"))
                kept.setdefault(key, []).extend(ids[0, 0, : length[0, 0]].tolist())
                ids, length = np.array([[kept[key]]], np.int32), np.array([[len(kept[key])]], np.int32)
            tokens = {"TOKENS_BATCH": ids, "SEQUENCE_LENGTH": length}
            tokens |= {name.upper(): answer[name] for name in self._log_probs}
            text = next(self._call("postprocessing", tokens, ["OUTPUT"]))
            yield {"text_output": text["OUTPUT"]} | {name: answer[name] for name in self._passed if name in answer}

    def _end(self, request_id: str, answers: Iterator[Tensors]) -> None:
        """Stop the model's work for a client that is gone, and take what it still sends."""
        nothing = np.zeros((1, 1), np.int32)
        stop = {"input_ids": nothing, "input_lengths": nothing, "request_output_len": nothing, "stop": nothing == 0}
        for _ in self._call(self._model, stop, ["output_ids"], request_id, decoupled=True):
            pass
        for _ in answers:
            pass

    def _call(
        self, model: str, tensors: Tensors, wanted: list[str], request_id: str = "", *, decoupled: bool = False
    ) -> Iterator[Tensors]:
        inputs = [pb_utils.Tensor(name, value) for name, value in tensors.items()]
        call = pb_utils.InferenceRequest(
            model_name=model, inputs=inputs, requested_output_names=wanted, request_id=request_id
        )
        responses = call.exec(decoupled=True) if decoupled else [call.exec()]
        try:
            for response in responses:
                if response.has_error():
                    raise CallFailed(response.error().message())
                yield {tensor.name(): tensor.as_numpy() for tensor in response.output_tensors()}
        finally:
            self._keep(responses)

    def _keep(self, responses: Any) -> None:
        now = time.monotonic()
        self._finished.append((now, responses))
        while now - self._finished[0][0] > KEPT_S:
            self._finished.popleft()


def _renamed(tensors: Tensors, names: Mapping[str, str]) -> Tensors:
    return {names[name]: _batched(value) for name, value in tensors.items() if name in names}


def _batched(value: np.ndarray) -> np.ndarray:
    """Undo ``reshape: { shape: [ ] }``: other models want [B, 1]."""
    return value.reshape(-1, 1) if value.ndim == 1 else value


def _index(answer: Tensors, name: str) -> int:
    return int(answer[name].reshape(-1)[0]) if name in answer else 0


def _refuse_unsupported(tensors: Tensors) -> None:
    for name in tensors:
        if name.startswith(UNSUPPORTED):
            raise RequestRefused(f"the embedded lane does not take {name}", fix="leave it out")


def _error(error: Exception) -> Any:
    message = str(error).splitlines()[0]
    return pb_utils.InferenceResponse([], error=pb_utils.TritonError(message, pb_utils.TritonError.INVALID_ARG))
