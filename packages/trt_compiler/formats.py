"""One linear layer in each number format: which GPU does the compiler take it for, and as which kernels?

Runs in the environment that has NVIDIA's compiler. Each function writes what stands before the product.
"""

from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import ml_dtypes
import numpy as np

from trt_compiler.builds import build, start
from trt_compiler.steps import Compilation
from trt_compiler.writer import NetworkWriter

WIDTH = 4096
"""Inputs and outputs of the layer: those of Llama-3-8B's dense projection."""
GROUP = 128
"""INT4 weights that share a scale (AWQ's usual group); NVFP4 has 16 by its definition."""
Operands = tuple[Any, Any]


@cache
def random_weight() -> np.ndarray:
    """The same [out, in] for every format."""
    return np.random.default_rng(0).standard_normal((WIDTH, WIDTH), np.float32)


@cache
def _narrow(dtype: str) -> np.ndarray:
    exact = random_weight()
    if dtype == "int8":
        exact = np.clip(exact * 30, -127, 127)
    narrow: np.ndarray = exact.astype(np.int8 if dtype == "int8" else np.dtype(getattr(ml_dtypes, dtype)))
    return narrow


def _per_channel(w: NetworkWriter, dtype: str) -> Any:
    """A weight with a scale for each output."""
    layer = w.net.add_dequantize(
        w.constant(_narrow(dtype), "weight"),
        w.constant(np.full(WIDTH, 0.02, np.float32), "weight_scales"),
        w.types["bfloat16"],
    )
    layer.axis = 0
    return w.named(layer, "weight_dq")


def _in_groups(w: NetworkWriter, packed: Any, scales: Any) -> Any:
    """A weight of four bits a value, with a scale for each group of them."""
    values = np.random.default_rng(0).integers(0, 256, WIDTH * WIDTH // 2, np.uint8)
    weight = w.constant(values, "weight", packed=packed, shape=(WIDTH, WIDTH))
    return w.named(w.net.add_dequantize(weight, scales, w.types["bfloat16"]), "weight_dq")


def bf16(w: NetworkWriter, x: Any) -> Operands:
    return x, w.constant(_narrow("bfloat16"), "weight")


def fp8(w: NetworkWriter, x: Any) -> Operands:
    """Weights and activations in FP8, one scale for each: what this course builds."""
    weight = w.dequantize(w.constant(_narrow("float8_e4m3fn"), "weight"), 0.02, "weight_dq")
    return w.round_trip(x, 0.01, "input"), weight


def fp8_per_channel(w: NetworkWriter, x: Any) -> Operands:
    return w.round_trip(x, 0.01, "input"), _per_channel(w, "float8_e4m3fn")


def fp8_weight_only(w: NetworkWriter, x: Any) -> Operands:
    return x, w.dequantize(w.constant(_narrow("float8_e4m3fn"), "weight"), 0.02, "weight_dq")


def int8_smoothquant(w: NetworkWriter, x: Any) -> Operands:
    """Weights and activations in INT8: one scale for the activations, one a channel for the weights."""
    return w.round_trip(x, 0.05, "input", "int8"), _per_channel(w, "int8")


def int8_weight_only(w: NetworkWriter, x: Any) -> Operands:
    return x, _per_channel(w, "int8")


def int4_awq(w: NetworkWriter, x: Any) -> Operands:
    scales = w.bf16(np.full((WIDTH, WIDTH // GROUP), 0.05), "weight_scales")
    return x, _in_groups(w, w.trt.int4, scales)


def nvfp4(w: NetworkWriter, x: Any) -> Operands:
    """4-bit floats with an FP8 scale for 16 of them; activations rounded while the engine runs."""
    top = w.scalar(0.01, "top_scale")
    dynamic = w.net.add_dynamic_quantize(x, 1, 16, w.trt.fp4, w.trt.fp8)
    dynamic.set_input(1, top)
    dynamic.name = dynamic.metadata = "input_q"
    scale = w.named(w.net.add_dequantize(dynamic.get_output(1), top, w.types["bfloat16"]), "input_scale")
    low = w.named(w.net.add_dequantize(dynamic.get_output(0), scale, w.types["bfloat16"]), "input_dq")
    stored = w.constant(np.full((WIDTH, WIDTH // 16), 1.0, ml_dtypes.float8_e4m3fn), "weight_scales")
    scales = w.named(w.net.add_dequantize(stored, top, w.types["bfloat16"]), "weight_scales_dq")
    return low, _in_groups(w, w.trt.fp4, scales)


FORMATS: dict[str, Callable[[NetworkWriter, Any], Operands]] = {
    "BF16": bf16,
    "FP8": fp8,
    "FP8, scale per channel": fp8_per_channel,
    "FP8 weight-only": fp8_weight_only,
    "INT8 SmoothQuant": int8_smoothquant,
    "INT8 weight-only": int8_weight_only,
    "INT4 AWQ": int4_awq,
    "NVFP4": nvfp4,
}


def compile_format(trt: Any, name: str, targets: Sequence[str]) -> Compilation:
    """One linear layer in the format ``name`` for ``targets``."""
    builder, writer = start(trt)
    x = writer.input("x", "bfloat16", (-1, WIDTH))
    writer.output(writer.product(*FORMATS[name](writer, x), "product"), "y")
    return build(trt, builder, writer, {"x": ((1, WIDTH), (16, WIDTH), (2048, WIDTH))}, targets)
