"""preprocessing: text to token ids, and everything else that tensorrt_llm wants of a text request."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import triton_python_backend_utils as pb_utils

from model_server.text import TextCodec
from model_server.triton import stub
from serving_base.errors import PlaybookError, RequestRefused

READ = frozenset({"QUERY", "REQUEST_OUTPUT_LEN", "BAD_WORDS_DICT", "STOP_WORDS_DICT", "END_ID", "PAD_ID"})


class TritonPythonModel:
    """Sends every output that its configuration declares for text use."""

    def initialize(self, args: Mapping[str, str]) -> None:
        parameters = stub.parameters(args)
        self._codec = TextCodec.load(Path(parameters["tokenizer_dir"]))
        self._end_id, self._pad_id = self._codec.end_id, self._codec.pad_id
        self._special_tokens = stub.flag(parameters, "add_special_tokens", True)
        self._outputs = stub.outputs(args)
        self._built = stub.BuiltTensors(pb_utils.Tensor)

    def execute(self, requests: list[Any]) -> list[Any]:
        return [self._answer(request) for request in requests]

    def _answer(self, request: Any) -> Any:
        try:
            tensors = self.preprocess(stub.arrays(request))
        except (PlaybookError, ValueError) as error:
            message = f"preprocessing refused the request: {str(error).splitlines()[0]}"
            return pb_utils.InferenceResponse([], error=pb_utils.TritonError(message, pb_utils.TritonError.INVALID_ARG))
        return pb_utils.InferenceResponse(
            [self._built(name, value) for name, value in tensors.items() if name in self._outputs]
        )

    def preprocess(self, tensors: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Outputs by name, all with the batch dimension first."""
        _refuse_unsupported(tensors)
        texts = [stub.text(row[0]) for row in tensors["QUERY"]]
        rows = len(texts)
        ids, lengths = self._codec.prompts(texts, special_tokens=self._special_tokens)
        pad_id = tensors.get("PAD_ID", np.full((rows, 1), self._pad_id)).astype(np.int32)
        return {
            "INPUT_ID": ids,
            "REQUEST_INPUT_LEN": lengths,
            "DECODER_INPUT_ID": pad_id,
            "REQUEST_DECODER_INPUT_LEN": np.ones((rows, 1), np.int32),
            "BAD_WORDS_IDS": self._words(tensors.get("BAD_WORDS_DICT"), rows),
            "STOP_WORDS_IDS": self._words(tensors.get("STOP_WORDS_DICT"), rows),
            "EMBEDDING_BIAS": np.empty((rows, 0), np.float32),
            "REQUEST_OUTPUT_LEN": tensors["REQUEST_OUTPUT_LEN"].astype(np.int32),
            "OUT_END_ID": tensors.get("END_ID", np.full((rows, 1), self._end_id)).astype(np.int32),
            "OUT_PAD_ID": pad_id,
        }

    def _words(self, words: np.ndarray | None, rows: int) -> np.ndarray:
        if words is None:
            return self._codec.words([[]] * rows)
        return self._codec.words([[stub.text(word) for word in row] for row in words])


def _refuse_unsupported(tensors: Mapping[str, np.ndarray]) -> None:
    for name, value in tensors.items():
        if name in READ or value.size == 0 or (name == "DECODER_QUERY" and not any(value.reshape(-1))):
            continue
        raise RequestRefused(f"a text-only, decoder-only model has no use for {name}", fix="leave it out")
