"""One rank's part of a Llama, computed by torch in float32. No KV cache: every step reads the whole text again.

Hidden states are (tokens, hidden) and whole on every rank; heads, gate and up are the rank's own.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from cpu_serving.llama import LlamaShape
from cpu_serving.parallel.cuts import MISTAKES, Mistake, RankWeights
from cpu_serving.parallel.wire import Wire
from serving_base.errors import UsageError

if TYPE_CHECKING:
    from torch import Tensor

Watch = Callable[[str, "Tensor"], None]


class Shard:
    """A rank's layers. ``watch(name, hidden)`` sees the hidden state after each half of a layer."""

    def __init__(self, weights: RankWeights, shape: LlamaShape, wire: Wire, mistake: Mistake = "") -> None:
        import torch

        if shape.rope_scaling is not None:
            raise UsageError("a model with stretched positions", why="the parallel laboratory has plain rotary ones")
        self.shape, self._wire, self._mistake = shape, wire, mistake
        self._layers = [{name: torch.from_numpy(array) for name, array in layer.items()} for layer in weights.layers]
        self._embedding, self._head, self._norm = map(torch.from_numpy, (weights.embedding, weights.head, weights.norm))
        self._words = weights.words

    def embed(self, tokens: Tensor) -> Tensor:
        """Rows of the embedding: each rank looks up its own words and adds zeros for the others."""
        if int(tokens.min()) < 0 or int(tokens.max()) >= self.shape.vocab_size:
            raise UsageError(
                f"token {int(tokens.max())} is none of the {self.shape.vocab_size} words",
                fix="use the model's tokenizer",
            )
        mine = tokens - self._words
        known = (mine >= 0) & (mine < len(self._embedding))
        rows = self._embedding[mine.clamp(0, len(self._embedding) - 1)] * known[:, None]
        return self._wire.all_reduce(rows, "embedding")

    def layers(self, hidden: Tensor, first: int, watch: Watch) -> Tensor:
        """``hidden`` after this rank's layers, the first of which is number ``first`` of the model."""
        for number, layer in enumerate(self._layers, first):
            hidden = self._add(hidden, self._attention(layer, self._normed(hidden, layer["input_norm"])), "")
            watch(f"layer {number} attention", hidden)
            hidden = self._add(hidden, self._mlp(layer, self._normed(hidden, layer["post_norm"])), "down")
            watch(f"layer {number} MLP", hidden)
        return hidden

    def logits(self, hidden: Tensor) -> Tensor:
        """(tokens, vocabulary): each rank scores its own words."""
        return self._wire.all_gather(self._normed(hidden, self._norm) @ self._head.T, "logits")

    def _add(self, hidden: Tensor, part: Tensor, after: str) -> Tensor:
        if self._mistake == MISTAKES[2] and after == "down":
            return hidden + part
        if self._mistake == MISTAKES[3]:
            return self._wire.all_reduce(hidden + part, "layers")
        return hidden + self._wire.all_reduce(part, "layers")

    def _normed(self, hidden: Tensor, weight: Tensor) -> Tensor:
        return hidden * (hidden.pow(2).mean(-1, keepdim=True) + self.shape.norm_epsilon).rsqrt() * weight

    def _mlp(self, layer: Mapping[str, Tensor], x: Tensor) -> Tensor:
        from torch.nn.functional import silu

        gated: Tensor = silu(x @ layer["gate"].T)
        return (gated * (x @ layer["up"].T)) @ layer["down"].T

    def _attention(self, layer: Mapping[str, Tensor], x: Tensor) -> Tensor:
        import torch

        query, key, value = (self._heads(x @ layer[name].T) for name in ("query", "key", "value"))
        group = len(query) // len(key)
        key, value = (tensor.repeat_interleave(group, dim=0) for tensor in (self._rotated(key), value))
        attend = torch.nn.functional.scaled_dot_product_attention
        attended: Tensor = attend(self._rotated(query), key, value, is_causal=True)
        return attended.transpose(0, 1).flatten(1) @ layer["output"].T

    def _heads(self, projected: Tensor) -> Tensor:
        """(tokens, heads x head size) to (heads, tokens, head size)."""
        by_head: Tensor = projected.unflatten(-1, (-1, self.shape.head_size))
        return by_head.transpose(0, 1)

    def _rotated(self, heads: Tensor) -> Tensor:
        import torch

        size = self.shape.head_size
        speed = self.shape.rope_theta ** (-torch.arange(0, size, 2, dtype=torch.float32) / size)
        angle = torch.arange(heads.shape[1], dtype=torch.float32)[:, None] * speed
        cos, sin = (torch.cat((wave, wave), dim=-1) for wave in (angle.cos(), angle.sin()))
        front, back = heads.chunk(2, dim=-1)
        return heads * cos + torch.cat((-back, front), dim=-1) * sin
