"""The kernels of an engine's steps, recorded now, beside those that ship."""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from gpu_measurements.captures import hopper_table
from gpu_measurements.tables import Phase, StepTables, kernel_table, read_ranks
from gpu_serving.nsys import record_kernels
from playbook.profile import Profile

if TYPE_CHECKING:
    import pandas as pd

OWN = "this machine"
RECORDED_MODELS = {"llama-3-8b-instruct": "8b"}  # else 70B on two GPUs
RECORDED_STEPS: dict[Phase, str] = {"prefill": "prefill4096", "decode": "decode32"}


def step_tables(engine: Callable[[str], Path], *, profile: Profile, root: Path) -> StepTables:
    """Tables of the profile's engine beside the recorded ones of H200; only those where nsys is missing."""
    recording = record_kernels(profile, engine("engine"), root=root)
    model = RECORDED_MODELS.get(profile.model, "70b-tp2")
    tables: dict[Phase, dict[str, pd.DataFrame]] = {}
    for phase, step in RECORDED_STEPS.items():
        tables[phase] = {f"H200 {name}": hopper_table(f"{model}-{name.lower()}", step) for name in ("BF16", "FP8")}
        if entry := recording.phases.get(phase):
            capture = read_ranks(entry.files)
            tables[phase] = {OWN: kernel_table(capture, phase=phase, steps=entry.steps, source="nsys")} | tables[phase]
    return StepTables(
        tables,
        own=(OWN,) if recording.phases else (),
        steps={phase: entry.steps for phase, entry in recording.phases.items()},
        like=False,
        remark=recording.missing or f"{how_recorded(profile)} {hopper_remark(model)}",
    )


def how_recorded(profile: Profile) -> str:
    """Markdown: what the column :data:`OWN` is."""
    return (
        f"`{OWN}`: chapter 04's prompt through `run.py` under nsys, tensor parallel over {profile.tp}. "
        "Each rank wrote a report, from a chosen engine iteration on, so that loading the weights stays out."
    )


def hopper_remark(model: str) -> str:
    return (
        f"H200: {model} of vLLM, 4096 tokens of prompt and 32 sequences. The loads differ, so compare which classes "
        "there are and which kernels serve them, not the times."
    )
