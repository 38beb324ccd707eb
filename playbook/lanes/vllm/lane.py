"""The lane of vLLM: modelopt's checkpoint in vLLM's engine, behind the same Triton repository and the same container.

vLLM has an environment of its own (:mod:`vllm_serving.environment`), and what needs CUDA's PyTorch runs there.
"""

import os
import shutil
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gpu_serving.hub import fetch
from model_server.engines import held_engine, release_engine
from playbook.artifact import MANIFEST, input_digests, read
from playbook.profile import Profile
from ptq.quantize import preview as preview
from serving_base.checks import Check
from serving_base.tokenizer_files import TOKENIZER_FILES
from tiny_llama import MODEL_DIR, copy_model
from vllm_serving.checks import checks
from vllm_serving.environment import VllmInstallation, find_vllm
from vllm_serving.jobs import run_job

if TYPE_CHECKING:
    import playbook.lanes.vllm.lane as this
    from gpu_measurements.tables import StepTables
    from model_server.aws.server import LocalCloud
    from model_server.triton.server import TritonServer
    from playbook.lanes.base import Lane, Layout
    from serving_base.measures import StepRecord

    _is_a_lane: Lane = this


CAN = frozenset(
    (
        *("stream", "repeat", "report_idle", "count_tokens", "unified", "second_start", "token_scores", "preview"),
        "vllm_image",
        "measure_machine",
        *("free_endpoints", "same_build", "trained", "compile_network"),
    )
)
CELL_LIMIT_S = 3600
CHAPTER_LIMIT_S = 2 * 3600
AT_ONCE = 1  # an engine takes the GPU's memory for itself
KERNEL_ENVIRONMENT: Mapping[str, str] = {"TOKENIZERS_PARALLELISM": "false"}
UNIFIED = "unified"
"""Folder in a checkpoint of TensorRT-LLM's layout: the same weights in the layout that vLLM reads."""


def settle() -> None:
    """Nothing: the engine is a process of its own."""


def preflight(profile: Profile, workspace: Path) -> Iterator[Check]:
    return checks(profile, workspace, bf16_beside=profile.bf16_beside)


def prepare(profile: Profile, out: Path, *, root: Path) -> None:
    """The shipped model, the one of the hub, or the real architecture with random weights."""
    if profile.model == "tiny":
        copy_model(out)
    elif profile.weights == "random":
        _prepare_random(profile, out, root)
    else:
        fetch(profile, out, root=root)


def _prepare_random(profile: Profile, out: Path, root: Path) -> None:
    from tokenizers import Tokenizer

    from vllm_serving.random_model import answerable_ids

    shape = profile.shape
    job = {
        "config": shape.model_dump(exclude={"name", "hf_id", "source", "download_gb"}) | {"head_dim": shape.head_dim},
        "out": str(out),
        "answerable": answerable_ids(Tokenizer.from_file(str(MODEL_DIR / "tokenizer.json")).get_vocab()),
        "device": find_vllm().device,
    }
    _run(profile, "vllm_serving.random_model", job, root)
    for name in TOKENIZER_FILES:
        if (MODEL_DIR / name).is_file():
            shutil.copyfile(MODEL_DIR / name, out / name)


def run_in_torch(profile: Profile, script: str, job: dict[str, Any], out: Path, *, root: Path) -> None:
    """In vLLM's PyTorch, on its GPUs."""
    import json

    found = _run(profile, f"serving_base.{script}", job | {"device_map": _device_map(find_vllm())}, root)
    (out / "result.json").write_text(json.dumps(found), encoding="utf-8")


CALIBRATION_BATCH = {"cuda": 32, "cpu": 1}


def quantize(profile: Profile, model: Path, out: Path, *, layout: "Layout", root: Path) -> None:
    """By nvidia-modelopt on the GPU: TensorRT-LLM's layout, and beside it, from the same calibration, vLLM's own.

    Asked for vLLM's own alone, it links to what that calibration wrote, where there is one: 70B is not loaded twice.
    """
    import json

    from ptq.dataset import cnn_dailymail
    from ptq.quantize import QuantizeOptions, calibration_texts, needs_calibration
    from trtllm_check.recipes.quantize import CALIBRATION_DATASET

    options = QuantizeOptions.from_profile(profile)
    layouts = {"hf": "."} if layout == "hf" else {"tensorrt_llm": ".", "hf": UNIFIED}
    if not needs_calibration(options):  # the model is what vLLM reads
        ignored = shutil.ignore_patterns(MANIFEST)
        shutil.copytree(model, out / layouts.pop("hf"), copy_function=os.link, dirs_exist_ok=True, ignore=ignored)
    if layouts and layout == "hf" and (made := _unified_of(profile, model, root)) is not None:
        shutil.copytree(made, out, copy_function=os.link, dirs_exist_ok=True)
        return
    if not layouts:
        return
    installation = find_vllm()
    options = replace(options, calib_batch_size=CALIBRATION_BATCH[installation.device])
    job: dict[str, Any] = {
        "model": str(model),
        "out": str(out),
        "options": asdict(options),
        "texts": [],
        "layouts": layouts,
        "device_map": _device_map(installation),
    }
    if needs_calibration(options) and profile.model != "tiny" and profile.weights == "published":
        job["dataset"] = cnn_dailymail(CALIBRATION_DATASET)._asdict()
    else:
        job["texts"] = [list(ids) for ids in calibration_texts(model, options)]
    found = _run(profile, "ptq.job", job, root)
    (out / "quantize.json").write_text(json.dumps(found, indent=1), encoding="utf-8")


