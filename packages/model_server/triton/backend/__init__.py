"""The ``tensorrtllm`` backend of the embedded lane: OpenVINO GenAI behind TensorRT-LLM's tensors."""
