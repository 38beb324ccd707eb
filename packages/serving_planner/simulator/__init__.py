"""In-flight batching, simulated step by step."""
