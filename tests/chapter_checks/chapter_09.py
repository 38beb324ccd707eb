"""Chapter 09: values that its checks accept, and values that they refuse."""

from typing import Any

import pandas as pd

from chapter_cells import Case
from gpu_measurements import kernels

GEMM = "sm90_xmma_gemm_e4m3bf16_e4m3f32_f32_tn_n_tilesize64x64x128"
ATTENTION = "kernel_mha"
QUANTIZE = "void tensorrt_llm::common::scaleMatrixPerTensorVec<true, float>"
LAYERS = 80
"""Of the profile p5, whose one prompt runs on eight GPUs."""


def table(*rows: tuple[str, int, float]) -> pd.DataFrame:
    return kernels.kernel_table(pd.DataFrame(rows, columns=["kernel", "calls", "total_us"]), phase="decode")


def live(*own: tuple[str, int, float], other: str = GEMM) -> dict[str, Any]:
    """One decode step of this machine beside a BF16 engine's, which runs the kernel ``other``."""
    tables = {"decode": {"this machine": table(*own), "H200 BF16": table((other, 4, 9.0))}}
    found = kernels.StepTables(tables, ("this machine",), {"decode": 1}, like=False, remark="")  # type: ignore[arg-type]
    return {"live": found, "kernels": kernels}


STEP = ((GEMM, 4 * LAYERS, 900.0), (ATTENTION, LAYERS, 90.0))
UNKNOWN = ("a_kernel_that_nobody_named", 9, 300.0)


def gains(server: float) -> dict[str, Any]:
    return {"ratios": [{"users": 32, "decode step": 1.23, "prefill": 1.65, "server, tokens/s": server}]}


BETWEEN = "the server gains at least what a decode step gains, and at most what a prefill does"

CASES = [
    Case("09-server-b", BETWEEN, gains(1.4), gains(1.1)),
    Case("09-server-b", BETWEEN, gains(1.23), gains(1.7)),
    Case(
        "09-28",
        "decode, this machine: every layer ran its attention",
        live(*STEP),
        live((GEMM, 4, 900.0), (ATTENTION, 1, 90.0)),
        profile="p5",
    ),
    Case(
        "09-28",
        "decode, this machine: nine tenths of the time are classified",
        live(*STEP),
        live(*STEP, UNKNOWN),
        profile="p5",
    ),
    Case("09-28", "no engine in BF16 quantizes", live(*STEP), live(*STEP, other=QUANTIZE), profile="p5"),
]
