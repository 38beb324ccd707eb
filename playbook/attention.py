"""What a chapter may see of attention: the kernels as facts, the ways measured, the paged cache counted."""

from cpu_serving.attention import compare_attention as compare_attention
from cpu_serving.paging import Ask as Ask
from cpu_serving.paging import CacheLaboratory as CacheLaboratory
from cpu_serving.paging import prompt as prompt
from gpu_measurements.hopper import measured_attention as measured_attention
from gpu_measurements.hopper import plain_floor_us as plain_floor_us
from trtllm_check.attention import AttentionCase as AttentionCase
from trtllm_check.attention import context_kernel as context_kernel
from trtllm_check.attention import first_fused as first_fused
from trtllm_check.attention import first_fused_table as first_fused_table
from trtllm_check.attention import generation_kernel as generation_kernel
from trtllm_check.attention import release_tables as release_tables
