"""Llama written in NVIDIA's network API, out of the weights that the embedded lane reads.

As TensorRT-LLM builds it: one product for Q, K and V, quantize and dequantize around every FP8 product, values
rounded to FP8 before the KV cache where the checkpoint says so, one attention layer over the cache. Shapes beside the
lines: B requests, S tokens of this step, T tokens of the cache, H heads, D their size. Source of the layers' meaning:
https://docs.nvidia.com/deeplearning/tensorrt/latest/inference-library/work-with-transformers.html
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import ml_dtypes
import numpy as np

from cpu_serving.graph import inverse_frequencies
from cpu_serving.llama import Layer, Linear, LlamaShape, LlamaWeights
from trt_compiler.builds import Ranges
from trt_compiler.writer import NetworkWriter


@dataclass(frozen=True)
class NetworkOptions:
    """What one experiment changes. ``rope_theta`` 0: the checkpoint's own."""

    max_batch_size: int = 8
    max_input_len: int = 1024
    max_seq_len: int = 2048
    attention: str = "fused"  # or "primitive": two products and a softmax
    rope_theta: float = 0.0
    outputs: tuple[str, ...] = ()  # tensors to look at: each becomes an output of the network
    weights: str = "inside"  # or "outside": the large ones are inputs, and the engine holds none of them


def rms_norm(writer: NetworkWriter, x: Any, gain: np.ndarray, epsilon: float, name: str) -> Any:
    """``x / sqrt(mean(x^2) + epsilon) * gain``, in float32 as transformers computes it, from eight primitive layers."""
    rank = len(x.shape)
    wide = writer.cast(x, "float32", f"{name}.wide")
    mean = writer.mean(writer.multiply(wide, wide, f"{name}.square"), f"{name}.mean")
    small = writer.constant(np.full((1,) * rank, epsilon, np.float32), f"{name}.epsilon")
    root = writer.square_root(writer.add(mean, small, f"{name}.variance"), f"{name}.root")
    narrow = writer.cast(writer.divide(wide, root, f"{name}.scaled"), "bfloat16", f"{name}.narrow")
    return writer.multiply(narrow, writer.bf16(gain.reshape((1,) * (rank - 1) + (-1,)), f"{name}.weight"), name)


def linear(writer: NetworkWriter, x: Any, weights: Linear, name: str) -> Any:
    """``x @ weight.T``; FP8 weights and inputs are dequantized before it, which makes it one FP8 GEMM."""
    array = weights.weight.reshape((1,) * (len(x.shape) - 2) + weights.weight.shape)
    weight = writer.constant(array, f"{name}.weight")
    if weights.weight_scale is not None:
        weight = writer.dequantize(weight, weights.weight_scale, f"{name}.weight_dq")
    if weights.input_scale is not None:
        x = writer.round_trip(x, weights.input_scale, f"{name}.input")
    return writer.product(x, weight, name)


