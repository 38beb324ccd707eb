"""Read a Hugging Face Llama folder: BF16 as downloaded, or FP8 as modelopt's unified export writes it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from cpu_serving.llama import (
    Layer,
    Linear,
    LlamaShape,
    LlamaWeights,
    check_quantization,
    get_scale,
    get_tensor,
    make_linear,
    rope_scaling,
)
from cpu_serving.safetensors_file import read_safetensors
from serving_base.errors import CheckpointError


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
        heads = config["num_attention_heads"]
        return LlamaShape(
            hidden_size=config["hidden_size"],
            intermediate_size=config["intermediate_size"],
            num_layers=config["num_hidden_layers"],
            num_heads=heads,
            num_kv_heads=config.get("num_key_value_heads") or heads,
            head_size=config.get("head_dim") or config["hidden_size"] // heads,
            vocab_size=config["vocab_size"],
            norm_epsilon=config["rms_norm_eps"],
            rope_theta=float(theta),
            rope_scaling=rope_scaling(folder, config.get("rope_scaling") or rope),
            max_position_embeddings=config["max_position_embeddings"],
            quant_algo=quant_algo,
            kv_cache_quant_algo=kv_algo,
        )
    except KeyError as error:
        raise CheckpointError(f"{folder}/config.json has no {error}", fix="download the model again") from error
