"""Llama as one ONNX file of standard operators: ONNX Runtime answers with it, and NVIDIA's parser compiles it.

Runs in the environment that has NVIDIA's compiler. RMSNormalization, RotaryEmbedding, Attention, and QuantizeLinear and
DequantizeLinear in FP8 are all in ONNX's own set of operators, version 23. Products and cache are in FP16 here. ONNX's
Concat takes no FP8, so the cache is FP8 in value.
"""

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np

from cpu_serving.graph import inverse_frequencies
from cpu_serving.llama import Layer, Linear, LlamaWeights
from serving_base.errors import EnvironmentProblem
from trt_compiler import rtx_answer
from trt_compiler.builds import Ranges
from trt_compiler.environment import FIX

OPERATORS = 23
"""The version of ONNX's set of operators; IR_VERSION is the file format that goes with it."""
IR_VERSION = 11
FLOAT = np.dtype(np.float16)


def onnx_module() -> Any:
    """``onnx``. :class:`EnvironmentProblem` where the environment was made without it and ONNX Runtime."""
    try:
        import onnx
        import onnxruntime
    except ImportError as error:
        raise EnvironmentProblem("the compiler's environment has no ONNX", why=str(error), fix=FIX) from error
    assert onnxruntime
    return onnx


class OnnxLlama:
    """Writes the decoder: tokens, positions and the past in; logits of every token and the grown cache out."""

    def __init__(self, onnx: Any, weights: LlamaWeights, max_seq_len: int) -> None:
        self.helper, self.kinds = onnx.helper, onnx.TensorProto
        self.weights, self.shape, self.max_seq_len = weights, weights.shape, max_seq_len
        self.types = {
            "float16": self.kinds.FLOAT16,
            "float8_e4m3fn": self.kinds.FLOAT8E4M3FN,
            "int64": self.kinds.INT64,
        }
        self.nodes: list[Any] = []
        self.constants: dict[str, Any] = {}
        self.inputs: list[Any] = []
        self.outputs: list[Any] = []

    def model(self) -> Any:
        info, tokens = self.helper.make_tensor_value_info, ["batch", "length"]
        self.inputs = [info(name, self.kinds.INT64, tokens) for name in ("input_ids", "position_ids")]
        angles = np.outer(np.arange(self.max_seq_len, dtype=np.float32), inverse_frequencies(self.shape))
        self.constant("cos", np.cos(angles).astype(FLOAT))
        self.constant("sin", np.sin(angles).astype(FLOAT))
        x = self.node(
            "Gather", [self.constant("embedding", self.weights.embedding.astype(FLOAT)), "input_ids"], "embed"
        )
        for number, layer in enumerate(self.weights.layers):
            at = f"layers.{number}"
            mixed = self.attention(self.norm(x, layer.input_norm, f"{at}.input_norm"), layer, f"{at}.attention")
            x = self.node("Add", [x, mixed], f"{at}.attention.residual")
            mixed = self.mlp(self.norm(x, layer.post_norm, f"{at}.post_norm"), layer, f"{at}.mlp")
            x = self.node("Add", [x, mixed], f"{at}.mlp.residual")
        last = self.linear(self.norm(x, self.weights.norm, "norm"), self.weights.head, "lm_head")
        self.node("Cast", [last], "logits", to=self.kinds.FLOAT)
        self.outputs.insert(0, info("logits", self.kinds.FLOAT, [*tokens, self.shape.vocab_size]))
        constants = list(self.constants.values())
        graph = self.helper.make_graph(self.nodes, "llama", self.inputs, self.outputs, constants)
        opset = self.helper.make_opsetid("", OPERATORS)
        return self.helper.make_model(graph, opset_imports=[opset], ir_version=IR_VERSION)

    def attention(self, x: str, layer: Layer, at: str) -> str:
        shape, parts = self.shape, {}
        heads = {"query": shape.num_heads, "key": shape.num_kv_heads, "value": shape.num_kv_heads}
        for name, count in heads.items():
            size = self.constant(f"heads{count}", np.array([0, 0, count, shape.head_size], np.int64))
            flat = self.linear(x, getattr(layer, name), f"{at}.{name}")
            split = self.node("Reshape", [flat, size], f"{at}.{name}_split")
            parts[name] = self.node("Transpose", [split], f"{at}.{name}_heads", perm=[0, 2, 1, 3])
        for name in ("query", "key"):
            turned = [parts[name], "cos", "sin", "position_ids"]
            parts[name] = self.node("RotaryEmbedding", turned, f"{at}.{name}_rope")
        for name, scale in (("key", layer.key_scale), ("value", layer.value_scale)):
            parts[name] = self.cached(parts[name], scale, f"{at}.{name}")
        mixed = self.node("Attention", [*parts.values(), self.mask()], f"{at}.mix", scale=shape.head_size**-0.5)
        merged = self.node("Transpose", [mixed], f"{at}.merged", perm=[0, 2, 1, 3])
        width = self.constant("width", np.array([0, 0, shape.num_heads * shape.head_size], np.int64))
        return self.linear(self.node("Reshape", [merged, width], f"{at}.context"), layer.output, f"{at}.dense")

    def cached(self, x: str, scale: float | None, name: str) -> str:
        """Append to the past; with a scale, rounded to FP8 before."""
        shape, info = self.shape, self.helper.make_tensor_value_info
        for end, ports, length in (("past", self.inputs, "past"), ("present", self.outputs, "total")):
            sizes = ["batch", shape.num_kv_heads, length, shape.head_size]
            ports.append(info(f"{name}_{end}", self.types[FLOAT.name], sizes))
        new = x if scale is None else self.round_trip(x, scale, name)
        return self.node("Concat", [f"{name}_past", new], f"{name}_present", axis=2)

    def mask(self) -> str:
        """True where a key's place is at most the query's: (batch, 1, length, total)."""
        if not any(node.output[0] == "mask" for node in self.nodes):
            total = self.node("Shape", ["layers.0.attention.key_present"], "total_1", start=2, end=3)
            zero, one = (self.constant(f"int{value}", np.array(value, np.int64)) for value in (0, 1))
            places = self.node("Range", [zero, self.node("Squeeze", [total], "total_0"), one], "places")
            rows = self.node("Unsqueeze", ["position_ids", self.constant("axes", np.array([1, 3], np.int64))], "rows")
            self.node("LessOrEqual", [places, rows], "mask")
        return "mask"

    def mlp(self, x: str, layer: Layer, at: str) -> str:
        gate, up = self.linear(x, layer.gate, f"{at}.gate"), self.linear(x, layer.up, f"{at}.up")
        silu = self.node("Mul", [gate, self.node("Sigmoid", [gate], f"{at}.sigmoid")], f"{at}.silu")
        return self.linear(self.node("Mul", [silu, up], f"{at}.swiglu"), layer.down, f"{at}.down")

    def linear(self, x: str, weights: Linear, name: str) -> str:
        stored = np.ascontiguousarray(weights.weight.T)
        if weights.weight_scale is None:
            weight = self.constant(f"{name}.weight", stored.astype(FLOAT))
        else:
            scale = self.constant(f"{name}.weight_scale", np.array(weights.weight_scale, FLOAT))
            weight = self.node(
                "DequantizeLinear", [self.constant(f"{name}.weight", stored), scale], f"{name}.weight_dq"
            )
        if weights.input_scale is not None:
            x = self.round_trip(x, weights.input_scale, f"{name}.input")
        return self.node("MatMul", [x, weight], name)

    def round_trip(self, x: str, scale: float, name: str) -> str:
        zero = self.constant("zero8", np.zeros((), ml_dtypes.float8_e4m3fn))
        step = self.constant(f"{name}_scale", np.array(scale, FLOAT))
        low = self.node("QuantizeLinear", [x, step, zero], f"{name}_q")
        return self.node("DequantizeLinear", [low, step], f"{name}_dq")

    def norm(self, x: str, gain: np.ndarray, name: str) -> str:
        given = [x, self.constant(f"{name}.weight", gain.astype(FLOAT))]
        return self.node("RMSNormalization", given, name, axis=-1, epsilon=self.shape.norm_epsilon)

    def constant(self, name: str, array: np.ndarray) -> str:
        if name not in self.constants:
            data = np.ascontiguousarray(array).tobytes()
            self.constants[name] = self.helper.make_tensor(
                name, self.types[array.dtype.name], array.shape, data, raw=True
            )
        return name

    def node(self, kind: str, inputs: Sequence[str], name: str, **attributes: Any) -> str:
        self.nodes.append(self.helper.make_node(kind, list(inputs), [name], name=name, **attributes))
        return name


