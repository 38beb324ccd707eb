"""The lane of machines with NVIDIA GPUs: recipes executed in the release's containers."""
