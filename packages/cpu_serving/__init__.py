"""Llama-3 in FP8, really served on a CPU: quantization, engine, Triton backend, LMI container, a local SageMaker."""
