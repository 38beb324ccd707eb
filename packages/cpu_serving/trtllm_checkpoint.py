"""Read a TensorRT-LLM checkpoint: ``config.json`` and one ``rank*.safetensors`` for each tensor-parallel rank."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from cpu_serving.llama import (
    Layer,
    Linear,
    LlamaShape,
    LlamaWeights,
    check_quantization,
    concatenate,
    get_scale,
    get_tensor,
    make_linear,
    rope_scaling,
)
from cpu_serving.safetensors_file import read_safetensors
from serving_base.errors import CheckpointError


def from_tensorrt_llm(folder: Path, config: Mapping[str, Any]) -> LlamaWeights:
    shape = _tensorrt_llm_shape(folder, config)
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


def _tensorrt_llm_shape(folder: Path, config: Mapping[str, Any]) -> LlamaShape:
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
        heads = config["num_attention_heads"]
        return LlamaShape(
            hidden_size=config["hidden_size"],
            intermediate_size=config["intermediate_size"],
            num_layers=config["num_hidden_layers"],
            num_heads=heads,
            num_kv_heads=config.get("num_key_value_heads") or heads,
            head_size=config.get("head_size") or config["hidden_size"] // heads,
            vocab_size=config["vocab_size"],
            norm_epsilon=config["norm_epsilon"],
            rope_theta=float(config["rotary_base"]),
            rope_scaling=rope_scaling(folder, config.get("rotary_scaling")),
            max_position_embeddings=config["max_position_embeddings"],
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
