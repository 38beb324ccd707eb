"""TensorRT-LLM's own tools and server, run for a deployment: natively, or in the release's containers."""
