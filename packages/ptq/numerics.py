"""What a number format does to a tensor: rounding to FP8 and INT8 with one scale, and the noise that it adds."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from serving_base.errors import UsageError

if TYPE_CHECKING:
    from torch import Tensor

INT8_MAX = 127


def round_fp8(x: Tensor, amax: float | None = None) -> Tensor:
    """``x`` through float8_e4m3fn with one scale, amax / 448; float32. ``amax`` None: that of ``x``."""
    import torch

    largest = torch.finfo(torch.float8_e4m3fn).max
    scale = _scale(x, amax, largest)
    return (x.float() / scale).clamp(-largest, largest).to(torch.float8_e4m3fn).float() * scale


def round_int8(x: Tensor, amax: float | None = None) -> Tensor:
    """``x`` through symmetric INT8 with one scale, amax / 127; float32."""
    scale = _scale(x, amax, INT8_MAX)
    return (x.float() / scale).round().clamp(-INT8_MAX, INT8_MAX) * scale


def float8_values(kind: str) -> list[float]:
    """Every finite value from zero up that ``"e4m3fn"`` or ``"e5m2"`` can hold, ascending: all bit patterns, read."""
    import torch

    patterns = torch.arange(128, dtype=torch.uint8)  # the sign bit is clear
    values = patterns.view(getattr(torch, f"float8_{kind}")).float()
    return sorted(float(value) for value in values[values.isfinite()])


def sqnr_db(x: Tensor, rounded: Tensor) -> float:
    """Signal to quantization noise ratio: 10 log10(sum x^2 / sum (x - rounded)^2) in dB; infinite when equal."""
    noise = float((x.double() - rounded.double()).square().sum())
    return math.inf if noise == 0 else 10 * math.log10(float(x.double().square().sum()) / noise)


def add_outliers(model: Any, factor: int, channels: Sequence[int]) -> None:
    """Give a Llama outlier channels in place, without changing what it computes.

    Every RMSNorm inside a layer gets its weights of ``channels`` multiplied by ``factor``, and the linear layers behind
    it get those input columns divided by it. ``factor`` must be a power of two: then nothing is rounded.
    """
    import torch

    if factor < 1 or factor & (factor - 1):
        raise UsageError(f"factor {factor} is not a power of two", why="other factors round the weights", fix="use 256")
    index = list(channels)
    with torch.no_grad():
        for layer in model.model.layers:
            attention, mlp = layer.self_attn, layer.mlp
            behind = (
                (layer.input_layernorm, (attention.q_proj, attention.k_proj, attention.v_proj)),
                (layer.post_attention_layernorm, (mlp.gate_proj, mlp.up_proj)),
            )
            for norm, projections in behind:
                norm.weight[index] *= factor
                for projection in projections:
                    projection.weight[:, index] /= factor


def layer_input(model: Any, name: str, ids: Sequence[int]) -> Tensor:
    """What the submodule ``name`` (``"model.layers.0.mlp.down_proj"``) is fed for ``ids``; float32 (len(ids), in)."""
    import torch

    seen: list[Tensor] = []
    hook = model.get_submodule(name).register_forward_pre_hook(lambda _, inputs: seen.append(inputs[0]))
    try:
        with torch.inference_mode():
            model(input_ids=torch.tensor([list(ids)]), use_cache=False)
    finally:
        hook.remove()
    return seen[0][0].float()


def _scale(x: Tensor, amax: float | None, largest: float) -> float:
    amax = float(x.abs().max()) if amax is None else amax
    return amax / largest if amax else 1.0
