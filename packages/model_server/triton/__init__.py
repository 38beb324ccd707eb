"""The real Triton Inference Server on a CPU, with a model repository in the shape of inflight_batcher_llm."""
