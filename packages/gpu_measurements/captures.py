"""Engine steps measured for this project: Llama-3 shapes on one and two NVIDIA H200, traces and kernel sums.

They ship in ``gpu_measurements/data``, whose README says what they are and what they are not.
"""

import re
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from gpu_measurements.sources import read_capture
from gpu_measurements.tables import Phase, kernel_table, shorter_all_reduces
from serving_base.errors import UsageError
from serving_base.facts.gpus import known_gpu
from serving_base.yaml_files import read_yaml

if TYPE_CHECKING:
    import pandas as pd


HOPPER_DIR = Path(__file__).with_name("data")
FILE_NAME = re.compile(r"(?P<run>[\w-]+)\.(?P<step>\w+?)(?:\.rank(?P<rank>\d+))?\.trace\.json\.gz")


@cache
def hopper_captures() -> dict[tuple[str, str, int], Path]:
    """(run, step, rank) -> Chrome trace; a run is ``<model>-<precision>``, a step ``prefill4096`` or ``decode32``."""
    names = {path: FILE_NAME.fullmatch(path.name) for path in sorted((HOPPER_DIR / "traces").glob("*.json.gz"))}
    return {(name["run"], name["step"], int(name["rank"] or 0)): path for path, name in names.items() if name}


def hopper_capture(run: str, step: str, *, rank: int = 0) -> Path:
    """Path of one shipped trace; :class:`UsageError` for one that is not shipped."""
    captures = hopper_captures()
    if (run, step, rank) not in captures:
        shipped = sorted({f"{own_run} {own_step}" for own_run, own_step, _ in captures})
        raise UsageError(f"no capture of {run} {step}, rank {rank}", fix=f"use one of: {', '.join(shipped)}")
    return captures[run, step, rank]


def hopper_kernel_sum() -> Path:
    """The shipped kernel sum: the step ``8b-fp8 decode32`` without the order of its kernels."""
    return HOPPER_DIR / "kernel_sums" / "8b-fp8.decode32.csv"


def hopper_machine(run: str) -> dict[str, str]:
    """The machine and software that a run was measured with."""
    card = _machines()["tp2" if "-tp2-" in run else "tp1"]
    return {"gpu": card["gpu"], "memory_gib": f"{known_gpu('h200').visible_gib:.1f}", **card}


@cache
def _machines() -> dict[str, dict[str, str]]:
    machines = read_yaml(HOPPER_DIR / "machines.yml")
    return {name: {key: str(value) for key, value in card.items()} for name, card in machines.items()}


def hopper_origin(run: str) -> str:
    """The label that goes beside every figure of a shipped capture."""
    machine = hopper_machine(run)
    gpu = machine["gpu"].split(",")[0]
    return f"measured on {gpu}, {machine['measured']}, {machine['engine']}, {machine['weights']} weights"


def hopper_table(run: str, step: str) -> "pd.DataFrame":
    """The table of a shipped capture; with two ranks, rank 0 without its wait for the other (see the data's README)."""
    events = read_capture(hopper_capture(run, step))
    if (run, step, 1) in hopper_captures():
        events = shorter_all_reduces(events, read_capture(hopper_capture(run, step, rank=1)))
    phase: Phase = "prefill" if step.startswith("prefill") else "decode"
    return kernel_table(events, step=f"{run} {step}", phase=phase, source="PyTorch profiler", origin=hopper_origin(run))
