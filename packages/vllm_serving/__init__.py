"""vLLM as an engine: found, built and run in a process of its own environment. Nothing of the course is imported."""
