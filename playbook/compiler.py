"""What a chapter may see of NVIDIA's compiler: the bench, the kernels of a decoder layer, the formats."""

from trt_compiler.bench import open_compiler as open_compiler
from trt_compiler.environment import absence as absence
from trt_compiler.fusion import decoder_layer as decoder_layer
from trt_compiler.fusion import kernel_rows as kernel_rows
from trt_compiler.fusion import kernels_with as kernels_with
from trt_compiler.fusion import role as role
from trt_compiler.fusion import together as together
from trt_compiler.fusion import written_layers as written_layers
from trt_compiler.planted import differences as differences
from trt_compiler.planted import rotary_base as rotary_base
from trt_compiler.planted import without_setting as without_setting
