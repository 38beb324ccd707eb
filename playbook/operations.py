"""What a chapter may see of operations of one's own: kernels, nodes in the graph, the plugin's road, planted faults."""

from dataclasses import replace

from cpu_serving.custom_graph import (
    RunningGraph,
    difference,
    largest_inputs,
    nodes_of,
    open_bench,
    paged_tokens,
    read_graph,
    replace_linears,
    replace_norms,
    replace_squares,
    same_tokens,
)
from cpu_serving.custom_mistakes import GEMM_MISTAKES, NORM_MISTAKES
from cpu_serving.custom_operations import RMS_NORM, SMOOTH_QUANT_GEMM, SQUARE, Operation, run_operation
from trtllm_check.plugins import plugin_generator, plugin_parts, plugin_sources, pytorch_operation
from trtllm_check.releases.history import ranges, with_flag

__all__ = [
    "GEMM_MISTAKES",
    "NORM_MISTAKES",
    "RMS_NORM",
    "SMOOTH_QUANT_GEMM",
    "SQUARE",
    "Operation",
    "RunningGraph",
    "difference",
    "largest_inputs",
    "nodes_of",
    "open_bench",
    "paged_tokens",
    "plugin_generator",
    "plugin_parts",
    "plugin_sources",
    "pytorch_operation",
    "ranges",
    "read_graph",
    "replace",
    "replace_linears",
    "replace_norms",
    "replace_squares",
    "run_operation",
    "same_tokens",
    "with_flag",
]
