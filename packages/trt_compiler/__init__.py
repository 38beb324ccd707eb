"""NVIDIA's TensorRT-RTX compiler without a GPU: Llama in its network API, compiled in a process of its own."""