class LlamaNetwork:
    """The whole decoder with a KV cache of ``max_seq_len`` tokens and the logits of each request's last token."""

    def __init__(self, writer: NetworkWriter, weights: LlamaWeights, options: NetworkOptions) -> None:
        self.writer, self.weights, self.options = writer, weights, options
        self.shape: LlamaShape = weights.shape
        if options.rope_theta:
            self.shape = replace(weights.shape, rope_theta=options.rope_theta)
        if options.weights == "outside" and not writer.weights_outside:
            raise ValueError("weights outside want a writer that leaves them there")

    def write(self) -> None:
        w, shape = self.writer, self.shape
        ids = w.input("input_ids", "int32", (-1, -1))
        self.positions = w.input("position_ids", "int32", (-1, -1))
        self.lengths = w.input("key_value_lengths", "int32", (-1,))  # [B], with this step's tokens
        self.first = w.input("write_indices", "int32", (-1,))  # [B], where this step's tokens go in the cache
        angles = np.outer(np.arange(self.options.max_seq_len, dtype=np.float32), inverse_frequencies(shape))
        self.cos, self.sin = w.bf16(np.cos(angles), "rope_cos"), w.bf16(np.sin(angles), "rope_sin")
        x = w.named(w.net.add_gather(w.constant(self.weights.embedding, "embedding"), ids, 0), "embed")
        for number, layer in enumerate(self.weights.layers):
            x = self.decoder_layer(x, layer, f"layers.{number}")
        w.output(self.logits(x), "logits")
        for name in self.options.outputs:
            if name not in w.tensors:
                known = ", ".join(sorted(one for one in w.tensors if one.startswith("layers.0."))[:12])
                raise ValueError(f"no tensor is called {name}; there are {known}, ...")
            w.output(w.tensors[name])

    def decoder_layer(self, x: Any, layer: Layer, at: str) -> Any:
        w, epsilon = self.writer, self.shape.norm_epsilon
        x = w.add(
            x,
            self.attention(rms_norm(w, x, layer.input_norm, epsilon, f"{at}.input_norm"), layer, f"{at}.attention"),
            f"{at}.attention.residual",
        )
        mixed = self.mlp(rms_norm(w, x, layer.post_norm, epsilon, f"{at}.post_norm"), layer, f"{at}.mlp")
        return w.add(x, mixed, f"{at}.mlp.residual")

    def logits(self, x: Any) -> Any:
        w = self.writer
        gather = w.net.add_gather_v2(x, w.input("last_token", "int32", (-1, 1)), w.trt.GatherMode.ND)
        gather.num_elementwise_dims = 1
        x = rms_norm(w, w.named(gather, "last_hidden"), self.weights.norm, self.shape.norm_epsilon, "norm")
        return w.cast(linear(w, x, self.weights.head, "lm_head"), "float32", "logits")

    def attention(self, x: Any, layer: Layer, at: str) -> Any:
        w, shape = self.writer, self.shape
        size, heads, kv_heads = shape.head_size, shape.num_heads, shape.num_kv_heads
        merged = replace(layer.query, weight=self.joined(layer.query.weight, layer.key.weight, layer.value.weight))
        qkv = linear(w, x, merged, f"{at}.qkv")
        query, key, value = (
            self.split(qkv, first * size, count, f"{at}.{name}")
            for name, first, count in (("q", 0, heads), ("k", heads, kv_heads), ("v", heads + kv_heads, kv_heads))
        )
        query, key = self.rotate(query, f"{at}.q_rope"), self.rotate(key, f"{at}.k_rope")
        key = self.cached(key, layer.key_scale, f"{at}.key")
        value = self.cached(value, layer.value_scale, f"{at}.value")
        scale = w.bf16(np.full((1, 1, 1, 1), size**-0.5), f"{at}.scale")  # NVIDIA's attention layer has none
        query = w.multiply(query, scale, f"{at}.q_scaled")
        mix = self.mix_fused if self.options.attention == "fused" else self.mix_primitive
        turned = w.net.add_shuffle(mix(query, key, value, at))
        turned.first_transpose = w.trt.Permutation([0, 2, 1, 3])
        turned.reshape_dims = w.trt.Dims([0, 0, heads * size])
        return linear(w, w.named(turned, f"{at}.context"), layer.output, f"{at}.dense")

    def mix_fused(self, query: Any, key: Any, value: Any, at: str) -> Any:
        """NVIDIA's attention layer over the cache. It must become one kernel, or the build fails."""
        w, trt = self.writer, self.writer.trt
        softmax, causal = trt.AttentionNormalizationOp.SOFTMAX, trt.CausalMaskKind.LOWER_RIGHT
        layer = w.net.add_attention_v2(query, key, value, softmax, causal)
        layer.name = layer.metadata = f"{at}.mix"
        layer.decomposable = False
        layer.key_value_lengths = self.lengths
        out = layer.get_output(0)
        out.name = f"{at}.mix"
        w.tensors[out.name] = out
        return out

    def mix_primitive(self, query: Any, key: Any, value: Any, at: str) -> Any:
        """softmax(Q K^T + mask) V, one layer for each sign of it; the query heads in groups: (B, H_kv, G, S, D)."""
        w, trt, shape = self.writer, self.writer.trt, self.shape
        none, turned = trt.MatrixOperation.NONE, trt.MatrixOperation.TRANSPOSE
        group = shape.num_heads // shape.num_kv_heads
        grouped = w.net.add_shuffle(query)
        sizes = w.sizes(query, [0, None, None, 2, 3], {1: shape.num_kv_heads, 2: group}, f"{at}.grouped_sizes")
        grouped.set_input(1, sizes)
        q = w.named(grouped, f"{at}.q_grouped")
        k, v = w.unsqueeze(key, 2, f"{at}.k_grouped"), w.unsqueeze(value, 2, f"{at}.v_grouped")
        scores = w.named(w.net.add_matrix_multiply(q, none, k, turned), f"{at}.scores")
        masked = w.add(w.cast(scores, "float32", f"{at}.scores_wide"), self.mask(), f"{at}.masked")
        softmax = w.net.add_softmax(masked)
        softmax.axes = 1 << 4
        shares = w.cast(w.named(softmax, f"{at}.softmax"), "bfloat16", f"{at}.shares")
        flat = w.net.add_shuffle(w.named(w.net.add_matrix_multiply(shares, none, v, none), f"{at}.mix_grouped"))
        flat.set_input(1, w.sizes(query, [0, 1, 2, 3], {}, f"{at}.flat_sizes"))
        return w.named(flat, f"{at}.mix")

    def mask(self) -> Any:
        """0 where a key is not later than the query, else -1e9: (B, 1, 1, S, T)."""
        w = self.writer
        if "mask" in w.tensors:
            return w.tensors["mask"]
        places = w.constant(np.arange(self.options.max_seq_len, dtype=np.int32).reshape(1, 1, 1, 1, -1), "mask.places")
        queries = self.positions
        for number, axis in enumerate((1, 1, 4)):
            queries = w.unsqueeze(queries, axis, f"mask.queries{number}")
        later = w.named(w.net.add_elementwise(places, queries, w.trt.ElementWiseOperation.GREATER), "mask.later")
        low, zero = (
            w.constant(np.full((1,) * 5, value, np.float32), f"mask.{name}")
            for name, value in (("low", -1e9), ("zero", 0.0))
        )
        return w.named(w.net.add_select(later, low, zero), "mask")

    def mlp(self, x: Any, layer: Layer, at: str) -> Any:
        """SwiGLU: silu(gate(x)) * up(x), gate and up written as two products."""
        w = self.writer
        gate, up = linear(w, x, layer.gate, f"{at}.gate"), linear(w, x, layer.up, f"{at}.up")
        sigmoid = w.named(w.net.add_activation(gate, w.trt.ActivationType.SIGMOID), f"{at}.sigmoid")
        swiglu = w.multiply(w.multiply(gate, sigmoid, f"{at}.silu"), up, f"{at}.swiglu")
        return linear(w, swiglu, layer.down, f"{at}.down")

    def split(self, qkv: Any, first: int, count: int, name: str) -> Any:
        """``count`` heads from column ``first`` on: (B, count, S, D)."""
        w, width = self.writer, count * self.shape.head_size
        layer = w.net.add_slice(qkv, (0, 0, first), (0, 0, width), (1, 1, 1))
        layer.set_input(2, w.sizes(qkv, [0, 1, None], {2: width}, f"{name}.sizes"))
        heads = w.net.add_shuffle(w.named(layer, name))
        heads.reshape_dims = w.trt.Dims([0, 0, count, self.shape.head_size])
        heads.second_transpose = w.trt.Permutation([0, 2, 1, 3])
        return w.named(heads, f"{name}_heads")

    def rotate(self, x: Any, name: str) -> Any:
        layer = self.writer.net.add_rotary_embedding(x, self.cos, self.sin, False, 0)
        layer.set_input(3, self.positions)
        return self.writer.named(layer, name)

    def cached(self, x: Any, scale: float | None, name: str) -> Any:
        """Write ``x`` into the cache in place and return all of it. FP8: rounded before; the layer takes no FP8."""
        w, shape = self.writer, self.shape
        past = w.input(f"{name}_cache", "bfloat16", (-1, shape.num_kv_heads, self.options.max_seq_len, shape.head_size))
        if shape.kv_cache_quant_algo == "FP8":
            x = w.round_trip(x, scale or 1.0, name)
        update = w.net.add_kv_cache_update(past, x, self.first, w.trt.KVCacheMode.LINEAR)
        present = w.named(update, f"{name}_present")
        w.output(present)
        return present

    def joined(self, *arrays: np.ndarray) -> np.ndarray:
        """Weights below each other. Outside, only their shape counts, and no memory is taken."""
        if self.options.weights == "outside":
            rows = sum(len(array) for array in arrays)
            return np.broadcast_to(arrays[0].reshape(-1)[0], (rows, *arrays[0].shape[1:]))
        return np.concatenate(arrays)


