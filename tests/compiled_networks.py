"""Compiled networks made by hand, for tests that need no compiler."""

from collections.abc import Sequence

from trt_compiler.steps import Compilation, CompiledStep, StepTensor

AT = "layers.1"


def kernel(
    *written: str, kind: str = "kgen", reads: str = "BF16", writes: str = "BF16", name: str = "k"
) -> CompiledStep:
    """A step that reads and writes one matrix."""
    given = StepTensor("in", (8, 64), reads)
    return CompiledStep(name, kind, (given,), (), (StepTensor("out", (8, 64), writes),), written)


def compilation(steps: Sequence[CompiledStep], *, engine_bytes: int = 1000, refusal: str = "") -> Compilation:
    """A network of the layers that the steps took."""
    written = tuple(dict.fromkeys(name for step in steps for name in step.written))
    return Compilation(written, tuple(steps), engine_bytes, 100, 0.1, refusal)


def fp8_layer(at: str = AT) -> list[CompiledStep]:
    """As the compiler makes one in FP8: the residual add goes with the norm and the rounding."""
    return [
        kernel(f"{at}.attention.dense", kind="gemm", reads="FP8"),
        kernel(f"{at}.attention.residual", f"{at}.post_norm.mean", f"{at}.mlp.up.input_q", writes="FP8"),
        kernel(f"{at}.mlp.gate", f"{at}.mlp.up", kind="gemm", reads="FP8"),
    ]


def bf16_layer(at: str = AT) -> list[CompiledStep]:
    """As the compiler makes one in BF16: the GEMM adds the residual."""
    return [
        kernel(f"{at}.attention.dense", f"{at}.attention.residual", kind="runtime_fusion"),
        kernel(f"{at}.post_norm.mean"),
        kernel(f"{at}.mlp.gate", f"{at}.mlp.up", kind="gemm"),
    ]
