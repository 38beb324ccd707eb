"""A network in NVIDIA's API, with its weights held in memory and a name on every layer that survives the compiler.

Runs in the environment that has NVIDIA's compiler. ``trt`` is NVIDIA's module, ``net`` its INetworkDefinition.
"""

from collections.abc import Sequence
from typing import Any

import ml_dtypes
import numpy as np

LARGE_BYTES = 1 << 16
"""From here on a weight is an input of the network, when weights stay outside."""


class NetworkWriter:
    """Writes one strongly typed network: every tensor has the number format that its author gave it."""

    def __init__(self, trt: Any, builder: Any, *, weights_outside: bool = False) -> None:
        self.trt = trt
        self.net = builder.create_network(1 << int(trt.NetworkDefinitionCreationFlag.STRONGLY_TYPED))
        self.weights_outside = weights_outside
        self.constants: dict[str, np.ndarray] = {}  # the builder reads their memory: they are held here
        self.tensors: dict[str, Any] = {}
        self.types = {
            "float32": trt.float32,
            "bfloat16": trt.bfloat16,
            "float8_e4m3fn": trt.fp8,
            "int8": trt.int8,
            "int32": trt.int32,
            "int64": trt.int64,
        }

    def named(self, layer: Any, name: str) -> Any:
        """Name a layer and its output. Its metadata follow it into whatever kernel it ends up in."""
        if layer is None:
            raise ValueError(f"NVIDIA's API refused the layer {name}")
        layer.name = layer.metadata = name
        out = layer.get_output(0)
        out.name = name
        self.tensors[name] = out
        return out

    def input(self, name: str, dtype: str, shape: Sequence[int]) -> Any:
        """An input; -1 stands for a size that is known only when the engine runs."""
        self.tensors[name] = self.net.add_input(name, self.types[dtype], tuple(shape))
        return self.tensors[name]

    def output(self, tensor: Any, name: str = "") -> None:
        """Make a tensor an output of the network."""
        if name:
            tensor.name = name
        self.net.mark_output(tensor)

    def constant(self, array: np.ndarray, name: str, *, packed: Any = None, shape: Sequence[int] = ()) -> Any:
        """Weights. ``packed``: NVIDIA's type of values smaller than a byte, and then ``shape`` is in values."""
        dtype = packed or self.types[array.dtype.name]
        shape = tuple(shape) or array.shape
        if self.weights_outside and array.nbytes >= LARGE_BYTES:
            self.tensors[name] = self.net.add_input(name, dtype, shape)
            return self.tensors[name]
        self.constants[name] = array = np.ascontiguousarray(array)
        layer = self.net.add_constant(shape, self.trt.Weights(dtype, array.ctypes.data, int(np.prod(shape))))
        return self.named(layer, name)

    def scalar(self, value: float, name: str) -> Any:
        return self.constant(np.array(value, np.float32), name)

    def bf16(self, values: Any, name: str) -> Any:
        """A constant rounded to bfloat16."""
        return self.constant(np.asarray(values).astype(ml_dtypes.bfloat16), name)

    def add(self, a: Any, b: Any, name: str) -> Any:
        return self.named(self.net.add_elementwise(a, b, self.trt.ElementWiseOperation.SUM), name)

    def multiply(self, a: Any, b: Any, name: str) -> Any:
        return self.named(self.net.add_elementwise(a, b, self.trt.ElementWiseOperation.PROD), name)

    def divide(self, a: Any, b: Any, name: str) -> Any:
        return self.named(self.net.add_elementwise(a, b, self.trt.ElementWiseOperation.DIV), name)

    def square_root(self, x: Any, name: str) -> Any:
        return self.named(self.net.add_unary(x, self.trt.UnaryOperation.SQRT), name)

    def mean(self, x: Any, name: str) -> Any:
        """Over the last axis, which stays with size 1."""
        last = 1 << (len(x.shape) - 1)
        return self.named(self.net.add_reduce(x, self.trt.ReduceOperation.AVG, last, True), name)

    def cast(self, x: Any, dtype: str, name: str) -> Any:
        return self.named(self.net.add_cast(x, self.types[dtype]), name)

    def quantize(self, x: Any, scale: float, name: str, dtype: str = "float8_e4m3fn") -> Any:
        """Rounds x / scale to ``dtype``."""
        return self.named(self.net.add_quantize(x, self.scalar(scale, f"{name}_scale"), self.types[dtype]), name)

    def dequantize(self, x: Any, scale: float, name: str) -> Any:
        return self.named(self.net.add_dequantize(x, self.scalar(scale, f"{name}_scale"), self.types["bfloat16"]), name)

    def round_trip(self, x: Any, scale: float, name: str, dtype: str = "float8_e4m3fn") -> Any:
        """Quantize and dequantize: the mark by which the compiler knows that the next product may read FP8."""
        return self.dequantize(self.quantize(x, scale, f"{name}_q", dtype), scale, f"{name}_dq")

    def product(self, x: Any, weight: Any, name: str) -> Any:
        """``x @ weight.T``, as checkpoints store weights: [out, in]."""
        none, turned = self.trt.MatrixOperation.NONE, self.trt.MatrixOperation.TRANSPOSE
        return self.named(self.net.add_matrix_multiply(x, none, weight, turned), name)

    def unsqueeze(self, x: Any, axis: int, name: str) -> Any:
        axes = self.constant(np.array([axis], np.int32), f"{name}.axis")
        return self.named(self.net.add_unsqueeze(x, axes), name)

    def sizes(self, x: Any, axes: Sequence[int | None], fixed: dict[int, int], name: str) -> Any:
        """A shape: the size of x's axis where ``axes`` names one, a number of ``fixed`` elsewhere."""
        source = self.named(self.net.add_shape(x), f"{name}.shape")
        parts = []
        for place, axis in enumerate(axes):
            if axis is None:
                parts.append(self.constant(np.array([fixed[place]], np.int64), f"{name}.{place}"))
            else:
                parts.append(self.named(self.net.add_slice(source, (axis,), (1,), (1,)), f"{name}.{place}"))
        return self.named(self.net.add_concatenation(parts), name)
