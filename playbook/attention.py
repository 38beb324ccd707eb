"""What a chapter may see of attention: the kernels as facts, the ways measured, the paged cache counted."""

from cpu_serving.attention import compare_attention
from cpu_serving.paging import Ask, CacheLaboratory, prompt
from gpu_measurements.attention import measured_attention, plain_floor_us
from trtllm_check.attention import (
    AttentionCase,
    context_kernel,
    first_fused,
    first_fused_table,
    generation_kernel,
    release_tables,
)

__all__ = [
    "Ask",
    "AttentionCase",
    "CacheLaboratory",
    "compare_attention",
    "context_kernel",
    "first_fused",
    "first_fused_table",
    "generation_kernel",
    "measured_attention",
    "plain_floor_us",
    "prompt",
    "release_tables",
]
