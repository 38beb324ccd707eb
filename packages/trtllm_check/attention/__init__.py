"""Which attention kernel runs, in which phase, and why."""

from trtllm_check.attention.facts import (
    first_fused,
    first_fused_table,
    fmha_rows,
    read_at,
    readings,
    rows_per_release,
    support,
    xqa_rows,
)
from trtllm_check.attention.kernels import (
    NOT_READ,
    AttentionCase,
    KernelChoice,
    context_kernel,
    generation_kernel,
)
from trtllm_check.attention.page import kernels_page, release_tables

__all__ = [
    "NOT_READ",
    "AttentionCase",
    "KernelChoice",
    "context_kernel",
    "first_fused",
    "first_fused_table",
    "fmha_rows",
    "generation_kernel",
    "kernels_page",
    "read_at",
    "readings",
    "release_tables",
    "rows_per_release",
    "support",
    "xqa_rows",
]
