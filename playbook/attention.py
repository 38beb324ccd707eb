"""What a chapter may see of attention: the kernels as facts, the ways measured, the paged cache counted."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from cpu_serving.paging import Ask, CacheLaboratory, prompt
from gpu_measurements.hopper import measured_attention, plain_floor_us
from playbook.lanes.base import lane_of
from playbook.stages import Workspace
from trtllm_check.attention import (
    AttentionCase,
    context_kernel,
    first_fused,
    first_fused_table,
    generation_kernel,
    release_tables,
)

__all__ = [
    "Ask",
    "AttentionCase",
    "CacheLaboratory",
    "compare_attention",
    "context_kernel",
    "first_fused",
    "first_fused_table",
    "generation_kernel",
    "measured_attention",
    "plain_floor_us",
    "prompt",
    "release_tables",
]

ELEMENT_BYTES = {"float32": 4, "bfloat16": 2}
ROUNDING = {"float32": 1e-4, "bfloat16": 0.05}
"""How far two orders of the same sums may lie apart: values are up to 4, and BF16 has 8 bits for each."""


def score_bytes(length: int, heads: int, dtype: str) -> int:
    """Bytes of the score matrices of one layer and one sequence: heads x length x length values."""
    return heads * length * length * ELEMENT_BYTES[dtype]


@dataclass(frozen=True)
class AttentionRun:
    """One length. ``error``: the largest difference of the two results; seconds are those of the fastest call."""

    length: int
    score_bytes: int
    plain_bytes: int
    fused_bytes: int
    plain_s: float
    fused_s: float
    error: float


@dataclass(frozen=True)
class AttentionRuns:
    """Plain and fused attention on one ``device``; ``rounding``: the difference that ``dtype`` allows."""

    device: str
    heads: int
    head_size: int
    dtype: str
    rounding: float
    runs: tuple[AttentionRun, ...]


def compare_attention(workspace: Workspace, lengths: Sequence[int] = ()) -> AttentionRuns:
    """Both ways at each length, on the same random numbers, by the PyTorch of the profile's lane.

    On a processor 8 heads of 64 in float32; on a GPU the 32 heads of 128 of Llama-3-8B, in bfloat16. Empty
    ``lengths`` are those of :data:`serving_base.attention_run.MACHINES`.
    """
    profile = workspace.profile
    workspace.root.mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory(prefix="attention-", dir=workspace.root) as folder:  # a container sees the workspace
        out = Path(folder)
        job = {"lengths": list(lengths)}
        lane_of(profile.lane).run_in_torch(profile, "attention_run", job, out, root=workspace.root)
        found = json.loads((out / "result.json").read_text(encoding="utf-8"))
    shape = {key: found[key] for key in ("device", "heads", "head_size", "dtype")}
    runs = tuple(
        AttentionRun(score_bytes=score_bytes(one["length"], found["heads"], found["dtype"]), **one)
        for one in found["runs"]
    )
    return AttentionRuns(**shape, rounding=ROUNDING[found["dtype"]], runs=runs)
