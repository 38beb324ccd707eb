"""What a chapter may see of attention: the kernels as facts, the ways measured, the paged cache counted."""

from cpu_serving.attention import compare_attention
from cpu_serving.paging import Ask, CacheLaboratory, prompt
from trtllm_check.attention import AttentionCase, context_kernel, generation_kernel, head_size_table, support

__all__ = [
    "Ask",
    "AttentionCase",
    "CacheLaboratory",
    "compare_attention",
    "context_kernel",
    "generation_kernel",
    "head_size_table",
    "prompt",
    "support",
]
