"""OpenVINO and OpenVINO GenAI, imported in one place and without their telemetry; an engine's graph, run plainly."""

from __future__ import annotations

import importlib
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from cpu_serving.config import EngineConfig


def openvino(name: str = "openvino") -> Any:
    """The ``openvino`` module, or another one of the family by its full name.

    On import it looks up an analytics host unless ``CI`` is ``true`` (``openvino_telemetry`` 2025.2,
    ``utils/opt_in_checker.py``; ``OPENVINO_TELEMETRY=0`` has no effect), so the variable is set for the import only.
    """
    before = os.environ.get("CI")
    os.environ["CI"] = "true"
    try:
        return importlib.import_module(name)
    finally:
        if before is None:
            del os.environ["CI"]
        else:
            os.environ["CI"] = before


def openvino_genai() -> Any:
    """The ``openvino_genai`` module; see :func:`openvino`."""
    return openvino("openvino_genai")


class EngineLogits:
    """Logits of an engine folder: ``EngineLogits(folder)(ids)`` is float32 of shape (len(ids), vocabulary)."""

    def __init__(self, folder: Path, *, threads: int = 0) -> None:
        self.config = EngineConfig.read(folder)
        properties: dict[str, object] = {"INFERENCE_PRECISION_HINT": "f32", "KV_CACHE_PRECISION": "f32"}
        if threads:
            properties["INFERENCE_NUM_THREADS"] = threads
        compiled = openvino().Core().compile_model(str(Path(folder) / "openvino_model.xml"), "CPU", properties)
        self._request = compiled.create_infer_request()

    def __call__(self, ids: Sequence[int]) -> np.ndarray:
        row = np.asarray([list(ids)], dtype=np.int64)  # [1, tokens]
        self._request.reset_state()
        self._request.infer(
            {
                "input_ids": row,
                "attention_mask": np.ones_like(row),
                "position_ids": np.arange(row.shape[1], dtype=np.int64)[None],
                "beam_idx": np.zeros(1, dtype=np.int32),
            }
        )
        return np.array(self._request.get_tensor("logits").data[0], dtype=np.float32)  # [tokens, vocabulary]
