"""What is true of models, GPUs, instances and prices, whoever asks: each fact once, with a source, in the files here.

Profiles name these facts and hold none; what a release of TensorRT-LLM can do is in :mod:`trtllm_check.releases`.
"""
