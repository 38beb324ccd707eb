"""What the compiler fused: which kernels a decoder layer became, what each does, and where a written layer went."""

import re
from collections.abc import Sequence

from trt_compiler.steps import Compilation, CompiledStep

_OF_LAYER = re.compile(r"^layers\.(\d+)\.")
_PARTS = (  # the written layer that shows a part of the model
    (r"residual$", "residual add"),
    (r"norm\.mean$", "RMSNorm"),
    (r"_rope$", "RoPE"),
    (r"_present$", "KV cache update"),
    (r"swiglu$", "SwiGLU"),
    (r"masked$", "mask"),
    (r"softmax$", "softmax"),
    (r"context$", "heads side by side"),
    (r"embed$", "embedding"),
)
_PRODUCT = re.compile(r"(?:^|\.)(qkv|dense|gate|up|down|lm_head|product|scores|mix_grouped)$")
_PLAIN = {"scores": "Q K^T", "mix_grouped": "softmax V"}
_ROUNDED = re.compile(r"_q$")


def decoder_layer(compiled: Compilation, number: int) -> list[CompiledStep]:
    """The kernels of decoder layer ``number``. One that spans two layers counts for the later one."""

    def owner(step: CompiledStep) -> int:
        return max((int(match[1]) for name in step.written if (match := _OF_LAYER.match(name))), default=-1)

    return [step for step in compiled.kernels if owner(step) == number]


def written_layers(compiled: Compilation, number: int) -> list[str]:
    """The layers of the network of one decoder layer, by name: constants and scales with the others."""
    return [name for name in compiled.written if name.startswith(f"layers.{number}.")]


def role(step: CompiledStep) -> str:
    """What a kernel does, in the words of the model, from the names of the layers written into it."""
    products = sorted({_PLAIN.get(match[1], match[1]) for name in step.written if (match := _PRODUCT.search(name))})
    parts = [part for pattern, part in _PARTS if any(re.search(pattern, name) for name in step.written)]
    if products:
        residual = " + residual add" if "residual add" in parts else ""
        return f"GEMM {' and '.join(products)}{residual}"
    if "mha" in step.name:
        return "attention"
    rounds = ["rounding to FP8"] if any(_ROUNDED.search(name) for name in step.written) else []
    if not parts and any(name.endswith(".mix") for name in step.written):
        parts = ["K or V repeated for each query head"]
    return " + ".join([*parts, *rounds]) or "layout"


def kernel_rows(steps: Sequence[CompiledStep]) -> list[dict[str, str | int]]:
    """A table of kernels in the order of the engine."""
    return [
        {
            "kernel": role(step),
            "NVIDIA's kind": step.kind,
            "reads": step.reads,
            "writes": step.writes,
            "written layers in it": len(step.written),
        }
        for step in steps
    ]


def kernels_with(compiled: Compilation, layer: str) -> list[CompiledStep]:
    """The kernels into which the written ``layer`` went; none where the compiler removed it."""
    return [step for step in compiled.kernels if layer in step.written]


def together(compiled: Compilation, first: str, second: str) -> bool:
    """Whether one kernel took both written layers."""
    return any(second in step.written for step in kernels_with(compiled, first))
