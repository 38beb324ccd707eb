"""Which part of each weight a rank holds, as Megatron-LM cuts a transformer (Shoeybi et al. 2019, arXiv 1909.08053).

``y = x @ weight.T`` with weight (out, in). A *column* cut divides ``out``: every rank gets the whole x and has some
columns of y. A *row* cut divides ``in``: every rank has its part of x, and y is the sum over the ranks. A column cut
followed by a row cut needs one sum, none between them. *words* divides the vocabulary.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np

from cpu_serving.llama import Layer, LlamaShape, LlamaWeights
from serving_base.errors import UsageError

Cut = Literal["column", "row"]
CUTS: Mapping[str, Cut] = {
    "query": "column",
    "key": "column",
    "value": "column",
    "output": "row",
    "gate": "column",
    "up": "column",
    "down": "row",
}
"""Linear layer of a decoder layer -> its cut. Embedding and head are cut by words; norms are on every rank."""

Mistake = Literal["", "query, key and value cut as one matrix", "no sum after down", "residual summed too"]
MISTAKES: tuple[Mistake, ...] = get_args(Mistake)
"""Ways to cut or sum wrongly that raise no error: every shape still fits. The first one is none."""


@dataclass(frozen=True)
class RankLayout:
    """``tp`` ranks share each layer, ``pp`` stages the layers. Ranks of a stage are neighbours, as in TensorRT-LLM."""

    tp: int = 1
    pp: int = 1

    @property
    def world_size(self) -> int:
        return self.tp * self.pp

    def place(self, rank: int) -> tuple[int, int]:
        """(stage, part) of ``rank``."""
        return divmod(rank, self.tp)

    def rank(self, stage: int, part: int) -> int:
        return stage * self.tp + part

    def check(self, shape: LlamaShape) -> None:
        """:class:`UsageError` if the model cannot be cut so."""
        for flag, ranks, count, what in (
            ("tp", self.tp, shape.num_heads, "attention heads"),
            ("tp", self.tp, shape.intermediate_size, "columns of gate and up"),
            ("tp", self.tp, shape.vocab_size, "words"),
            ("pp", self.pp, shape.num_layers, "layers"),
        ):
            if ranks < 1 or count % ranks:
                raise UsageError(
                    f"{flag} {ranks} does not divide the {count} {what}",
                    why="every rank gets an equal share",
                    fix=f"use a {flag} that divides {count}",
                )


@dataclass(frozen=True)
class RankWeights:
    """What one rank holds, float32. ``words``: the first word of its part of embedding and head."""

    layers: tuple[Mapping[str, np.ndarray], ...]
    embedding: np.ndarray
    head: np.ndarray
    norm: np.ndarray
    words: int

    @property
    def linear_values(self) -> int:
        """Numbers in the linear layers of this rank: its share of what a cut divides."""
        return sum(layer[name].size for layer in self.layers for name in CUTS)


def part_of(weight: np.ndarray, cut: Cut, part: int, parts: int) -> np.ndarray:
    """Part ``part`` of ``parts`` of a weight (out, in)."""
    return np.array_split(weight, parts, axis=0 if cut == "column" else 1)[part]


def kv_part(weight: np.ndarray, heads: int, part: int, parts: int) -> np.ndarray:
    """Part of a key or value weight (KV heads x head size, in): whole heads, copied above that number of ranks."""
    by_head = weight.reshape(heads, -1, weight.shape[1])
    first, count = part * heads // parts, max(1, heads // parts)
    return by_head[first : first + count].reshape(-1, weight.shape[1])


def rank_weights(weights: LlamaWeights, layout: RankLayout, rank: int, mistake: Mistake = "") -> RankWeights:
    """What ``rank`` of ``layout`` holds of ``weights``; only its part is copied. :class:`UsageError` for FP8."""
    layout.check(weights.shape)
    if weights.shape.quant_algo is not None:
        raise UsageError("an FP8 checkpoint", why="the ranks read 16-bit weights only", fix="use the model itself")
    stage, part = layout.place(rank)
    each = weights.shape.num_layers // layout.pp
    layers = weights.layers[stage * each : (stage + 1) * each]
    fused = mistake == MISTAKES[1]
    words = np.array_split(np.arange(weights.shape.vocab_size), layout.tp)[part]
    return RankWeights(
        layers=tuple(_layer_part(layer, weights.shape, part, layout.tp, fused=fused) for layer in layers),
        embedding=_plain(weights.embedding[words[0] : words[-1] + 1]),
        head=_plain(weights.head.weight[words[0] : words[-1] + 1]),
        norm=_plain(weights.norm),
        words=int(words[0]),
    )


def _layer_part(layer: Layer, shape: LlamaShape, part: int, parts: int, *, fused: bool) -> dict[str, np.ndarray]:
    found = {"input_norm": layer.input_norm, "post_norm": layer.post_norm}
    for name, cut in CUTS.items():
        weight = getattr(layer, name).weight
        is_kv = name in ("key", "value")
        found[name] = kv_part(weight, shape.num_kv_heads, part, parts) if is_kv else part_of(weight, cut, part, parts)
    if fused and shape.num_kv_heads % parts == 0:
        found |= _cut_as_one(layer, found, part, parts)
    return {name: _plain(array) for name, array in found.items()}


def _cut_as_one(layer: Layer, right: Mapping[str, np.ndarray], part: int, parts: int) -> dict[str, np.ndarray]:
    """Query over key over value as one matrix, cut in the middle: as many rows as it should be, but others."""
    whole = np.concatenate([layer.query.weight, layer.key.weight, layer.value.weight])
    rows = np.array_split(whole, parts)[part]
    names = ("query", "key", "value")
    ends = np.cumsum([len(right[name]) for name in names])[:-1]
    return dict(zip(names, np.split(rows, ends), strict=True))


def _plain(array: np.ndarray) -> np.ndarray:
    return np.array(array, dtype=np.float32)