def _unified_of(profile: Profile, model: Path, root: Path) -> Path | None:
    """What the profile's checkpoint has for vLLM, where it was made of this model and with these settings."""
    if not (root / profile.name / "checkpoint" / MANIFEST).is_file():
        return None
    checkpoint = read(root / profile.name / "checkpoint")
    same = all(getattr(profile, name) == value for name, value in checkpoint.spec.items() if name != "layout")
    of_this = checkpoint.manifest.origin.inputs == input_digests({"model": read(model)})
    unified = checkpoint.path / UNIFIED
    return unified if same and of_this and unified.is_dir() else None


def build(profile: Profile, checkpoint: Path, out: Path, *, root: Path) -> None:
    """Start vLLM on the checkpoint twice: the first start compiles and keeps what it compiled, the second is timed."""
    from vllm_serving.build import VllmBuildOptions, build_engine

    release_engine()
    unified = checkpoint / UNIFIED
    options = VllmBuildOptions(
        max_batch_size=profile.max_batch_size,
        max_num_tokens=profile.max_num_tokens,
        max_input_len=profile.max_input_len,
        max_seq_len=profile.max_seq_len,
        tp_size=profile.tp,
        gpu_memory_utilization=profile.kv_cache_free_gpu_mem_fraction,
    )
    # outside of the artifact, which never changes: every start may add to it
    cache = root / profile.name / "vllm-cache" / out.name
    build_engine(unified if unified.is_dir() else checkpoint, out, options, find_vllm(count_gpus=True), cache=cache)


def engine_ranks(checkpoint_ranks: int) -> int:
    """vLLM spreads the weights when it loads them."""
    return checkpoint_ranks


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

    return generate_text(engine, prompts, max_new_tokens, sampling, opened=held_engine)


def stream(profile: Profile, engine: Path, prompt: str, max_new_tokens: int, *, root: Path) -> list[str]:
    from model_server.generate import stream_text

    return stream_text(engine, prompt, max_new_tokens, opened=held_engine)


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
    """With ``slots`` requests in the engine at most; "static" sends none before the whole batch is done."""
    from vllm_serving.steps import step_records as recorded

    return recorded(engine, prompt, lengths, slots)


def step_tables(engine: Callable[[str], Path], *, profile: Profile, root: Path) -> "StepTables":
    from playbook.lanes.vllm.profiling import step_tables as measured

    release_engine()
    return measured(engine, profile=profile, root=root)


def token_scores(profile: Profile, engine: Path, texts: Sequence[Sequence[int]], *, root: Path) -> list[list[float]]:
    """The engine's log-probability of every token of ``texts`` but the first of each."""
    from vllm_serving.engine import EngineFolder

    held = EngineFolder.read(engine)
    release_engine()
    job = {"model": held.model, "args": held.args, "texts": [list(ids) for ids in texts]}
    log_path = root / profile.name / "logs" / f"score-{engine.name}.log"
    found: list[list[float]] = run_job(Path(held.python), "vllm_serving.score", job, log_path=log_path, **held.env)
    return found


def write_repository(profile: Profile, engine: Path, out: Path, *, root: Path, variables: Mapping[str, Any]) -> None:
    from model_server.triton.outbox import senders_here
    from model_server.triton.repository import write_for_engine

    # A GPU takes more prompts at once, and makes more pieces of text, than one process reads and decodes.
    text = dict.fromkeys(("preprocessing_instances", "postprocessing_instances"), senders_here())
    write_for_engine(profile, engine, out, {**text, **variables})


def serve(profile: Profile, repository: Path, *, root: Path) -> "TritonServer":
    from model_server.triton.server import TritonServer

    release_engine()
    server = TritonServer(repository, ready_timeout_s=READY_TIMEOUT_S)
    server.start()
    return server


READY_TIMEOUT_S = 900.0


def local_cloud(folder: Path) -> "LocalCloud":
    from model_server.aws.server import LocalCloud

    release_engine()
    return LocalCloud(folder)


def _device_map(installation: VllmInstallation) -> str | None:
    return "auto" if installation.device == "cuda" else None


def _run(profile: Profile, module: str, job: Mapping[str, Any], root: Path) -> Any:
    release_engine()
    log_path = root / profile.name / "logs" / f"{module}.log"
    installation = find_vllm()
    python = installation.python if installation.device == "cuda" else Path(sys.executable)
    return run_job(python, module, job, log_path=log_path)
