"""The lane of vLLM: the same stages with vLLM's engine, on NVIDIA GPUs, or on a CPU with its CPU build."""
