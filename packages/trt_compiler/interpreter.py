"""A written network, computed by numpy: every tensor of it by name, on a machine where its engine cannot run.

Each layer alone, in float32 rounded to the layer's own number format. The compiled engine fuses, so it rounds less
often: the two agree in tokens, not in the last digits. Runs in the environment that has NVIDIA's compiler.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import ml_dtypes
import numpy as np

BF16, FP8 = ml_dtypes.bfloat16, ml_dtypes.float8_e4m3fn
FP8_MAX = 448.0


class NetworkInterpreter:
    """The layers of ``network`` in the order of their data. ``constants``: the values behind its constant layers."""

    def __init__(self, trt: Any, network: Any, constants: Mapping[str, np.ndarray]) -> None:
        self.trt, self.constants = trt, constants
        self.types = {
            trt.bfloat16: BF16,
            trt.fp8: FP8,
            trt.float32: np.float32,
            trt.int8: np.int8,
            trt.int32: np.int32,
            trt.int64: np.int64,
            trt.bool: np.bool_,
        }
        self.kinds: dict[str, str] = {}
        self.layers = self._in_order(network)

    def run(self, inputs: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Every tensor by name, inputs first. :class:`NotImplementedError` at a layer that this does not know."""
        values = dict(inputs)
        for layer in self.layers:
            kind, out = self.kinds[layer.name], layer.get_output(0)
            given = [layer.get_input(place) for place in range(layer.num_inputs)]
            read = [None if tensor is None else values[tensor.name] for tensor in given]
            result = self.constants[out.name] if kind == "CONSTANT" else self._method(kind)(layer, *read)
            # A dequantized value stays exact: the compiler multiplies the scales into the product instead.
            values[out.name] = result if kind == "DEQUANTIZE" else rounded(result, self.types[out.dtype])
        return values

    def _in_order(self, network: Any) -> list[Any]:
        """Layers stand in the order of their creation, which need not be that of their data."""
        waiting = [self._typed(network.get_layer(place)) for place in range(network.num_layers)]
        made = {network.get_input(place).name for place in range(network.num_inputs)}
        ordered: list[Any] = []
        while waiting:
            later = []
            for layer in waiting:
                given = [layer.get_input(place) for place in range(layer.num_inputs)]
                if all(tensor is None or tensor.name in made for tensor in given):
                    made.add(layer.get_output(0).name)
                    ordered.append(layer)
                else:
                    later.append(layer)
            if len(later) == len(waiting):
                raise ValueError(f"no layer makes what {waiting[0].name} reads")
            waiting = later
        return ordered

    def _typed(self, layer: Any) -> Any:
        """The bindings hand out the base class: give the layer back its own, with its attributes."""
        trt = self.trt
        own = {
            "ELEMENTWISE": trt.IElementWiseLayer,
            "GATHER": trt.IGatherLayer,
            "REDUCE": trt.IReduceLayer,
            "UNARY": trt.IUnaryLayer,
            "SLICE": trt.ISliceLayer,
            "SHUFFLE": trt.IShuffleLayer,
            "CONCATENATION": trt.IConcatenationLayer,
            "SOFTMAX": trt.ISoftMaxLayer,
            "MATRIX_MULTIPLY": trt.IMatrixMultiplyLayer,
            "ACTIVATION": trt.IActivationLayer,
            "NORMALIZATION": trt.INormalizationLayer,
        }
        kind = self.kinds[layer.name] = layer.type.name  # an activation's own ``type`` hides it afterwards
        layer.__class__ = own.get(kind, type(layer))
        return layer

    def _method(self, kind: str) -> Callable[..., np.ndarray]:
        method = getattr(self, f"_{kind.lower()}", None)
        if method is None:
            raise NotImplementedError(f"a layer of the kind {kind} is not computed here")
        found: Callable[..., np.ndarray] = method
        return found

    def _elementwise(self, layer: Any, a: np.ndarray, b: np.ndarray) -> np.ndarray:
        op = self.trt.ElementWiseOperation
        functions: dict[Any, Callable[..., np.ndarray]] = {
            op.SUM: np.add,
            op.SUB: np.subtract,
            op.PROD: np.multiply,
            op.DIV: np.divide,
            op.GREATER: np.greater,
        }
        return functions[layer.op](wide(a), wide(b))

    def _gather(self, layer: Any, data: np.ndarray, at: np.ndarray) -> np.ndarray:
        if layer.mode == self.trt.GatherMode.ND:  # with one batch dimension: data[b, at[b]]
            return np.asarray(data[np.arange(len(data)), at[:, 0]])
        return np.take(data, at, layer.axis)

    def _reduce(self, layer: Any, x: np.ndarray) -> np.ndarray:
        axes = tuple(axis for axis in range(x.ndim) if layer.axes >> axis & 1)
        return np.asarray(wide(x).mean(axes, keepdims=layer.keep_dims))

    def _unary(self, layer: Any, x: np.ndarray) -> np.ndarray:
        op = self.trt.UnaryOperation
        functions: dict[Any, Callable[..., np.ndarray]] = {op.SQRT: np.sqrt, op.RECIP: np.reciprocal, op.EXP: np.exp}
        return functions[layer.op](wide(x))

    def _activation(self, layer: Any, x: np.ndarray) -> np.ndarray:
        if layer.type != self.trt.ActivationType.SIGMOID:
            raise NotImplementedError("of the activations only the sigmoid is computed here")
        return np.asarray(1 / (1 + np.exp(-wide(x))))

    def _normalization(self, layer: Any, x: np.ndarray, gain: np.ndarray, bias: np.ndarray) -> np.ndarray:
        axes = tuple(axis for axis in range(x.ndim) if layer.axes >> axis & 1)
        centred = wide(x) - wide(x).mean(axes, keepdims=True)
        deviation = np.sqrt((centred**2).mean(axes, keepdims=True) + layer.epsilon)
        return np.asarray(centred / deviation * wide(gain) + wide(bias))

    def _quantize(self, _: Any, x: np.ndarray, scale: np.ndarray) -> np.ndarray:
        return np.asarray(wide(x) / wide(scale))

    def _dequantize(self, _: Any, x: np.ndarray, scale: np.ndarray) -> np.ndarray:
        return np.asarray(wide(x) * wide(scale))

    def _cast(self, _: Any, x: np.ndarray) -> np.ndarray:
        return wide(x)

    def _matrix_multiply(self, layer: Any, a: np.ndarray, b: np.ndarray) -> np.ndarray:
        turned = self.trt.MatrixOperation.TRANSPOSE
        left = np.swapaxes(wide(a), -1, -2) if layer.op0 == turned else wide(a)
        return np.asarray(left @ (np.swapaxes(wide(b), -1, -2) if layer.op1 == turned else wide(b)))

    def _shape(self, _: Any, x: np.ndarray) -> np.ndarray:
        return np.array(x.shape, np.int64)

    def _slice(self, layer: Any, x: np.ndarray, _start: Any = None, size: Any = None, *_: Any) -> np.ndarray:
        sizes = tuple(layer.shape) if size is None else size
        return x[tuple(slice(first, first + int(count)) for first, count in zip(layer.start, sizes, strict=True))]

    def _concatenation(self, layer: Any, *parts: np.ndarray) -> np.ndarray:
        return np.concatenate(parts, layer.axis)

    def _shuffle(self, layer: Any, x: np.ndarray, sizes: np.ndarray | None = None) -> np.ndarray:
        x = x.transpose(tuple(layer.first_transpose)[: x.ndim])
        wanted = [int(size) for size in (layer.reshape_dims if sizes is None else sizes)]
        x = x.reshape([x.shape[axis] if size == 0 else size for axis, size in enumerate(wanted)])
        return x.transpose(tuple(layer.second_transpose)[: x.ndim])

    def _unsqueeze(self, _: Any, x: np.ndarray, axes: np.ndarray) -> np.ndarray:
        return np.expand_dims(x, tuple(int(axis) for axis in axes))

    def _select(self, _: Any, condition: np.ndarray, yes: np.ndarray, no: np.ndarray) -> np.ndarray:
        return np.where(condition, yes, no)

    def _softmax(self, layer: Any, x: np.ndarray) -> np.ndarray:
        return softmax(wide(x), layer.axes.bit_length() - 1)

    def _rotary_embedding(self, _: Any, x: np.ndarray, cos: np.ndarray, sin: np.ndarray, at: np.ndarray) -> np.ndarray:
        c, s = wide(cos)[at][:, None], wide(sin)[at][:, None]
        low, high = np.split(wide(x), 2, -1)
        return np.concatenate([low * c - high * s, high * c + low * s], -1)

    def _kv_cache_update(self, _: Any, cache: np.ndarray, update: np.ndarray, first: np.ndarray) -> np.ndarray:
        present = cache.copy()
        for row, place in enumerate(first):
            present[row, :, place : place + update.shape[2]] = update[row].astype(cache.dtype)
        return present

    def _attention_input(self, _: Any, query: np.ndarray, key: np.ndarray, value: np.ndarray, *more: Any) -> np.ndarray:
        q, k, v = wide(query), wide(key), wide(value)
        lengths = more[3] if len(more) > 3 and more[3] is not None else np.full(len(q), k.shape[2])
        k, v = (np.repeat(array, q.shape[1] // array.shape[1], axis=1) for array in (k, v))
        row, column = np.arange(q.shape[2])[:, None], np.arange(k.shape[2])[None]
        seen = column[None] <= row[None] + lengths[:, None, None] - q.shape[2]  # the last query sees every key
        scores = np.where(seen[:, None], q @ np.swapaxes(k, -1, -2), -np.inf)
        return np.asarray(softmax(scores, -1) @ v)

    def _attention_output(self, _: Any, x: np.ndarray) -> np.ndarray:
        return x


def wide(array: np.ndarray) -> np.ndarray:
    """bfloat16 and FP8 as float32; everything else as it is."""
    return array.astype(np.float32) if array.dtype in (BF16, FP8, np.int8) else array


def rounded(array: np.ndarray, dtype: Any) -> np.ndarray:
    """FP8 saturates at 448, as a quantizer does."""
    if dtype == FP8 and array.dtype != FP8:
        array = np.clip(array.astype(np.float32), -FP8_MAX, FP8_MAX)
    if dtype == np.int8 and array.dtype != np.int8:
        array = np.clip(np.rint(array), -128, 127)
    return np.asarray(array).astype(dtype)


def softmax(x: np.ndarray, axis: int) -> np.ndarray:
    powers = np.exp(x - x.max(axis, keepdims=True))
    return np.asarray(powers / powers.sum(axis, keepdims=True))


def empty_caches(interpreter: NetworkInterpreter, network: Any) -> dict[str, np.ndarray]:
    """The caches of one request, before its first token."""
    inputs = [network.get_input(place) for place in range(network.num_inputs)]
    return {
        tensor.name: np.zeros((1, *tuple(tensor.shape)[1:]), interpreter.types[tensor.dtype])
        for tensor in inputs
        if tensor.name.endswith("_cache")
    }


def step_inputs(tokens: Sequence[int], past: int) -> dict[str, np.ndarray]:
    """What one request's step reads beside the caches."""
    count = len(tokens)
    return {
        "input_ids": np.array([tokens], np.int32),
        "position_ids": np.arange(past, past + count, dtype=np.int32)[None],
        "key_value_lengths": np.array([past + count], np.int32),
        "write_indices": np.array([past], np.int32),
        "last_token": np.array([[count - 1]], np.int32),
    }


def one_step(interpreter: NetworkInterpreter, network: Any, tokens: Sequence[int]) -> dict[str, np.ndarray]:
    """Every tensor of the step that reads a prompt."""
    return interpreter.run({**step_inputs(tokens, 0), **empty_caches(interpreter, network)})


def greedy(interpreter: NetworkInterpreter, network: Any, prompt: Sequence[int], steps: int, stop: int) -> list[int]:
    """At most ``steps`` tokens, each the likeliest; ends with ``stop``. The caches go from step to step."""
    caches, past, answer = empty_caches(interpreter, network), 0, list[int]()
    tokens = list(prompt)
    while len(answer) < steps and (not answer or answer[-1] != stop):
        values = interpreter.run({**step_inputs(tokens, past), **caches})
        caches = {name: values[name.removesuffix("_cache") + "_present"] for name in caches}
        past += len(tokens)
        tokens = [int(values["logits"].argmax(-1)[0])]
        answer += tokens
    return answer
