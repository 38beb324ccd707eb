"""Measurements: quality of a model here, load and kernels in later chapters."""
