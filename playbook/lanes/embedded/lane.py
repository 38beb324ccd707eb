"""The embedded lane: every stage really happens, on this machine's processor, with the tiny model.

It needs two cores, some memory and disk, and what set-up installs: :func:`checks`.
"""

import importlib.metadata
import os
import shutil
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from playbook.lanes.base import GIB, Check, existing, usable_cores, verdict
from playbook.profile import Profile
from serving_base.errors import EnvironmentProblem

if TYPE_CHECKING:
    from pandas import DataFrame

    import playbook.lanes.embedded.lane as this
    from cpu_serving.profiling import StepProfile
    from model_server.aws.server import LocalCloud
    from model_server.triton.server import TritonServer
    from playbook.lanes.base import Lane, Layout
    from playbook.measure.kernels import Phase, StepTables
    from serving_base.measures import StepRecord

    _is_a_lane: Lane = this


NEEDS = {"cores": 2, "memory_gib": 4, "disk_gb": 5}


def checks(workspace: Path) -> Iterator[Check]:
    import psutil

    cores, memory_gib = usable_cores(), psutil.virtual_memory().total / GIB
    disk_gb = shutil.disk_usage(existing(workspace)).free / 1e9
    yield Check(
        "cores",
        str(cores),
        f">= {NEEDS['cores']}",
        verdict(cores >= NEEDS["cores"]),
        "use a machine, or a container limit, with two cores",
    )
    yield Check(
        "memory",
        f"{memory_gib:.0f} GiB",
        f">= {NEEDS['memory_gib']} GiB",
        verdict(memory_gib >= NEEDS["memory_gib"]),
        "close other programs, or use a larger machine",
    )
    yield Check(
        "disk",
        f"{disk_gb:.0f} GB free",
        f">= {NEEDS['disk_gb']} GB",
        verdict(disk_gb >= NEEDS["disk_gb"]),
        "free space, or set another workspace",
    )
    for package in ("torch", "nvidia-modelopt", "openvino-genai", "tritonclient"):
        yield _package(package)
    yield _triton_server()


def _package(name: str) -> Check:
    try:
        found = importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return Check(name, "not installed", "installed", "missing", "run python3 playbook/bootstrap.py")
    return Check(name, found, "installed", "ok")


def _triton_server() -> Check:
    from model_server.triton.server import find_installation

    try:
        found = find_installation()
    except EnvironmentProblem as problem:
        return Check("tritonserver", problem.what, "installed", "missing", problem.fix)
    return Check("tritonserver", f"installed, Python {found.python_version} stub", "installed", "ok")


CAN = frozenset(
    (
        *("stream", "repeat", "repeat_exactly", "report_idle", "count_tokens"),
        *("preview", "unified", "merge", "graph", "logits", "measure_machine"),
        *("free_endpoints", "same_build"),
    )
)
CELL_LIMIT_S = 600
CHAPTER_LIMIT_S = 1800
AT_ONCE = 4
# One thread: a tiny model on two busy ones spends its time waiting for them to meet.
KERNEL_ENVIRONMENT: Mapping[str, str] = {"HF_HUB_OFFLINE": "1", "TRANSFORMERS_OFFLINE": "1", "OMP_NUM_THREADS": "1"}
OUTLIER_CHANNELS = (3, 64, 128, 200)


def settle() -> None:
    """One thread of torch, for the reason above."""
    if "torch" in sys.modules:
        import torch

        torch.set_num_threads(1)
    else:
        os.environ.setdefault("OMP_NUM_THREADS", "1")


def preflight(profile: Profile, workspace: Path) -> "Iterator[Check]":

    return checks(workspace)


def prepare(profile: Profile, out: Path, *, root: Path) -> None:
    """Copy the tiny model of the package, as a download from Hugging Face would leave it."""
    import shutil

    from tiny_llama import MODEL_DIR

    for path in sorted(MODEL_DIR.iterdir()):
        if path.is_file():
            shutil.copyfile(path, out / path.name)


def reference(profile: Profile, job: dict[str, Any], out: Path, *, root: Path) -> None:
    """By transformers in this environment's CPU PyTorch."""
    import json

    from serving_base.reference_run import run

    (out / "result.json").write_text(json.dumps(run(job | {"device_map": None})), encoding="utf-8")


def quantize(profile: Profile, model: Path, out: Path, *, layout: "Layout", root: Path) -> None:
    """By nvidia-modelopt, on the processor."""
    from ptq.quantize import QuantizeOptions, quantize_checkpoint

    quantize_checkpoint(model, out, QuantizeOptions.from_profile(profile), layout=layout)


def preview(model: Path, *, qformat: str, kv_cache_dtype: str, calib_samples: int, outlier_factor: int) -> Any:
    """The quantized model as torch computes it; see :func:`playbook.stages.preview_quantized`."""
    from ptq.numerics import add_outliers
    from ptq.quantize import QuantizeOptions, apply_quantization, calibration_texts, load_model

    options = QuantizeOptions(qformat=qformat, kv_cache_dtype=kv_cache_dtype, calib_samples=calib_samples)
    torch_model = load_model(model)
    add_outliers(torch_model, outlier_factor, OUTLIER_CHANNELS)
    return apply_quantization(torch_model, options, calibration_texts(model, options))


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
    from cpu_serving.generate import step_records as recorded

    folder = narrow()
    return {policy: recorded(folder, prompt, lengths, policy) for policy in ("static", "inflight")}


def step_tables(engine: Callable[[str], Path], *, profile: Profile, root: Path) -> "StepTables":
    """Tables of the engines in BF16 and in FP8, and a remark that says how far the control lets one trust them."""
    from cpu_serving.profiling import compare_engines, remark
    from playbook.measure.kernels import StepTables

    found = compare_engines({"BF16": engine("engine-bf16"), "FP8": engine("engine")})
    phases: tuple[Phase, ...] = ("prefill", "decode")
    tables = {
        phase: {name: operation_table(own[phase], phase) for name, own in found.profiles.items()} for phase in phases
    }
    return StepTables(tables, tuple(tables["decode"]), dict.fromkeys(phases, 1), like=True, remark=remark(found))


def operation_table(profile: "StepProfile", phase: "Phase" = "") -> "DataFrame":
    """The kernel table of one profiled step of the CPU's engine."""
    import pandas as pd

    from playbook.measure.kernels import kernel_table

    return kernel_table(pd.DataFrame(profile.rows()), flow="openvino", phase=phase)


def write_repository(profile: Profile, engine: Path, out: Path, *, root: Path, variables: Mapping[str, Any]) -> None:
    from model_server.triton.repository import ServingOptions
    from model_server.triton.repository import write_repository as write_models

    serving = ServingOptions(
        engine_dir=engine,
        tokenizer_dir=engine / "tokenizer",
        max_batch_size=profile.max_batch_size,
        decoupled=profile.decoupled,
        **variables,
    )
    write_models(out, profile.release, serving.values())


def serve(profile: Profile, repository: Path, *, root: Path) -> "TritonServer":
    from model_server.triton.server import TritonServer

    server = TritonServer(repository)
    server.start()
    return server


def local_cloud(folder: Path) -> "LocalCloud":

    from model_server.aws.server import LocalCloud

    return LocalCloud(folder)