def write(weights: LlamaWeights, path: Path, max_seq_len: int) -> dict[str, int]:
    """Write the file, after ONNX's own checker has passed it. Operator -> how many nodes of it."""
    onnx = onnx_module()
    model = OnnxLlama(onnx, weights, max_seq_len).model()
    onnx.checker.check_model(model, full_check=True)
    onnx.save(model, path)
    if outside := {node.domain for node in model.graph.node} - {""}:
        raise ValueError(f"operators that are not ONNX's own: {outside}")
    return dict(Counter(node.op_type for node in model.graph.node))


def greedy(path: Path, prompt: Sequence[int], steps: int, stop: int) -> list[int]:
    """At most ``steps`` tokens by ONNX Runtime on the processor, each the likeliest; ends with ``stop``."""
    onnx_module()
    return rtx_answer.greedy(rtx_answer.cpu_session(str(path)), list(prompt), steps, stop)[0]


def parse(trt: Any, writer: Any, log: Any, path: Path) -> Ranges:
    """Read the file into the writer's empty network by NVIDIA's own parser, and give the ranges of its open sizes."""
    parser = trt.OnnxParser(writer.net, log)
    if not parser.parse_from_file(str(path)):
        first = parser.get_error(0)
        raise ValueError(f"NVIDIA's parser stops at {first.node_name()} ({first.node_operator()}): {first.desc()}")
    found: dict[str, tuple[Sequence[int], Sequence[int], Sequence[int]]] = {}
    for place in range(writer.net.num_inputs):
        tensor = writer.net.get_input(place)
        ends = (0, 128, 1024) if tensor.name.endswith("_past") else (1, 64, 512)
        small, usual, large = (
            [size if size != -1 else batch if axis == 0 else end for axis, size in enumerate(tensor.shape)]
            for batch, end in zip((1, 4, 8), ends, strict=True)
        )
        found[tensor.name] = small, usual, large
    return found
