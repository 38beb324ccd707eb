"""What is true of models, GPUs, instances and prices, whoever asks: each fact once, with a source, in the files here.

Profiles name these facts and hold none; what a release of TensorRT-LLM can do is in :mod:`trtllm_check.releases`.
"""

TRITON_PORTS = (8000, 8001, 8002)
"""HTTP, gRPC and metrics of Triton Inference Server, unless it is told others."""
