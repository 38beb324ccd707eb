"""Attention written out and fused into one operation, by torch: ``python3 attention_run.py JOB.json RESULT.json``.

Written-out attention stores the *score matrix*: one value for each pair of tokens and each head. Fused attention
(FlashAttention, Dao et al. 2022, arXiv 2205.14135) goes over it in tiles and never stores it.

It imports nothing of the playbook, so that the same file runs here and where CUDA's PyTorch is. The job:
``device_map`` (null: this process's CPU; else the first GPU), ``lengths`` (tokens; empty: the machine's in
:data:`MACHINES`). The result: ``device``, ``heads``, ``head_size``, ``dtype`` and ``runs``, one for each length.
"""

import json
import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch import Tensor

WHY = (
    "the same random queries, keys and values through attention written out and through torch's fused operation, "
    "on the first GPU: the course's own environment has a CPU build of PyTorch."
)
MEMORY_EVENT = "[memory]"
MACHINES: dict[str, dict[str, Any]] = {
    "cpu": {"lengths": [256, 512, 1024, 2048], "heads": 8, "head_size": 64, "dtype": "float32"},
    "cuda": {"lengths": [1024, 2048, 4096, 8192], "heads": 32, "head_size": 128, "dtype": "bfloat16"},
}
"""What takes seconds on each, and is large enough to see the growth. A GPU gets one layer with the heads of 8B."""
TIMED_CALLS = 5


def run(job: dict[str, Any]) -> dict[str, Any]:
    """Both ways at each length; bytes at once beyond the inputs, seconds of the fastest call, the largest difference.

    On a processor in one thread: torch's fused operation keeps some tiles for each, and their number is the machine's.
    """
    import torch

    device = "cuda" if job["device_map"] else "cpu"
    machine = MACHINES[device]
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        runs = [_compare(length, device, machine) for length in job["lengths"] or machine["lengths"]]
    finally:
        torch.set_num_threads(threads)
    name = torch.cuda.get_device_name() if device == "cuda" else "cpu"
    shape = {key: machine[key] for key in ("heads", "head_size", "dtype")}
    return {"device": name, **shape, "torch": torch.__version__, "runs": runs}


def written_out(query: "Tensor", key: "Tensor", value: "Tensor") -> "Tensor":
    """softmax(Q K^T / sqrt(head size)) V under a causal mask, operation by operation; (heads, length, head size)."""
    import torch

    length, head_size = query.shape[-2:]
    scores = query @ key.transpose(-1, -2) / head_size**0.5
    later = torch.ones(length, length, dtype=torch.bool, device=query.device).triu(1)
    return torch.softmax(scores.masked_fill(later, float("-inf")), dim=-1) @ value


def fused(query: "Tensor", key: "Tensor", value: "Tensor") -> "Tensor":
    """The same by one operation of torch."""
    import torch

    result = torch.nn.functional.scaled_dot_product_attention(query[None], key[None], value[None], is_causal=True)
    return result[0]


def _compare(length: int, device: str, machine: dict[str, Any]) -> dict[str, Any]:
    import torch

    shape = (3, machine["heads"], length, machine["head_size"])
    made = torch.randn(shape, generator=torch.Generator().manual_seed(0))
    query, key, value = made.to(device, getattr(torch, machine["dtype"]))
    ways: dict[str, Callable[[], Tensor]] = {
        "plain": lambda: written_out(query, key, value),
        "fused": lambda: fused(query, key, value),
    }
    peak_bytes, seconds = (cuda_peak_bytes, cuda_seconds) if device == "cuda" else (cpu_peak_bytes, cpu_seconds)
    with torch.inference_mode():
        error = (ways["plain"]() - ways["fused"]()).abs().max().item()
        taken = {f"{name}_bytes": peak_bytes(way) for name, way in ways.items()}
        return {"length": length, "error": error, **taken, **{f"{name}_s": seconds(way) for name, way in ways.items()}}


def cuda_peak_bytes(call: Callable[[], object]) -> int:
    """The most bytes that ``call`` had taken from torch's CUDA allocator at once, beyond those taken before it."""
    import torch

    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    call()
    torch.cuda.synchronize()
    return torch.cuda.max_memory_allocated() - before


def cuda_seconds(call: Callable[[], object]) -> float:
    """The fastest call by the GPU's own clock."""
    import torch

    call()
    taken: list[float] = []
    for _ in range(TIMED_CALLS):
        begun, ended = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begun.record()
        call()
        ended.record()
        ended.synchronize()
        taken.append(begun.elapsed_time(ended) / 1e3)
    return min(taken)


def cpu_peak_bytes(call: Callable[[], object]) -> int:
    """The same of torch's CPU allocator, which keeps no peak: the profiler's events are added up."""
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


def cpu_seconds(call: Callable[[], object], rounds: int = 2) -> float:
    """The faster of two calls."""
    taken = []
    for _ in range(rounds):
        started = time.perf_counter()
        call()
        taken.append(time.perf_counter() - started)
    return min(taken)


def main() -> None:
    job, result = (Path(word) for word in sys.argv[1:3])
    found = run(json.loads(job.read_text(encoding="utf-8")))
    result.write_text(json.dumps(found, indent=1), encoding="utf-8")


if __name__ == "__main__":
    main()
