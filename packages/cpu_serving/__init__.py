"""Llama-3 in FP8 computed on a CPU: quantization, checkpoint, graph, and an engine with in-flight batching."""
