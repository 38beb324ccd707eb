"""postprocessing: token ids to text; the other outputs of tensorrt_llm pass through where the release declares them."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import triton_python_backend_utils as pb_utils

from model_server.text import TextCodec
from model_server.triton import stub


class TritonPythonModel:
    """Decodes each response by itself, so a character split over two streamed tokens shows as U+FFFD, as on the GPU."""

    def initialize(self, args: Mapping[str, str]) -> None:
        parameters = stub.parameters(args)
        self._codec = TextCodec.load(Path(parameters["tokenizer_dir"]))
        self._skip_special_tokens = stub.flag(parameters, "skip_special_tokens", True)
        self._outputs = stub.outputs(args)
        self._built = stub.BuiltTensors(pb_utils.Tensor)

    def execute(self, requests: list[Any]) -> list[Any]:
        return [self._answer(request) for request in requests]

    def _answer(self, request: Any) -> Any:
        tensors = stub.arrays(request)
        lengths = tensors["SEQUENCE_LENGTH"]
        texts = [
            self._codec.decode(beam[:length].tolist(), skip_special_tokens=self._skip_special_tokens)
            for row, row_lengths in zip(tensors["TOKENS_BATCH"], lengths, strict=True)
            for beam, length in zip(row, row_lengths, strict=True)
        ]
        passed = [
            self._built(f"OUT_{name}", value) for name, value in tensors.items() if f"OUT_{name}" in self._outputs
        ]
        return pb_utils.InferenceResponse([pb_utils.Tensor("OUTPUT", stub.objects(texts)), *passed])
