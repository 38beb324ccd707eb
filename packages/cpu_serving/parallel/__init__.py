"""A Llama over several processes: cut by torch.distributed's gloo into tensors and stages, every send counted."""
