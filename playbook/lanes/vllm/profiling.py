"""The kernels of this machine's steps, in BF16 and FP8, beside those recorded on an H200 with the same engine."""

from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gpu_measurements.captures import hopper_table
from gpu_measurements.tables import Phase, StepTables, kernel_table, read_ranks
from playbook.profile import Profile
from serving_base.errors import CheckFailed
from vllm_serving.engine import EngineFolder
from vllm_serving.jobs import run_job
from vllm_serving.trace import StepShape

if TYPE_CHECKING:
    import pandas as pd

FORMATS = ("BF16", "FP8")  # of the recorded tables
RECORDED_MODELS = {"llama-3-8b-instruct": "8b"}
PHASES: dict[str, Phase] = {"prefill": "prefill", "decode": "decode"}
PREFILL_TOKENS, DECODE_REQUESTS = 4096, 32
RECORDED_STEPS: dict[Phase, str] = {"prefill": f"prefill{PREFILL_TOKENS}", "decode": f"decode{DECODE_REQUESTS}"}


def step_tables(engine: Callable[[str], Path], *, profile: Profile, root: Path) -> StepTables:
    """Prefill and decode steps of the profile's engines, traced now.

    Of 8B also the shipped ones, taken under the same loads.

    On a processor nothing is traced: there are no GPU kernels, and the shipped tables stand alone.
    """
    if not profile.on_gpus:
        return shipped_tables()
    cases = {
        "prefill": StepShape.prefill(min(PREFILL_TOKENS, profile.max_input_len, profile.max_num_tokens)),
        "decode": StepShape.decode(min(DECODE_REQUESTS, profile.max_batch_size)),
    }
    traced = {name: trace(engine(folder), cases, profile, root) for name, folder in engines_of(profile).items()}
    tables: dict[Phase, dict[str, pd.DataFrame]] = {}
    for phase, case in cases.items():
        label = PHASES[phase]
        tables[label] = {name: table(found[case.name], label) for name, found in traced.items()}
        if model := RECORDED_MODELS.get(profile.model):
            recorded = {name: hopper_table(f"{model}-{name.lower()}", case.name) for name in FORMATS}
            tables[label] |= {f"H200 {name}": columns for name, columns in recorded.items()}
    steps = {phase: [*traced.values()][-1][case.name]["steps"] for phase, case in cases.items()}
    described = " and ".join(f"{case.requests} request(s) with {case.tokens} tokens" for case in cases.values())
    remark = f"Steps of {described}, traced by PyTorch's profiler in vLLM's own worker."
    return StepTables(tables, own=tuple(traced), steps=steps, like=True, remark=remark)


def engines_of(profile: Profile) -> dict[str, str]:
    """Format -> artifact. A profile in BF16 has one engine: there is nothing quantized to set beside it."""
    if profile.qformat == "full_prec":
        return {"BF16": "engine"}
    return ({"BF16": "engine-bf16"} if profile.bf16_beside else {}) | {"FP8": "engine"}


def shipped_tables() -> StepTables:
    """8B on an H200, with the same engine."""
    tables: dict[Phase, dict[str, pd.DataFrame]] = {
        phase: {f"H200 {name}": hopper_table(f"8b-{name.lower()}", step) for name in FORMATS}
        for phase, step in RECORDED_STEPS.items()
    }
    return StepTables(
        tables, own=(), steps={}, like=True, remark="This machine has no GPU whose kernels could be traced."
    )


def trace(engine: Path, cases: dict[str, StepShape], profile: Profile, root: Path) -> Any:
    """The traces of one engine, by case."""
    held = EngineFolder.read(engine)
    job = {
        "model": held.model,
        "args": held.args,
        "out": str(root / profile.name / "profiles" / engine.name),
        "cases": [asdict(case) for case in cases.values()],
    }
    log_path = root / profile.name / "logs" / f"trace-{engine.name}.log"
    found = run_job(Path(held.python), "vllm_serving.trace", job, log_path=log_path, **held.env)
    if lost := [name for name, case in found.items() if not case["steps"]]:
        raise CheckFailed(
            f"no step of {' or '.join(lost)} was traced",
            why="the engine took none of that shape",
            fix=f"see {log_path}",
        )
    return found


def table(case: dict[str, Any], phase: Phase) -> "pd.DataFrame":
    capture = read_ranks([Path(path) for path in case["files"][:2]])
    return kernel_table(capture, phase=phase, steps=case["steps"], source="PyTorch profiler")
