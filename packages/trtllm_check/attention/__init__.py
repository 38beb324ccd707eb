"""Which attention kernel runs, in which phase, and why."""

from trtllm_check.attention.kernels import (
    NOT_READ,
    AttentionCase,
    KernelChoice,
    context_kernel,
    generation_kernel,
    head_size_table,
    support,
)

__all__ = [
    "NOT_READ",
    "AttentionCase",
    "KernelChoice",
    "context_kernel",
    "generation_kernel",
    "head_size_table",
    "support",
]
