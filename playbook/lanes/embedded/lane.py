"""The embedded lane: every stage really happens, on this machine's processor, with the tiny model.

It needs two cores, some memory and disk, and what set-up installs: :mod:`cpu_serving.checks`.
"""

import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cpu_serving.checks import checks
from playbook.profile import Profile
from ptq.quantize import preview as preview
from serving_base.checks import Check

if TYPE_CHECKING:
    from pandas import DataFrame

    import playbook.lanes.embedded.lane as this
    from cpu_serving.profiling import StepProfile
    from gpu_measurements.tables import Phase, StepTables
    from model_server.aws.server import LocalCloud
    from model_server.triton.server import TritonServer
    from playbook.lanes.base import Lane, Layout
    from serving_base.measures import StepRecord

    _is_a_lane: Lane = this


CAN = frozenset(
    (
        *("stream", "repeat", "repeat_exactly", "report_idle", "count_tokens"),
        *("preview", "unified", "merge", "graph", "logits", "measure_machine"),
        *("free_endpoints", "same_build", "trained", "compile_network"),
    )
)
CELL_LIMIT_S = 600
CHAPTER_LIMIT_S = 1800
AT_ONCE = 4
# One thread: a tiny model on two busy ones spends its time waiting for them to meet. Nothing is compiled by torch: its
# compiler is a sixth of what importing modelopt costs.
KERNEL_ENVIRONMENT: Mapping[str, str] = {
    "HF_HUB_OFFLINE": "1",
    "TRANSFORMERS_OFFLINE": "1",
    "OMP_NUM_THREADS": "1",
    "TORCHDYNAMO_DISABLE": "1",
}


def settle() -> None:
    """One thread of torch, for the reason above."""
    if "torch" in sys.modules:
        import torch

        torch.set_num_threads(1)
    else:
        os.environ.setdefault("OMP_NUM_THREADS", "1")


def preflight(profile: Profile, workspace: Path) -> Iterator[Check]:
    return checks(workspace)


def prepare(profile: Profile, out: Path, *, root: Path) -> None:
    """Copy the tiny model of the package."""
    from tiny_llama import copy_model

    copy_model(out)


def run_in_torch(profile: Profile, script: str, job: dict[str, Any], out: Path, *, root: Path) -> None:
    """In this process, which has a CPU build."""
    import json

    found = import_module(f"serving_base.{script}").run(job | {"device_map": None})
    (out / "result.json").write_text(json.dumps(found), encoding="utf-8")


def quantize(profile: Profile, model: Path, out: Path, *, layout: "Layout", root: Path) -> None:
    """By nvidia-modelopt, on the processor."""
    from ptq.quantize import QuantizeOptions, quantize_checkpoint

    quantize_checkpoint(model, out, QuantizeOptions.from_profile(profile), layout=layout)


def build(profile: Profile, checkpoint: Path, out: Path, *, root: Path) -> None:
    """Merge the ranks into one graph, and compile it."""
    from cpu_serving.build import BuildOptions, build_engine

    build_engine(checkpoint, out, BuildOptions.from_profile(profile))


def engine_ranks(checkpoint_ranks: int) -> int:
    return 1


def generate(
    profile: Profile,
    engine: Path,
    prompts: Sequence[str],
    max_new_tokens: int,
    *,
    root: Path,
    sampling: Mapping[str, float],
) -> list[str]:
    from model_server.generate import generate_text

    return generate_text(engine, prompts, max_new_tokens, sampling)


def stream(profile: Profile, engine: Path, prompt: str, max_new_tokens: int, *, root: Path) -> list[str]:
    from model_server.generate import stream_text

    return stream_text(engine, prompt, max_new_tokens)


def step_records(
    profile: Profile,
    engine: Path,
    prompt: str,
    lengths: Sequence[int],
    slots: int,
    *,
    root: Path,
    narrow: Callable[[], Path],
) -> "dict[str, list[StepRecord]]":
    from cpu_serving.engine import step_records as recorded

    folder = narrow()
    return {policy: recorded(folder, prompt, lengths, policy) for policy in ("static", "inflight")}


def step_tables(engine: Callable[[str], Path], *, profile: Profile, root: Path) -> "StepTables":
    """Tables of the engines in BF16 and in FP8, and a remark that says how far the control lets one trust them."""
    from cpu_serving.profiling import compare_engines, remark
    from gpu_measurements.tables import StepTables

    found = compare_engines({"BF16": engine("engine-bf16"), "FP8": engine("engine")})
    phases: tuple[Phase, ...] = ("prefill", "decode")
    tables = {
        phase: {name: operation_table(own[phase], phase) for name, own in found.profiles.items()} for phase in phases
    }
    return StepTables(tables, tuple(tables["decode"]), dict.fromkeys(phases, 1), like=True, remark=remark(found))


def operation_table(profile: "StepProfile", phase: "Phase" = "") -> "DataFrame":
    """The kernel table of one profiled step of the CPU's engine."""
    import pandas as pd

    from gpu_measurements.tables import kernel_table

    return kernel_table(pd.DataFrame(profile.rows()), flow="openvino", phase=phase)


def write_repository(profile: Profile, engine: Path, out: Path, *, root: Path, variables: Mapping[str, Any]) -> None:
    from model_server.triton.repository import write_for_engine

    write_for_engine(profile, engine, out, variables)


def serve(profile: Profile, repository: Path, *, root: Path) -> "TritonServer":
    from model_server.triton.server import TritonServer

    server = TritonServer(repository)
    server.start()
    return server


def local_cloud(folder: Path) -> "LocalCloud":

    from model_server.aws.server import LocalCloud

    return LocalCloud(folder)
