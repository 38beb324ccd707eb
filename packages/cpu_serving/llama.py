"""Llama in one neutral, typed structure: what the checkpoint readers fill and the graph builder reads.

safetensors files are read without torch, as memory-mapped numpy arrays, bfloat16 and float8 included. Format: 8 bytes
little-endian header length, a JSON header of name -> dtype, shape, data_offsets, then the data
(https://github.com/huggingface/safetensors#format).
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np

from serving_base.errors import CheckpointError

DTYPES: dict[str, np.dtype] = {
    "F32": np.dtype(np.float32),
    "F16": np.dtype(np.float16),
    "BF16": np.dtype(ml_dtypes.bfloat16),
    "F8_E4M3": np.dtype(ml_dtypes.float8_e4m3fn),
    "I8": np.dtype(np.int8),
    "U8": np.dtype(np.uint8),
    "I32": np.dtype(np.int32),
    "I64": np.dtype(np.int64),
}


def dtype_name(array: np.ndarray) -> str:
    """The safetensors name of an array's dtype."""
    return next(name for name, dtype in DTYPES.items() if dtype == array.dtype)


def read_safetensors(path: Path) -> dict[str, np.ndarray]:
    """Map every tensor of ``path``, in the file's order. :class:`CheckpointError` when the file is not whole."""

    def broken(why: str) -> CheckpointError:
        return CheckpointError(f"{path} cannot be read", why=why, fix="make the checkpoint again")

    if not path.is_file():
        raise broken("there is no such file")
    data = np.memmap(path, dtype=np.uint8, mode="r") if path.stat().st_size else np.empty(0, np.uint8)
    header_bytes = int.from_bytes(bytes(data[:8]), "little")
    if len(data) < 8 or 8 + header_bytes > len(data):
        raise broken("the file is cut short inside its header")
    try:
        header = json.loads(bytes(data[8 : 8 + header_bytes]))
    except ValueError as error:
        raise broken(f"its header is not JSON: {error}") from error
    tensors = {}
    for name, entry in header.items():
        if name == "__metadata__":
            continue
        dtype = DTYPES.get(entry["dtype"])
        if dtype is None:
            raise broken(f"{name} has dtype {entry['dtype']}, which this reader does not know")
        begin, end = (8 + header_bytes + offset for offset in entry["data_offsets"])
        if end > len(data):
            raise broken(f"the file is cut short inside {name}")
        if end - begin != math.prod(entry["shape"]) * dtype.itemsize:
            raise broken(f"{name} has {end - begin} bytes, its shape {entry['shape']} needs another number")
        tensors[name] = data[begin:end].view(dtype).reshape(entry["shape"])
    return tensors


E4M3_MAX = 448.0  # largest finite float8_e4m3fn


@dataclass(frozen=True)
class RopeScaling:
    """Llama 3.1's stretched rotary frequencies."""

    factor: float
    low_freq_factor: float
    high_freq_factor: float
    original_max_position_embeddings: int


@dataclass(frozen=True)
class LlamaShape:
    """The architecture in numbers."""

    hidden_size: int
    intermediate_size: int
    num_layers: int
    num_heads: int
    num_kv_heads: int
    head_size: int
    vocab_size: int
    norm_epsilon: float
    rope_theta: float
    rope_scaling: RopeScaling | None
    max_position_embeddings: int
    quant_algo: str | None
    kv_cache_quant_algo: str | None


@dataclass(frozen=True)
class Linear:
    """``y = x @ weight.T``; weight (out, in). FP8: real weight = weight * weight_scale, x is rounded at input_scale."""

    weight: np.ndarray
    weight_scale: float | None = None
    input_scale: float | None = None


@dataclass(frozen=True)
class Layer:
    """One decoder layer; gate is the projection inside SiLU. K and V scales are those of an FP8 KV cache."""

    input_norm: np.ndarray  # [hidden]
    post_norm: np.ndarray  # [hidden]
    query: Linear  # weight [heads * head_size, hidden]
    key: Linear  # weight [KV heads * head_size, hidden]
    value: Linear  # as key
    output: Linear  # weight [hidden, heads * head_size]
    gate: Linear  # weight [intermediate, hidden]
    up: Linear  # as gate
    down: Linear  # weight [hidden, intermediate]
    key_scale: float | None = None
    value_scale: float | None = None


