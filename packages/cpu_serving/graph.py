"""Neutral Llama weights -> an OpenVINO graph with a stateful KV cache.

The graph is what the Hugging Face export gives: RMSNorm, rotary embedding, ``ScaledDotProductAttention`` over a cache
held in variables. OpenVINO GenAI rewrites exactly that pattern into paged attention when it loads the model.

FP8 weights stay float8_e4m3fn in the file and are multiplied by their scale; FP8 activations and an FP8 KV cache are
``FakeConvert`` nodes: values rounded to float8_e4m3fn with the checkpoint's scale, arithmetic in float32.

Shapes beside the lines: B requests, T new tokens, S past and new ones, H query heads, H_kv key and value heads, D the
size of a head.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from cpu_serving.llama import Layer, Linear, LlamaShape, LlamaWeights, dtype_name
from cpu_serving.runtime import openvino

MASKED = -65504.0  # lowest finite float16: far below any score, and safe in every precision


def build_graph(weights: LlamaWeights, *, fp8_kv_cache: bool, tagged_prompts: bool = False) -> Any:
    """Return the ``openvino.Model``: input_ids, attention_mask, position_ids (batch, length) -> logits float32.

    ``tagged_prompts``: token ids may carry a tag, ``id + tag * vocabulary``, which changes nothing in the logits. The
    runtime finds cached blocks by token ids, so the tag says who may find them: see :mod:`.decoding`.
    """
    return _LlamaGraph(weights, fp8_kv_cache=fp8_kv_cache, tagged_prompts=tagged_prompts).model()


def inverse_frequencies(shape: LlamaShape) -> np.ndarray:
    """Rotary frequencies, float32 (head_size / 2,), stretched as Llama 3.1 does where the checkpoint says so.

    Source: transformers ``modeling_rope_utils._compute_llama3_parameters``.
    """
    exponents = np.arange(0, shape.head_size, 2, dtype=np.float32) / np.float32(shape.head_size)
    inverse: np.ndarray = (1.0 / np.power(np.float32(shape.rope_theta), exponents)).astype(np.float32)
    scaling = shape.rope_scaling
    if scaling is None:
        return inverse
    wavelength = 2 * np.pi / inverse
    longest = scaling.original_max_position_embeddings / scaling.low_freq_factor
    shortest = scaling.original_max_position_embeddings / scaling.high_freq_factor
    smooth = (scaling.original_max_position_embeddings / wavelength - scaling.low_freq_factor) / (
        scaling.high_freq_factor - scaling.low_freq_factor
    )
    between = (1 - smooth) * inverse / scaling.factor + smooth * inverse
    stretched = np.where(wavelength > longest, inverse / scaling.factor, inverse)
    medium = (wavelength <= longest) & (wavelength >= shortest)
    result: np.ndarray = np.where(medium, between, stretched).astype(np.float32)
    return result


class _LlamaGraph:
    """One graph under construction: the nodes that every layer shares, and a method for each block."""

    def __init__(self, weights: LlamaWeights, *, fp8_kv_cache: bool, tagged_prompts: bool) -> None:
        self.ov = openvino()
        self.op = self.ov.opset13
        self.weights = weights
        self.shape = weights.shape
        self.fp8_kv_cache = fp8_kv_cache
        self.tagged_prompts = tagged_prompts
        self.sinks: list[Any] = []
        i64, i32 = self.ov.Type.i64, self.ov.Type.i32
        self.input_ids = self._parameter("input_ids", i64, [-1, -1])
        self.attention_mask = self._parameter("attention_mask", i64, [-1, -1])
        self.position_ids = self._parameter("position_ids", i64, [-1, -1])
        self.beam_idx = self._parameter("beam_idx", i32, [-1])
        self.batch = self._dimension(self.input_ids, 0)
        self.cos, self.sin = self._rotary()
        self.mask = self._causal_mask()

    def model(self) -> Any:
        op = self.op
        x = op.gather(
            self._weight(self.weights.embedding), self._token_ids(), op.constant(np.int32(0))
        )  # [B, T, hidden]
        for number, layer in enumerate(self.weights.layers):
            x = op.add(x, self._attention(self._rms_norm(x, layer.input_norm), layer, number))
            x = op.add(x, self._mlp(self._rms_norm(x, layer.post_norm), layer))
        logits = op.result(self._linear(self._rms_norm(x, self.weights.norm), self.weights.head))  # [B, T, vocabulary]
        logits.output(0).get_tensor().set_names({"logits"})
        inputs = [self.input_ids, self.attention_mask, self.position_ids, self.beam_idx]
        return self.ov.Model([logits], self.sinks, inputs, "llama")

    def _token_ids(self) -> Any:
        if not self.tagged_prompts:
            return self.input_ids
        vocab_size = self.op.constant(np.int64(self.shape.vocab_size))
        return self.op.floor_mod(self.input_ids, vocab_size)

    def _attention(self, x: Any, layer: Layer, number: int) -> Any:
        op, shape = self.op, self.shape
        query = self._rotate(self._heads(self._linear(x, layer.query), shape.num_heads))  # [B, H, T, D]
        key = self._rotate(self._heads(self._linear(x, layer.key), shape.num_kv_heads))  # [B, H_kv, T, D]
        value = self._heads(self._linear(x, layer.value), shape.num_kv_heads)  # [B, H_kv, T, D]
        if self.fp8_kv_cache:
            key = self._round_fp8(key, layer.key_scale or 1.0)
            value = self._round_fp8(value, layer.value_scale or 1.0)
        # GenAI finds the cache of a layer by this spelling of the variable's name.
        key = self._cached(key, f"past_key_values.{number}.keypresent.{number}.key")  # [B, H_kv, S, D]
        value = self._cached(value, f"past_key_values.{number}.valuepresent.{number}.value")  # [B, H_kv, S, D]
        mixed = op.scaled_dot_product_attention(query, self._repeat(key), self._repeat(value), self.mask, causal=False)
        merged = op.transpose(mixed, self._ints(0, 2, 1, 3))  # [B, T, H, D]
        merged = op.reshape(merged, self._ints(0, 0, shape.num_heads * shape.head_size), True)  # [B, T, H * D]
        return self._linear(merged, layer.output)

    def _mlp(self, x: Any, layer: Layer) -> Any:
        op = self.op
        gate, up = self._linear(x, layer.gate), self._linear(x, layer.up)  # [B, T, intermediate] each
        return self._linear(op.multiply(op.swish(gate), up), layer.down)  # [B, T, hidden]

    def _linear(self, x: Any, linear: Linear) -> Any:
        weight = self._weight(linear.weight)  # [out, in]
        if linear.weight_scale is not None:
            weight = self.op.multiply(weight, self.op.constant(np.array([[linear.weight_scale]], np.float32)))
        if linear.input_scale is not None:
            x = self._round_fp8(x, linear.input_scale)
        return self.op.matmul(x, weight, False, True)  # [B, T, in] x [out, in]^T -> [B, T, out]

    def _round_fp8(self, x: Any, scale: float) -> Any:
        """x / scale, rounded to float8_e4m3fn (saturating), times scale."""
        inverse = self.op.constant(np.array(1.0 / scale, np.float32))
        return self.op.fake_convert(x, inverse, destination_type="f8e4m3")

    def _rms_norm(self, x: Any, weight: np.ndarray) -> Any:
        op = self.op
        variance = op.reduce_mean(op.power(x, op.constant(np.float32(2))), self._ints(-1), True)  # [B, T, 1]
        root = op.sqrt(op.add(variance, op.constant(np.float32(self.shape.norm_epsilon))))
        scaled = op.multiply(x, op.divide(op.constant(np.float32(1)), root))
        return op.multiply(op.constant(weight.astype(np.float32).reshape(1, 1, -1)), scaled)

    def _rotary(self) -> tuple[Any, Any]:
        """cos and sin of every position, (batch, 1, length, head_size)."""
        op = self.op
        inverse = op.constant(inverse_frequencies(self.shape).reshape(1, -1, 1))  # [1, D / 2, 1]
        half = self.shape.head_size // 2
        target = op.concat([self.batch, self._ints(half), self._ints(1)], 0)
        positions = op.convert(op.unsqueeze(self.position_ids, self._ints(1)), "f32")  # [B, 1, T]
        angles = op.matmul(op.broadcast(inverse, target), positions, False, False)
        angles = op.transpose(angles, self._ints(0, 2, 1))  # [B, D / 2, T] -> [B, T, D / 2]
        doubled = op.concat([angles, angles], -1)  # [B, T, D]
        return op.unsqueeze(op.cos(doubled), self._ints(1)), op.unsqueeze(op.sin(doubled), self._ints(1))

    def _rotate(self, x: Any) -> Any:
        op, half = self.op, self.shape.head_size // 2
        upper = op.slice(x, self._ints(half), self._ints(2**63 - 1), self._ints(1), self._ints(3))  # [B, H, T, D / 2]
        lower = op.slice(x, self._ints(0), self._ints(half), self._ints(1), self._ints(3))
        minus = op.constant(np.full((1, 1, 1, 1), -1, np.float32))
        turned = op.concat([op.multiply(upper, minus), lower], -1)  # [B, H, T, D]
        return op.add(op.multiply(x, self.cos), op.multiply(turned, self.sin))

    def _heads(self, x: Any, count: int) -> Any:
        """(batch, length, count * head_size) -> (batch, count, length, head_size)."""
        split = self.op.reshape(x, self._ints(0, 0, count, self.shape.head_size), True)
        return self.op.transpose(split, self._ints(0, 2, 1, 3))

    def _repeat(self, x: Any) -> Any:
        """Grouped-query attention: show every KV head to its num_heads / num_kv_heads query heads."""
        op, shape = self.op, self.shape
        if shape.num_heads == shape.num_kv_heads:
            return x
        group = shape.num_heads // shape.num_kv_heads
        sizes = [self._dimension(x, 0), self._ints(shape.num_kv_heads), self._ints(group), self._dimension(x, 2)]
        target = op.concat([*sizes, self._ints(shape.head_size)], 0)
        spread = op.broadcast(op.unsqueeze(x, self._ints(2)), target, "BIDIRECTIONAL")  # [B, H_kv, group, S, D]
        return op.reshape(spread, self._ints(0, shape.num_heads, -1, shape.head_size), True)  # [B, H, S, D]

    def _cached(self, x: Any, name: str) -> Any:
        """Append ``x`` to a variable (batch, KV heads, past length, head_size) and return the whole."""
        op, shape = self.op, self.shape
        util = openvino("openvino.op.util")
        info = util.VariableInfo()
        info.data_shape = self.ov.PartialShape([-1, shape.num_kv_heads, -1, shape.head_size])
        info.data_type = self.ov.Type.f32
        info.variable_id = name
        variable = util.Variable(info)
        empty = op.concat([self.batch, self._ints(shape.num_kv_heads), self._ints(0), self._ints(shape.head_size)], 0)
        start = op.broadcast(op.constant(np.float32(0)), empty)
        past = op.gather(op.read_value(start, variable), self.beam_idx, op.constant(np.int64(0)))
        whole = op.concat([past, x], 2)  # [B, H_kv, S, D]
        self.sinks.append(op.assign(whole, variable))
        return whole

    def _causal_mask(self) -> Any:
        """(batch, 1, length, past + length): 0 where a query may look, else MASKED. Paged attention drops it."""
        op = self.op
        first, one = self._ints(0), op.constant(np.int64(1))
        total = op.squeeze(self._dimension(self.attention_mask, 1), first)
        new = op.squeeze(self._dimension(self.input_ids, 1), first)
        keys = op.unsqueeze(op.range(op.constant(np.int64(0)), total, one, "i64"), first)  # [1, S]
        queries = op.unsqueeze(op.range(op.subtract(total, new), total, one, "i64"), self._ints(1))  # [T, 1]
        causal = op.unsqueeze(op.less_equal(keys, queries), self._ints(0, 1))  # [1, 1, T, S]
        present = op.convert(op.unsqueeze(self.attention_mask, self._ints(1, 2)), "boolean")  # [B, 1, 1, S]
        visible, hidden = op.constant(np.float32(0)), op.constant(np.float32(MASKED))
        return op.select(op.logical_and(causal, present), visible, hidden)

    def _weight(self, array: np.ndarray) -> Any:
        """A constant of the stored dtype, converted to float32 in the graph."""
        name = dtype_name(array)
        types = {"F32": "f32", "F16": "f16", "BF16": "bf16", "F8_E4M3": "f8e4m3"}
        tensor = self.ov.Tensor(getattr(self.ov.Type, types[name]), self.ov.Shape(list(array.shape)))
        tensor.data.view(np.uint8).reshape(-1)[:] = np.ascontiguousarray(array).view(np.uint8).reshape(-1)
        constant = self.ov.op.Constant(tensor)
        return constant if name == "F32" else self.op.convert(constant, "f32")

    def _parameter(self, name: str, dtype: Any, shape: list[int]) -> Any:
        parameter = self.op.parameter(self.ov.PartialShape(shape), dtype, name)
        parameter.set_friendly_name(name)
        parameter.output(0).get_tensor().set_names({name})
        return parameter

    def _dimension(self, x: Any, axis: int) -> Any:
        return self.op.gather(self.op.shape_of(x), self._ints(axis), self._ints(0))

    def _ints(self, *values: int) -> Any:
        return self.op.constant(np.array(values, np.int64))
