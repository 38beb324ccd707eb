"""Operations of our own in OpenVINO: a name, a shape rule, attributes that are stored, and a kernel in numpy.

What TensorRT-LLM calls a plugin. OpenVINO takes a Python class for it (``openvino.Op``, since 2024.5) and calls its
``evaluate`` when the graph runs; the class here is made from an :class:`Operation`, which is data.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import numpy as np

from cpu_serving.runtime import openvino
from serving_base.errors import EngineError, UsageError

FLOAT32 = {"INFERENCE_PRECISION_HINT": "f32", "KV_CACHE_PRECISION": "f32"}
INT8_MAX = 127
Shape = Sequence[Any]
"""The dimensions of a tensor, as numbers or as OpenVINO's ``Dimension`` where they are known only at run time."""


@dataclass(frozen=True)
class Operation:
    """``kernel(*arrays, **attributes)`` gives the one output, float32; ``shape(*shapes)`` its shape, from the inputs'.

    ``attributes``: name -> default. A node keeps its own values, and they are stored with the graph, unless
    ``stored`` is False: then a graph that is read again has the defaults, and nothing says so.
    """

    name: str
    kernel: Callable[..., np.ndarray]
    shape: Callable[..., Shape]
    attributes: Mapping[str, float | bool] = field(default_factory=dict)
    stored: bool = True


def rms_norm(x: np.ndarray, gain: np.ndarray, epsilon: float) -> np.ndarray:
    """x / sqrt(mean(x^2) + epsilon) * gain over the last axis; x [..., hidden], gain [hidden]. arXiv 1910.07467."""
    mean = np.mean(np.square(x, dtype=np.float32), axis=-1, keepdims=True)  # [..., 1]
    scaled: np.ndarray = x / np.sqrt(mean + np.float32(epsilon)) * gain
    return scaled


