"""Kernels of a step from any profiler's file, and what was measured for this project on Hopper GPUs."""
