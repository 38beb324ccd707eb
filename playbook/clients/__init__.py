"""Thin typed clients of the served model."""