def quantize_per_token(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """INT8 values and the scale of each row: x [..., in] -> int8 [..., in], float32 [..., 1]; x ~ values * scales."""
    scales = np.abs(x).max(axis=-1, keepdims=True) / np.float32(INT8_MAX)
    scales = np.where(scales == 0, np.float32(1), scales)
    return _round(x / scales), scales


def smooth_quant_gemm(
    x: np.ndarray,
    smoothing: np.ndarray,
    weight: np.ndarray,
    weight_scale: np.ndarray,
    per_token: bool,
    input_scale: float,
) -> np.ndarray:
    """x W^T with INT8 factors: x [..., in] is divided by ``smoothing`` [in] and rounded; the output is float32.

    ``weight`` int8 [out, in] holds round(W * smoothing / weight_scale); ``weight_scale`` [out]. ``per_token``: each
    row of x has a scale of its own, found here; else all have ``input_scale``, found by calibration.
    The sums are exact: float64 holds each integer below 2^53, where INT32 is what a GPU adds in.
    """
    smoothed = x / smoothing
    if per_token:
        values, scales = quantize_per_token(smoothed)
    else:
        values, scales = _round(smoothed / np.float32(input_scale)), np.full((1,), input_scale, np.float32)
    sums = values.astype(np.float64) @ weight.astype(np.float64).T  # [..., out], integers
    result: np.ndarray = (sums * scales * weight_scale).astype(np.float32)
    return result


RMS_NORM = Operation("RmsNorm", rms_norm, lambda x, gain: x, {"epsilon": 1e-6})
SMOOTH_QUANT_GEMM = Operation(
    "SmoothQuantGemm",
    smooth_quant_gemm,
    lambda x, smoothing, weight, weight_scale: [*x[:-1], weight[0]],
    {"per_token": True, "input_scale": 1.0},
)


SQUARE = Operation("Square", lambda x: np.square(x), lambda x: x)
"""A part of RMSNorm as an operation of its own: a wall in the middle of a pattern."""


@cache
def _python_type(name: str, stored: bool) -> Any:
    """The class of all operations of this name; which kernel a node runs is looked up when it runs."""
    ov = openvino()

    def start(self: Any, inputs: Sequence[Any] | None = None, **attributes: float | bool) -> None:
        ov.Op.__init__(self, self)
        self.values = dict(_KERNELS[name].attributes) | attributes
        if inputs is not None:
            self.set_arguments(inputs)
            self.constructor_validate_and_infer_types()

    def validate(self: Any) -> None:
        shapes = [list(self.get_input_partial_shape(index)) for index in range(self.get_input_size())]
        self.set_output_type(0, ov.Type.f32, ov.PartialShape(list(_KERNELS[name].shape(*shapes))))

    def clone(self: Any, inputs: Sequence[Any]) -> Any:
        return made(inputs, **self.values)

    def evaluate(self: Any, outputs: Sequence[Any], inputs: Sequence[Any]) -> bool:
        operation = _KERNELS[name]
        result = operation.kernel(*(tensor.data for tensor in inputs), **self.values)
        told = tuple(int(size) for size in operation.shape(*(list(tensor.shape) for tensor in inputs)))
        if result.shape != told:
            raise EngineError(
                f"{name} gave {result.shape}, its shape rule says {told}",
                why="the compiler has planned memory for the rule's shape",
                fix="mend the kernel or the rule",
            )
        outputs[0].shape = result.shape
        outputs[0].data[:] = result
        return True

    def visit(self: Any, visitor: Any) -> bool:
        if stored:
            visitor.on_attributes(self.values)
        return True

    body = {
        "__init__": start,
        "validate_and_infer_types": validate,
        "clone_with_new_inputs": clone,
        "evaluate": evaluate,
        "has_evaluate": lambda self: True,
        "visit_attributes": visit,
    }
    made: Any = type(name, (ov.Op,), body)
    return made


_KERNELS: dict[str, Operation] = {}
"""Name -> the operation whose kernel runs now: OpenVINO knows operations by name alone, as it does in a file."""


def python_type(operation: Operation) -> Any:
    """OpenVINO's class for ``operation``: ``core.add_extension`` takes it, and calling it makes a node.

    Of two operations of one name the last one counts, for nodes made before it, too.
    """
    _KERNELS[operation.name] = operation
    return _python_type(operation.name, operation.stored)


def run_operation(operation: Operation, *arrays: np.ndarray, **attributes: float | bool) -> np.ndarray:
    """One node of ``operation`` between inputs and an output of unknown lengths, compiled and run once; float32."""
    ov = openvino()
    op, made = ov.opset13, python_type(operation)
    parameters = [op.parameter([-1] * array.ndim, array.dtype) for array in arrays]
    node = made([parameter.output(0) for parameter in parameters], **attributes)
    compiled = ov.Core().compile_model(ov.Model([op.result(node)], parameters, operation.name), "CPU", FLOAT32)
    try:
        return np.array(compiled(list(arrays))[0])
    except RuntimeError as error:
        raise EngineError(
            f"{operation.name} did not run", why=str(error), fix="call its kernel with the arrays"
        ) from error


def int8_weight(weight: np.ndarray, smoothing: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """W [out, in] -> int8 [out, in] of W * smoothing, and one scale for each output channel, float32 [out]."""
    smoothed = weight.astype(np.float32) * smoothing
    values, scales = quantize_per_token(smoothed)
    return values, scales[:, 0]


def smoothing_factors(activation: np.ndarray, weight: np.ndarray, alpha: float) -> np.ndarray:
    """s_j = max|x_j|^alpha / max|W_j|^(1 - alpha) of each input channel, float32 [in]; equation 4 of arXiv 2211.10438.

    ``activation``: the largest of each channel, [in]; ``weight`` [out, in]. alpha 0 leaves the whole range to the
    activations, 1 to the weights.
    """
    if not 0 <= alpha <= 1:
        raise UsageError(f"alpha {alpha}", why="it shares a range out between two factors", fix="use 0 to 1")
    largest = np.abs(weight.astype(np.float32)).max(axis=0)
    smallest = np.float32(1e-5)
    factors: np.ndarray = np.maximum(activation, smallest) ** alpha / np.maximum(largest, smallest) ** (1 - alpha)
    return factors.astype(np.float32)


def _round(x: np.ndarray) -> np.ndarray:
    values: np.ndarray = np.clip(np.rint(x), -INT8_MAX, INT8_MAX).astype(np.int8)
    return values