@dataclass(frozen=True)
class LlamaWeights:
    shape: LlamaShape
    embedding: np.ndarray  # [vocabulary, hidden]
    layers: tuple[Layer, ...]
    norm: np.ndarray  # [hidden]
    head: Linear  # weight [vocabulary, hidden]


def rope_scaling(folder: Path, entry: Mapping[str, Any] | None) -> RopeScaling | None:
    kind = (entry or {}).get("rope_type") or (entry or {}).get("type") or "default"
    if not entry or kind == "default":
        return None
    if kind != "llama3":
        raise CheckpointError(
            f"{folder}: rotary scaling {kind!r}", why="only Llama 3.1's is built", fix="use another model"
        )
    return RopeScaling(
        entry["factor"],
        entry["low_freq_factor"],
        entry["high_freq_factor"],
        entry["original_max_position_embeddings"],
    )


def check_quantization(folder: Path, quant_algo: str | None, kv_algo: str | None) -> None:
    if quant_algo not in (None, "FP8") or kv_algo not in (None, "FP8"):
        raise CheckpointError(
            f"{folder} is quantized as {quant_algo}, KV cache {kv_algo or 'not'}",
            why="the embedded lane builds BF16 and FP8 checkpoints",
            fix="quantize with qformat fp8 or full_prec",
        )


def get_tensor(tensors: Mapping[str, np.ndarray], name: str, where: str) -> np.ndarray:
    try:
        return tensors[name]
    except KeyError:
        raise CheckpointError(f"{where} has no tensor {name}", fix="make the checkpoint again") from None


def get_scale(tensors: Mapping[str, np.ndarray], prefix: str, suffixes: Sequence[str]) -> float | None:
    """The first of the named per-tensor scales that is stored, or None."""
    for suffix in suffixes:
        array = tensors.get(f"{prefix}.{suffix}")
        if array is not None:
            if array.size != 1:
                raise CheckpointError(
                    f"{prefix}.{suffix} has shape {array.shape}", why="only one scale per tensor is read", fix="use fp8"
                )
            return float(array.reshape(-1)[0])
    return None


def make_linear(prefix: str, weight: np.ndarray, weight_scale: float | None, input_scale: float | None) -> Linear:
    if dtype_name(weight) == "F8_E4M3":
        if weight_scale is None or input_scale is None:
            raise CheckpointError(f"{prefix} is FP8 without its scales", fix="make the checkpoint again")
        return Linear(weight, weight_scale, input_scale)
    return Linear(weight)


def concatenate(parts: list[np.ndarray], axis: int) -> np.ndarray:
    return parts[0] if len(parts) == 1 else np.concatenate(parts, axis)


def check_shapes(weights: LlamaWeights) -> None:
    """Raise :class:`CheckpointError` for the first tensor whose shape is not what ``config.json`` asks for."""
    shape = weights.shape
    hidden, intermediate = shape.hidden_size, shape.intermediate_size
    q, kv = shape.num_heads * shape.head_size, shape.num_kv_heads * shape.head_size
    found = [
        ("embedding", weights.embedding, (shape.vocab_size, hidden)),
        ("head", weights.head.weight, (shape.vocab_size, hidden)),
        ("norm", weights.norm, (hidden,)),
    ]
    for number, layer in enumerate(weights.layers):
        found += [
            (f"layer {number} input norm", layer.input_norm, (hidden,)),
            (f"layer {number} post norm", layer.post_norm, (hidden,)),
            (f"layer {number} query", layer.query.weight, (q, hidden)),
            (f"layer {number} key", layer.key.weight, (kv, hidden)),
            (f"layer {number} value", layer.value.weight, (kv, hidden)),
            (f"layer {number} output", layer.output.weight, (hidden, q)),
            (f"layer {number} gate", layer.gate.weight, (intermediate, hidden)),
            (f"layer {number} up", layer.up.weight, (intermediate, hidden)),
            (f"layer {number} down", layer.down.weight, (hidden, intermediate)),
        ]
    for name, array, wanted in found:
        if array.shape != wanted:
            raise CheckpointError(
                f"{name} has shape {array.shape}, config.json asks for {wanted}",
                why="the files belong to different checkpoints",
                fix="make the checkpoint again in an empty folder",
            )
