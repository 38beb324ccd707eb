"""Attention written out, and fused into one operation: equal answers, other memory. By torch, on the processor.

Written-out attention stores the *score matrix*: one value for each pair of tokens and each head. Fused attention
(FlashAttention, Dao et al. 2022, arXiv 2205.14135) goes over it in tiles and never stores it.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import Tensor

FLOAT32_BYTES = 4
MEMORY_EVENT = "[memory]"


def score_bytes(length: int, heads: int, element_bytes: int = FLOAT32_BYTES) -> int:
    """Bytes of the score matrices of one layer and one sequence: heads x length x length values."""
    return heads * length * length * element_bytes


def written_out(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    """softmax(Q K^T / sqrt(head size)) V under a causal mask, operation by operation; (heads, length, head size)."""
    import torch

    length, head_size = query.shape[-2:]
    scores = query @ key.transpose(-1, -2) / head_size**0.5
    later = torch.ones(length, length, dtype=torch.bool).triu(1)
    return torch.softmax(scores.masked_fill(later, float("-inf")), dim=-1) @ value


def fused(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    """The same by one operation of torch."""
    import torch

    result = torch.nn.functional.scaled_dot_product_attention(query[None], key[None], value[None], is_causal=True)
    return result[0]


def peak_bytes(call: Callable[[], object]) -> int:
    """The most bytes that ``call`` had taken from torch's CPU allocator at once, beyond those taken before it."""
    from torch.autograd.profiler import profile

    with _without_profiler_lines(), profile(use_cpu=True, profile_memory=True) as profiled:
        call()
    found = profiled.kineto_results
    events = sorted((event.start_ns(), event.nbytes()) for event in found.events() if event.name() == MEMORY_EVENT)
    held = peak = 0
    for _, change in events:
        held += change
        peak = max(peak, held)
    return peak


@contextmanager
def _without_profiler_lines() -> Iterator[None]:
    """torch's profiler writes two lines to standard error for each use, from C++."""
    sys.stderr.flush()
    kept = os.dup(2)
    try:
        with Path(os.devnull).open("wb") as nowhere:
            os.dup2(nowhere.fileno(), 2)
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)


@dataclass(frozen=True)
class AttentionRun:
    """One length. ``error``: largest difference of the two results; seconds are the better of two runs."""

    length: int
    score_bytes: int
    plain_bytes: int
    fused_bytes: int
    plain_seconds: float
    fused_seconds: float
    error: float


def compare_attention(
    lengths: Sequence[int], *, heads: int = 8, head_size: int = 64, seed: int = 0
) -> list[AttentionRun]:
    """Both ways at each length, on the same random queries, keys and values in float32.

    On one thread: torch's fused operation keeps some tiles for each, and their number is the machine's.
    """
    import torch

    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        return [_compare(length, heads, head_size, seed) for length in lengths]
    finally:
        torch.set_num_threads(threads)


def _compare(length: int, heads: int, head_size: int, seed: int) -> AttentionRun:
    import torch

    made = torch.Generator().manual_seed(seed)
    query, key, value = torch.randn(3, heads, length, head_size, generator=made)
    ways = {name: _bind(way, query, key, value) for name, way in (("plain", written_out), ("fused", fused))}
    with torch.inference_mode():
        error = (ways["plain"]() - ways["fused"]()).abs().max().item()
        taken = {name: peak_bytes(way) for name, way in ways.items()}
        seconds = {name: _seconds(way) for name, way in ways.items()}
    return AttentionRun(
        length=length,
        score_bytes=score_bytes(length, heads),
        plain_bytes=taken["plain"],
        fused_bytes=taken["fused"],
        plain_seconds=seconds["plain"],
        fused_seconds=seconds["fused"],
        error=error,
    )


def _bind(way: Callable[[Tensor, Tensor, Tensor], Tensor], *tensors: Tensor) -> Callable[[], Tensor]:
    return lambda: way(*tensors)


def _seconds(call: Callable[[], object], rounds: int = 2) -> float:
    taken = []
    for _ in range(rounds):
        started = time.perf_counter()
        call()
        taken.append(time.perf_counter() - started)
    return min(taken)
