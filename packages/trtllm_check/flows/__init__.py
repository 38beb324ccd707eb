"""From engines to PyTorch: what each release offers, the LLM API's options, and three doors to one FP8 checkpoint."""
