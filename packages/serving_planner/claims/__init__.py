"""Claimed speeds against what the hardware can do."""
