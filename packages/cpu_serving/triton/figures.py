"""The figures that the tensorrtllm backend shows on /metrics, by their published names."""

import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from cpu_serving.protocol import EngineStats

LENGTH_BUCKETS = (10.0, 50.0, 100.0, 500.0, 1000.0)

Reading = Callable[[EngineStats, int], float]
"""From the engine's figures and the prompt tokens still without an answer."""

GAUGES: dict[str, tuple[str, dict[str, Reading]]] = {
    "nv_trt_llm_request_metrics": (
        "request_type",
        {
            "active": lambda stats, context: stats.active,
            "max": lambda stats, context: stats.max_active,
            "scheduled": lambda stats, context: stats.scheduled,
            "context": lambda stats, context: stats.context,
            "waiting": lambda stats, context: stats.waiting,
        },
    ),
    "nv_trt_llm_runtime_memory_metrics": (
        "memory_type",
        {
            "cpu": lambda stats, context: _resident_bytes(),
            "gpu": lambda stats, context: 0,
            "pinned": lambda stats, context: 0,
        },
    ),
    "nv_trt_llm_kv_cache_block_metrics": (
        "kv_cache_block_type",
        {
            "max": lambda stats, context: stats.kv_blocks_max,
            "free": lambda stats, context: stats.kv_blocks_free,
            "used": lambda stats, context: stats.kv_blocks_used,
            "tokens_per": lambda stats, context: stats.tokens_per_block,
            "fraction": lambda stats, context: stats.kv_blocks_used / stats.kv_blocks_max,
        },
    ),
    "nv_trt_llm_inflight_batcher_metrics": (
        "inflight_batcher_specific_metric",
        {
            "total_context_tokens": lambda stats, context: context,
            "generation_requests": lambda stats, context: stats.generation,
            "paused_requests": lambda stats, context: 0,
            "micro_batch_id": lambda stats, context: 0,
        },
    ),
    "nv_trt_llm_general_metrics": (
        "general_type",
        {
            "iteration_counter": lambda stats, context: stats.steps,
            "timestamp": lambda stats, context: int(time.time() * 1e6),
        },
    ),
}
"""Family -> label, and how each of its label's values is read off the engine. What it does not measure is left out."""

HISTOGRAMS = {
    "nv_llm_input_token_len": ("response_metric_type", "total_input_tokens"),
    "nv_llm_output_token_len": ("response_metric_type", "total_output_tokens"),
}


def _resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


class Figures:
    """Gauges and histograms of one model. ``pb`` is Triton's module, which only the stub has."""

    def __init__(self, pb: Any, model: str, version: str) -> None:
        labels = {"model": model, "version": version}
        self._families: list[Any] = []
        self._gauges: list[tuple[Any, Reading]] = []
        for name, (label, readings) in GAUGES.items():
            family = self._family(pb, name, pb.MetricFamily.GAUGE)
            for value, read in readings.items():
                self._gauges.append((family.Metric(labels={**labels, label: value}), read))
        self._prompt, self._answer = [
            self._family(pb, name, pb.MetricFamily.HISTOGRAM).Metric(
                labels={**labels, label: value}, buckets=list(LENGTH_BUCKETS)
            )
            for name, (label, value) in HISTOGRAMS.items()
        ]

    def _family(self, pb: Any, name: str, kind: Any) -> Any:
        family = pb.MetricFamily(name=name, description=f"{name} of the embedded engine", kind=kind)
        self._families.append(family)
        return family

    def observe(self, stats: EngineStats, context_tokens: int) -> None:
        for gauge, read in self._gauges:
            gauge.set(read(stats, context_tokens))

    def count(self, prompt_tokens: int, answer_tokens: int) -> None:
        self._prompt.observe(prompt_tokens)
        self._answer.observe(answer_tokens)

    def drop(self) -> None:
        """Free the metrics before their families; left to Python's exit, Triton's stub crashes at unload."""
        self._gauges.clear()
        del self._prompt, self._answer
        self._families.clear()
