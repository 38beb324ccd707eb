"""Kernels with one fault each, as they are written by mistake. No shape is wrong, and nothing raises an error."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from cpu_serving.custom_operations import rms_norm, smooth_quant_gemm

Kernel = Callable[..., np.ndarray]


def _no_epsilon(x: np.ndarray, gain: np.ndarray, epsilon: float) -> np.ndarray:
    return rms_norm(x, gain, 0 * epsilon)


def _wrong_axis(x: np.ndarray, gain: np.ndarray, epsilon: float) -> np.ndarray:
    scaled: np.ndarray = x / np.sqrt(np.mean(np.square(x), axis=-2, keepdims=True) + np.float32(epsilon)) * gain
    return scaled


def _layer_norm(x: np.ndarray, gain: np.ndarray, epsilon: float) -> np.ndarray:
    return rms_norm(x - x.mean(axis=-1, keepdims=True), gain, epsilon)


def _no_gain(x: np.ndarray, gain: np.ndarray, epsilon: float) -> np.ndarray:
    return rms_norm(x, np.ones_like(gain), epsilon)


NORM_MISTAKES: Mapping[str, Kernel] = {
    "epsilon is forgotten": _no_epsilon,
    "the mean goes over the tokens": _wrong_axis,
    "the mean is subtracted (LayerNorm)": _layer_norm,
    "the gain is left out": _no_gain,
}


def _swapped(x: Any, smoothing: Any, weight: Any, weight_scale: Any, per_token: bool, input_scale: float) -> np.ndarray:
    return smooth_quant_gemm(x, weight_scale, weight, smoothing, per_token, input_scale)


def _multiplied(
    x: Any, smoothing: Any, weight: Any, weight_scale: Any, per_token: bool, input_scale: float
) -> np.ndarray:
    return smooth_quant_gemm(x, 1 / smoothing, weight, weight_scale, per_token, input_scale)


def _no_weight_scale(
    x: Any, smoothing: Any, weight: Any, weight_scale: Any, per_token: bool, input_scale: float
) -> np.ndarray:
    return smooth_quant_gemm(x, smoothing, weight, np.ones_like(weight_scale), per_token, input_scale)


GEMM_MISTAKES: Mapping[str, Kernel] = {
    "smoothing and weight scale are swapped": _swapped,
    "x is multiplied by the smoothing": _multiplied,
    "the weight scale is left out": _no_weight_scale,
}
