"""Checkpoints, read without torch: weights for the graph builder, and a summary for the eye.

Two layouts: a TensorRT-LLM checkpoint (tensor-parallel ranks are merged) and a Hugging Face Llama folder.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cpu_serving.hf_checkpoint import from_hugging_face
from cpu_serving.llama import E4M3_MAX, LlamaWeights, check_shapes, get_scale
from cpu_serving.safetensors_file import dtype_name, read_safetensors
from cpu_serving.trtllm_checkpoint import from_tensorrt_llm
from serving_base.errors import CheckpointError


@dataclass(frozen=True)
class TensorSummary:
    """One stored tensor. ``scale`` and ``amax`` (scale * 448) for FP8 weights; ``value`` of a scale itself."""

    file: str
    name: str
    dtype: str
    shape: tuple[int, ...]
    nbytes: int
    scale: float | None
    amax: float | None
    value: float | None = None


def read_checkpoint(folder: Path) -> LlamaWeights:
    """Read a TensorRT-LLM checkpoint or a Hugging Face Llama folder. :class:`CheckpointError` says what is wrong."""
    config = _read_config(folder)
    weights = from_tensorrt_llm(folder, config) if "mapping" in config else from_hugging_face(folder, config)
    check_shapes(weights)
    return weights


def checkpoint_tensors(folder: Path) -> list[TensorSummary]:
    """List every tensor that a checkpoint stores, file by file."""
    summaries = []
    for path in sorted(folder.glob("*.safetensors")):
        tensors = read_safetensors(path)
        for name, array in sorted(tensors.items()):
            scale = get_scale(tensors, name.removesuffix(".weight"), ("weights_scaling_factor", "weight_scale"))
            dtype = dtype_name(array)
            if dtype != "F8_E4M3":
                scale = None
            summaries.append(
                TensorSummary(
                    path.name,
                    name,
                    dtype,
                    array.shape,
                    array.nbytes,
                    scale,
                    None if scale is None else scale * E4M3_MAX,
                    float(array.reshape(-1)[0]) if array.size == 1 else None,
                )
            )
    if not summaries:
        raise CheckpointError(f"no tensors in {folder}", fix="run the quantization, or name another folder")
    return summaries


def _read_config(folder: Path) -> dict[str, Any]:
    path = folder / "config.json"
    if not path.is_file():
        raise CheckpointError(f"no checkpoint in {folder}", why="config.json is not there", fix="name another folder")
    try:
        config: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise CheckpointError(f"{path} is not JSON", why=str(error), fix="make the checkpoint again") from error
    architecture = config.get("architecture") or (config.get("architectures") or [None])[0]
    if architecture != "LlamaForCausalLM":
        raise CheckpointError(
            f"{folder} holds a {architecture or 'model of unnamed architecture'}",
            why="the embedded lane builds LlamaForCausalLM only",
            fix="use a Llama checkpoint",
        )
    if config.get("bias") or config.get("attention_bias") or config.get("mlp_bias"):
        raise CheckpointError(f"{folder}: projections with a bias", why="Llama-3 has none; they would be ignored")
    return config
