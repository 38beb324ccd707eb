"""A Llama over several processes: tensor and pipeline parallelism by torch.distributed's gloo, with every send counted."""