def ranges(writer: NetworkWriter, options: NetworkOptions) -> Ranges:
    """Smallest, usual and largest shape of each input with open sizes: requests, and tokens of a step."""
    batches = (1, min(4, options.max_batch_size), options.max_batch_size)
    tokens = (1, min(128, options.max_input_len), options.max_input_len)
    found: dict[str, tuple[Sequence[int], Sequence[int], Sequence[int]]] = {}
    for place in range(writer.net.num_inputs):
        tensor = writer.net.get_input(place)
        sizes = tuple(tensor.shape)
        if -1 in sizes:
            small, usual, large = (
                (batch, *(count if size == -1 else size for size in sizes[1:]))
                for batch, count in zip(batches, tokens, strict=True)
            )
            found[tensor.name] = small, usual, large
    return found


def shape_only(shape: LlamaShape) -> LlamaWeights:
    """Weights without memory for a network whose weights stay outside: every value is the same zero."""
    fp8 = shape.quant_algo == "FP8"

    def array(dtype: Any, *sizes: int) -> np.ndarray:
        return np.broadcast_to(np.zeros((), dtype), sizes)

    def matrix(rows: int, columns: int) -> Linear:
        dtype = ml_dtypes.float8_e4m3fn if fp8 else ml_dtypes.bfloat16
        return Linear(array(dtype, rows, columns), *((0.01, 0.01) if fp8 else (None, None)))

    hidden, wide, size = shape.hidden_size, shape.intermediate_size, shape.head_size
    gain = array(ml_dtypes.bfloat16, hidden)
    layer = Layer(
        input_norm=gain,
        post_norm=gain,
        query=matrix(shape.num_heads * size, hidden),
        key=matrix(shape.num_kv_heads * size, hidden),
        value=matrix(shape.num_kv_heads * size, hidden),
        output=matrix(hidden, shape.num_heads * size),
        gate=matrix(wide, hidden),
        up=matrix(wide, hidden),
        down=matrix(hidden, wide),
        key_scale=0.01,
        value_scale=0.01,
    )
    embedding = array(ml_dtypes.bfloat16, shape.vocab_size, hidden)
    layers: Sequence[Layer] = (layer,) * shape.num_layers
    return LlamaWeights(shape, embedding, tuple(layers), gain, Linear(embedding))
