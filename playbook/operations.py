"""What a chapter may see of operations of one's own: kernels, nodes in the graph, the plugin's road, planted faults."""

from dataclasses import replace as replace

from cpu_serving.custom_graph import RunningGraph as RunningGraph
from cpu_serving.custom_graph import difference as difference
from cpu_serving.custom_graph import largest_inputs as largest_inputs
from cpu_serving.custom_graph import nodes_of as nodes_of
from cpu_serving.custom_graph import open_bench as open_bench
from cpu_serving.custom_graph import paged_tokens as paged_tokens
from cpu_serving.custom_graph import read_graph as read_graph
from cpu_serving.custom_graph import replace_linears as replace_linears
from cpu_serving.custom_graph import replace_norms as replace_norms
from cpu_serving.custom_graph import replace_squares as replace_squares
from cpu_serving.custom_graph import same_tokens as same_tokens
from cpu_serving.custom_mistakes import GEMM_MISTAKES as GEMM_MISTAKES
from cpu_serving.custom_mistakes import NORM_MISTAKES as NORM_MISTAKES
from cpu_serving.custom_operations import RMS_NORM as RMS_NORM
from cpu_serving.custom_operations import SMOOTH_QUANT_GEMM as SMOOTH_QUANT_GEMM
from cpu_serving.custom_operations import SQUARE as SQUARE
from cpu_serving.custom_operations import Operation as Operation
from cpu_serving.custom_operations import run_operation as run_operation
from trtllm_check.plugins import plugin_generator as plugin_generator
from trtllm_check.plugins import plugin_parts as plugin_parts
from trtllm_check.plugins import plugin_sources as plugin_sources
from trtllm_check.plugins import pytorch_operation as pytorch_operation
from trtllm_check.releases.history import ranges as ranges
from trtllm_check.releases.history import with_flag as with_flag
