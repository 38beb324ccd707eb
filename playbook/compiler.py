"""What a chapter may see of NVIDIA's compiler: the bench, the kernels of a decoder layer, the formats."""

from trt_compiler.bench import open_compiler
from trt_compiler.environment import absence
from trt_compiler.fusion import decoder_layer, kernel_rows, kernels_with, role, together, written_layers
from trt_compiler.planted import differences, rotary_base, without_setting

__all__ = [
    "absence",
    "decoder_layer",
    "differences",
    "kernel_rows",
    "kernels_with",
    "open_compiler",
    "role",
    "rotary_base",
    "together",
    "without_setting",
    "written_layers",
]
