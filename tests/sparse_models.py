"""Llama models and checkpoints with true headers, names, shapes, dtypes and sizes, and holes in place of weights."""

import json
import shutil
import struct
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from serving_base.facts.models import ModelShape

BYTES = {"BF16": 2, "F16": 2, "F32": 4, "F8_E4M3": 1}
SHARD_BYTES = 4_980_000_000


def write_model(folder: Path, shape: ModelShape, tokenizer_from: Path, data: Mapping[str, bytes]) -> None:
    """A Hugging Face folder of ``shape`` in sparse shards with a true index; ``data``: content of some tensors."""
    for name in ("tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "generation_config.json"):
        shutil.copyfile(tokenizer_from / name, folder / name)
    config = {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "torch_dtype": "bfloat16",
        **shape.model_dump(exclude={"name", "hf_id", "source", "download_gb"}),
    }
    (folder / "config.json").write_text(json.dumps(config), encoding="utf-8")
    shards: list[list[tuple[str, str, tuple[int, ...]]]] = [[]]
    size = 0
    for name, dims in hugging_face_tensors(shape):
        bytes_ = 2 * dims[0] * (dims[1] if len(dims) > 1 else 1)
        if size + bytes_ > SHARD_BYTES:
            shards.append([])
            size = 0
        shards[-1].append((name, "BF16", dims))
        size += bytes_
    weight_map: dict[str, str] = {}
    for number, tensors in enumerate(shards, 1):
        file = f"model-{number:05}-of-{len(shards):05}.safetensors"
        write_sparse(folder / file, tensors, data)
        weight_map |= {name: file for name, _, _ in tensors}
    index = {"metadata": {"total_size": 2 * shape.parameters}, "weight_map": weight_map}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index), encoding="utf-8")


def hugging_face_tensors(shape: ModelShape) -> Iterator[tuple[str, tuple[int, ...]]]:
    hidden, inner = shape.hidden_size, shape.intermediate_size
    kv_width = shape.num_key_value_heads * shape.head_dim
    yield "model.embed_tokens.weight", (shape.vocab_size, hidden)
    for number in range(shape.num_hidden_layers):
        layer = f"model.layers.{number}"
        for name, rows in (("q", hidden), ("k", kv_width), ("v", kv_width), ("o", hidden)):
            yield f"{layer}.self_attn.{name}_proj.weight", (rows, hidden)
        yield f"{layer}.mlp.gate_proj.weight", (inner, hidden)
        yield f"{layer}.mlp.up_proj.weight", (inner, hidden)
        yield f"{layer}.mlp.down_proj.weight", (hidden, inner)
        yield f"{layer}.input_layernorm.weight", (hidden,)
        yield f"{layer}.post_attention_layernorm.weight", (hidden,)
    yield "model.norm.weight", (hidden,)
    yield "lm_head.weight", (shape.vocab_size, hidden)


def rank_tensors(
    shape: ModelShape, rank: int, tp: int, pp: int, algorithm: str | None, kv: str | None
) -> Iterator[tuple[str, str, tuple[int, ...]]]:
    """Name, dtype and shape of every tensor of one rank of a Llama checkpoint; scales last."""
    hidden, inner = shape.hidden_size, shape.intermediate_size
    stage = rank // tp
    per_stage = shape.num_hidden_layers // pp
    kv_heads = max(1, shape.num_key_value_heads // tp)
    linear = {
        "attention.qkv": ((shape.num_attention_heads // tp + 2 * kv_heads) * shape.head_dim, hidden),
        "attention.dense": (hidden, hidden // tp),
        "mlp.fc": (inner // tp, hidden),
        "mlp.gate": (inner // tp, hidden),
        "mlp.proj": (hidden, inner // tp),
    }
    layers = [f"transformer.layers.{number}" for number in range(per_stage)]
    if stage == 0:
        yield "transformer.vocab_embedding.weight", "BF16", (shape.vocab_size // tp, hidden)
    if stage == pp - 1:
        yield "transformer.ln_f.weight", "BF16", (hidden,)
        yield "lm_head.weight", "BF16", (shape.vocab_size // tp, hidden)
    for layer in layers:
        for norm in ("input_layernorm", "post_layernorm"):
            yield f"{layer}.{norm}.weight", "BF16", (hidden,)
        for name, size in linear.items():
            yield f"{layer}.{name}.weight", "F8_E4M3" if algorithm == "FP8" else "BF16", size
    for layer in layers:
        if algorithm == "FP8":
            for name in linear:
                yield f"{layer}.{name}.weights_scaling_factor", "F32", (1,)
                yield f"{layer}.{name}.activation_scaling_factor", "F32", (1,)
        if kv:
            yield f"{layer}.attention.kv_cache_scaling_factor", "F32", (1,)


def write_sparse(
    path: Path, tensors: Iterable[tuple[str, str, tuple[int, ...]]], data: Mapping[str, bytes] | None = None
) -> None:
    """A safetensors file with a true header; ``data`` is its content, F32 scalars are 0.5, the rest holes of the file.

    The header is padded to eight bytes, as the format's own writer does.
    """
    header: dict[str, Any] = {}
    offset = 0
    for name, dtype, size in tensors:
        count = 1
        for side in size:
            count *= side
        header[name] = {"dtype": dtype, "shape": size, "data_offsets": [offset, offset + count * BYTES[dtype]]}
        offset += count * BYTES[dtype]
    text = json.dumps({"__metadata__": {"format": "pt"}, **header}).encode()
    text += b" " * (-len(text) % 8)
    with path.open("wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        start = 8 + len(text)
        file.truncate(start + offset)
        for name, entry in header.items():
            content = (data or {}).get(name) or (struct.pack("<f", 0.5) if entry["shape"] == (1,) else b"")
            if content:
                file.seek(start + entry["data_offsets"][0])
                file.write(content)
