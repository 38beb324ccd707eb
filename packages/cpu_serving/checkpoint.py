"""Checkpoints, read without torch: weights for the graph builder, and a summary for the eye.

Two layouts: a TensorRT-LLM checkpoint (``config.json`` and one ``rank*.safetensors`` for each tensor-parallel
rank; the ranks are merged) and a Hugging Face Llama folder (BF16 as downloaded, or FP8 as modelopt's unified export
writes it).
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from cpu_serving.llama import (
    E4M3_MAX,
    Layer,
    Linear,
    LlamaShape,
    LlamaWeights,
    check_quantization,
    check_shapes,
    concatenate,
    dtype_name,
    get_scale,
    get_tensor,
    make_linear,
    read_safetensors,
    rope_scaling,
)
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


def from_hugging_face(folder: Path, config: Mapping[str, Any]) -> LlamaWeights:
    tensors: dict[str, np.ndarray] = {}
    for path in sorted(folder.glob("*.safetensors")):
        tensors.update(read_safetensors(path))
    shape = _hugging_face_shape(folder, config)

    def linear(prefix: str) -> Linear:
        weight = get_tensor(tensors, f"{prefix}.weight", folder.name)
        return make_linear(
            prefix, weight, get_scale(tensors, prefix, ("weight_scale",)), get_scale(tensors, prefix, ("input_scale",))
        )

    def layer(number: int) -> Layer:
        prefix = f"model.layers.{number}."
        return Layer(
            input_norm=get_tensor(tensors, f"{prefix}input_layernorm.weight", folder.name),
            post_norm=get_tensor(tensors, f"{prefix}post_attention_layernorm.weight", folder.name),
            query=linear(f"{prefix}self_attn.q_proj"),
            key=linear(f"{prefix}self_attn.k_proj"),
            value=linear(f"{prefix}self_attn.v_proj"),
            output=linear(f"{prefix}self_attn.o_proj"),
            gate=linear(f"{prefix}mlp.gate_proj"),
            up=linear(f"{prefix}mlp.up_proj"),
            down=linear(f"{prefix}mlp.down_proj"),
            key_scale=get_scale(tensors, f"{prefix}self_attn.k_proj", ("k_scale",)),
            value_scale=get_scale(tensors, f"{prefix}self_attn.v_proj", ("v_scale",)),
        )

    embedding = get_tensor(tensors, "model.embed_tokens.weight", folder.name)
    tied = config.get("tie_word_embeddings", False)
    return LlamaWeights(
        shape,
        embedding,
        tuple(layer(number) for number in range(shape.num_layers)),
        get_tensor(tensors, "model.norm.weight", folder.name),
        Linear(embedding if tied else get_tensor(tensors, "lm_head.weight", folder.name)),
    )


def _hugging_face_shape(folder: Path, config: Mapping[str, Any]) -> LlamaShape:
    rope = config.get("rope_parameters") or {}
    theta = rope.get("rope_theta") or config.get("rope_theta")
    if not theta:
        raise CheckpointError(
            f"{folder}/config.json has no rope_theta", why="the default of 10000 is not Llama-3's", fix="add it"
        )
    quantization = config.get("quantization_config") or {}
    quant_algo = quantization.get("quant_algo") or quantization.get("quant_method")
    kv_algo = "FP8" if quantization.get("kv_cache_scheme") else None
    check_quantization(folder, quant_algo, kv_algo)
    try:
        return _shape(
            config,
            head_size=config.get("head_dim"),
            norm_epsilon=config["rms_norm_eps"],
            rope_theta=float(theta),
            rope_scaling=rope_scaling(folder, config.get("rope_scaling") or rope),
            quant_algo=quant_algo,
            kv_cache_quant_algo=kv_algo,
        )
    except KeyError as error:
        raise CheckpointError(f"{folder}/config.json has no {error}", fix="download the model again") from error


def _shape(config: Mapping[str, Any], *, head_size: int | None, **own: Any) -> LlamaShape:
    """What both kinds of config.json call alike; ``own``: the fields that each has under a name of its own."""
    heads = config["num_attention_heads"]
    return LlamaShape(
        hidden_size=config["hidden_size"],
        intermediate_size=config["intermediate_size"],
        num_layers=config["num_hidden_layers"],
        num_heads=heads,
        num_kv_heads=config.get("num_key_value_heads") or heads,
        head_size=head_size or config["hidden_size"] // heads,
        vocab_size=config["vocab_size"],
        max_position_embeddings=config["max_position_embeddings"],
        **own,
    )


def from_tensorrt_llm(folder: Path, config: Mapping[str, Any]) -> LlamaWeights:
    shape = tensorrt_llm_shape(folder, config)
    ranks = _read_ranks(folder, config["mapping"])
    tp = len(ranks)

    def parts(name: str) -> list[np.ndarray]:
        return [get_tensor(rank, name, f"rank{number}.safetensors") for number, rank in enumerate(ranks)]

    def same(prefix: str, suffixes: Sequence[str]) -> float | None:
        values = {get_scale(rank, prefix, suffixes) for rank in ranks}
        if len(values) > 1:
            raise CheckpointError(
                f"{folder}: the ranks disagree on {prefix}.{suffixes[0]}",
                why="a merged tensor can have one scale only",
                fix="export the checkpoint again with one scale for all ranks",
            )
        return values.pop()

    def linear(prefix: str, weight: np.ndarray) -> Linear:
        return make_linear(
            prefix, weight, same(prefix, ("weights_scaling_factor",)), same(prefix, ("activation_scaling_factor",))
        )

    def split(prefix: str, axis: int) -> Linear:
        return linear(prefix, concatenate(parts(f"{prefix}.weight"), axis))

    def layer(number: int) -> Layer:
        prefix = f"transformer.layers.{number}."
        name = f"{prefix}attention.qkv"
        query, key, value = _merge_qkv(parts(f"{name}.weight"), shape, tp)
        return Layer(
            input_norm=parts(f"{prefix}input_layernorm.weight")[0],
            post_norm=parts(f"{prefix}post_layernorm.weight")[0],
            query=linear(name, query),
            key=linear(name, key),
            value=linear(name, value),
            output=split(f"{prefix}attention.dense", axis=1),
            # TensorRT-LLM's GatedMLP is proj(silu(fc(x)) * gate(x)): its "gate" is Hugging Face's up_proj.
            gate=split(f"{prefix}mlp.fc", axis=0),
            up=split(f"{prefix}mlp.gate", axis=0),
            down=split(f"{prefix}mlp.proj", axis=1),
            key_scale=same(f"{prefix}attention", ("k_cache_scaling_factor", "kv_cache_scaling_factor")),
            value_scale=same(f"{prefix}attention", ("v_cache_scaling_factor", "kv_cache_scaling_factor")),
        )

    embeddings = parts("transformer.vocab_embedding.weight")
    embedding = embeddings[0] if len(embeddings[0]) >= shape.vocab_size else concatenate(embeddings, 0)
    embedding = embedding[: shape.vocab_size]
    head = embedding if config.get("share_embedding_table") else concatenate(parts("lm_head.weight"), 0)
    return LlamaWeights(
        shape,
        embedding,
        tuple(layer(number) for number in range(shape.num_layers)),
        parts("transformer.ln_f.weight")[0],
        Linear(head[: shape.vocab_size]),
    )


def tensorrt_llm_shape(folder: Path, config: Mapping[str, Any]) -> LlamaShape:
    """The shape that a checkpoint's ``config.json`` describes; :class:`CheckpointError` for one that cannot be built.

    ``folder`` is named in the errors only.
    """
    mapping, quantization = config["mapping"], config.get("quantization") or {}
    if mapping.get("pp_size", 1) != 1:
        raise CheckpointError(
            f"{folder} is split over {mapping['pp_size']} pipeline stages",
            why="the embedded lane merges tensor-parallel ranks only, so far",
            fix="quantize with pp_size 1",
        )
    if not config.get("rotary_base"):
        raise CheckpointError(
            f"{folder}/config.json has no rotary_base",
            why="readers then fall back to 10000 in silence, and Llama-3 (500000) answers nonsense; modelopt leaves it "
            "out under transformers 5, which moved rope_theta into rope_parameters",
            fix='set config.rope_theta = config.rope_parameters["rope_theta"] on the model before the export',
        )
    quant_algo, kv_algo = quantization.get("quant_algo"), quantization.get("kv_cache_quant_algo")
    check_quantization(folder, quant_algo, kv_algo)
    try:
        return _shape(
            config,
            head_size=config.get("head_size"),
            norm_epsilon=config["norm_epsilon"],
            rope_theta=float(config["rotary_base"]),
            rope_scaling=rope_scaling(folder, config.get("rotary_scaling")),
            quant_algo=quant_algo,
            kv_cache_quant_algo=kv_algo,
        )
    except KeyError as error:
        raise CheckpointError(f"{folder}/config.json has no {error}", fix="make the checkpoint again") from error


def _read_ranks(folder: Path, mapping: Mapping[str, Any]) -> list[dict[str, np.ndarray]]:
    world_size, tp = mapping.get("world_size", 1), mapping.get("tp_size", 1)
    found = sorted(path.name for path in folder.glob("rank*.safetensors"))
    expected = sorted(f"rank{rank}.safetensors" for rank in range(world_size))
    if world_size != tp or found != expected:
        raise CheckpointError(
            f"{folder}: world_size {world_size}, tp_size {tp}, {len(found)} rank files",
            why=f"world_size is tp_size * pp_size, with one file for each rank; found {', '.join(found) or 'none'}",
            fix="make the checkpoint again in an empty folder",
        )
    return [read_safetensors(folder / f"rank{rank}.safetensors") for rank in range(world_size)]


def _merge_qkv(parts: list[np.ndarray], shape: LlamaShape, tp: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Undo the per-rank fusion of Q, K and V. More ranks than KV heads: each KV head is stored tp / heads times."""
    q_rows = shape.num_heads // tp * shape.head_size
    kv_rows = max(1, shape.num_kv_heads // tp) * shape.head_size
    if any(len(part) != q_rows + 2 * kv_rows for part in parts):
        raise CheckpointError(
            f"attention.qkv.weight has {sorted({len(part) for part in parts})} rows on a rank",
            why=f"{shape.num_heads} heads and {shape.num_kv_heads} for KV on {tp} ranks make {q_rows + 2 * kv_rows}",
            fix="make the checkpoint again",
        )
    queries = [part[:q_rows] for part in parts]
    keys = [part[q_rows : q_rows + kv_rows] for part in parts]
    values = [part[q_rows + kv_rows :] for part in parts]
    copies = max(1, tp // shape.num_kv_heads)
    for replicated in (keys, values):
        for number, part in enumerate(replicated):
            if not np.array_equal(part.view(np.uint8), replicated[number // copies * copies].view(np.uint8)):
                raise CheckpointError(
                    "ranks that share a KV head hold different weights", fix="make the checkpoint again"
                )
    return concatenate(queries, 0), concatenate(keys[::copies], 0), concatenate(values[::copies], 0)
