"""Makes an engine folder: arguments fixed, compile caches warmed, the gain of a second start measured.

vLLM has no file of an engine, as TensorRT-LLM has. What it makes at its start (compiled graphs, chosen kernels, how
many blocks the KV cache gets) is the counterpart, and ``cache/`` and ``build.json`` of the folder keep it.
"""

import json
import os
import shutil
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

from serving_base.errors import CheckpointError, UsageError
from serving_base.tokenizer_files import copy_tokenizer
from vllm_serving.engine import VllmEngine
from vllm_serving.environment import VllmInstallation

ARCHITECTURE = "LlamaForCausalLM"
PROVISIONAL_BLOCK = 16
CPU_BLOCK = 128
"""Tokens of a KV cache block of vLLM on a CPU."""
BF16_BYTES = 2
GRAPH_STEP = 8
USERS = ("VLLM_", "NCCL_", "NVSHMEM_", "TORCH_SYMM_MEM_", "GLOO_", "LD_LIBRARY_PATH", "HF_HOME")
"""Variables of who builds that the engine keeps, by their beginnings: a server's own are other ones.

Which GPUs it sees is not among them: that is for whoever starts it to say.
"""
ALWAYS = {
    "HF_HUB_OFFLINE": "1",  # the checkpoint is a folder
    "VLLM_NO_USAGE_STATS": "1",
    "VLLM_HOST_IP": "127.0.0.1",
    "VLLM_USE_FLASHINFER_SAMPLER": "0",  # it is compiled at the first start, which needs nvcc
    "VLLM_USE_DEEP_GEMM": "0",  # block-scaled FP8 only, which these checkpoints are not
}


@dataclass(frozen=True)
class VllmBuildOptions:
    """Limits of an engine, named as ``trtllm-build`` names them; lengths in tokens.

    ``max_num_tokens``: tokens of all requests together in one step. ``max_seq_len``: prompt and answer together.
    ``kv_cache_dtype`` "auto": as the checkpoint. ``kv_cache_bytes`` 0: on a GPU what ``gpu_memory_utilization`` leaves,
    on a CPU enough for a full batch. ``stream_interval``: tokens that vLLM gives at once, after the first one.
    ``eager`` runs without CUDA graphs and torch.compile; None: on a CPU only.
    """

    max_batch_size: int = 8
    max_num_tokens: int = 2048
    max_input_len: int = 1024
    max_seq_len: int = 2048
    kv_cache_dtype: Literal["auto", "fp8", "bfloat16"] = "auto"
    enable_block_reuse: bool = False
    tp_size: int = 1
    gpu_memory_utilization: float = 0.9
    kv_cache_bytes: int = 0
    stream_interval: int = 1
    eager: bool | None = None
    start_s: float = 900.0
    hang_s: float = 180.0


@dataclass(frozen=True)
class BuildReport:
    """What a build fixed and measured, as in ``build.json``. Seconds: from the start of the process to its first token.

    ``cold_start_s``: with empty caches; ``warm_start_s``: with those that the first start filled.
    ``weights_gb``: of the checkpoint's files, 10^9 bytes. ``graph_sizes``: batch sizes with a CUDA graph.
    """

    vllm: str
    device: str
    cold_start_s: float
    warm_start_s: float
    cache_mb: float
    kv_blocks: int
    tokens_per_block: int
    graph_sizes: tuple[int, ...]
    weights_gb: float

    @property
    def kv_tokens(self) -> int:
        return self.kv_blocks * self.tokens_per_block

    @property
    def saved_s(self) -> float:
        """What a second start saves."""
        return self.cold_start_s - self.warm_start_s


def build_engine(
    checkpoint: Path, out: Path, options: VllmBuildOptions, installation: VllmInstallation, *, cache: Path | None = None
) -> BuildReport:
    """Write ``config.json``, ``tokenizer/`` and ``build.json`` into ``out``; the weights stay in place.

    ``checkpoint``: a Hugging Face Llama folder, quantized or not. ``cache``: what the first start compiles, and later
    ones may add to; None: ``out``/cache. It is emptied. Starts the engine twice.
    Raises :class:`UsageError` for options that cannot work here, :class:`CheckpointError` for an unreadable checkpoint,
    and the :class:`EngineError` of an engine that does not start.
    """
    model = read_model(checkpoint)
    check_options(options, model, installation)
    out.mkdir(parents=True, exist_ok=True)
    cache = (cache or out / "cache").resolve()
    shutil.rmtree(cache, ignore_errors=True)
    copy_tokenizer(checkpoint, out)
    config = engine_config(checkpoint.resolve(), cache, options, installation, model)
    try:
        _write(out / "config.json", config)
        cold_s, ready = measure_start(out)
        config["build_config"]["tokens_per_block"] = ready["block_size"]
        _write(out / "config.json", config)
        warm_s, ready = measure_start(out)
    except BaseException:
        (out / "config.json").unlink(missing_ok=True)  # what does not start is no engine
        raise
    report = BuildReport(
        vllm=installation.vllm,
        device=installation.device,
        cold_start_s=cold_s,
        warm_start_s=warm_s,
        cache_mb=round(_bytes(cache, "**/*") / 1e6, 1),
        kv_blocks=ready["kv_blocks"],
        tokens_per_block=ready["block_size"],
        graph_sizes=tuple(ready["graph_sizes"]),
        weights_gb=round(_bytes(checkpoint, "*.safetensors") / 1e9, 4),
    )
    _write(out / "build.json", asdict(report))
    return report


def read_report(folder: Path) -> BuildReport:
    """The ``build.json`` of an engine folder."""
    written = json.loads((folder / "build.json").read_text(encoding="utf-8"))
    return BuildReport(**{**written, "graph_sizes": tuple(written["graph_sizes"])})


def measure_start(folder: Path) -> tuple[float, dict[str, Any]]:
    """Start an engine and end it: seconds until it had made its first token, and what it said of itself."""
    began = time.monotonic()
    with VllmEngine(folder) as engine:
        return round(time.monotonic() - began, 2), engine.ready


def read_model(checkpoint: Path) -> dict[str, Any]:
    """The architecture under TensorRT-LLM's key names, from a Hugging Face ``config.json``."""
    try:
        written = json.loads((checkpoint / "config.json").read_text(encoding="utf-8"))
        if ARCHITECTURE not in written["architectures"]:
            raise CheckpointError(f"{checkpoint} holds {written['architectures']}", fix="use a Llama-3 checkpoint")
        return {"architecture": ARCHITECTURE, **_shape(written), "quantization": _quantization(checkpoint, written)}
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise CheckpointError(
            f"{checkpoint} is no Hugging Face checkpoint", why=repr(error), fix="export it in the Hugging Face layout"
        ) from error


def _shape(written: Mapping[str, Any]) -> dict[str, Any]:
    heads, rope = written["num_attention_heads"], written.get("rope_parameters") or {}
    scaling = written.get("rope_scaling") or (rope if rope.get("rope_type", "default") != "default" else None)
    return {
        "num_hidden_layers": written["num_hidden_layers"],
        "num_attention_heads": heads,
        "num_key_value_heads": written.get("num_key_value_heads", heads),
        "head_size": written.get("head_dim") or written["hidden_size"] // heads,
        "hidden_size": written["hidden_size"],
        "intermediate_size": written["intermediate_size"],
        "vocab_size": written["vocab_size"],
        "norm_epsilon": written["rms_norm_eps"],
        "max_position_embeddings": written["max_position_embeddings"],
        "rotary_base": written.get("rope_theta") or rope["rope_theta"],
        "rotary_scaling": scaling,
    }


def _quantization(checkpoint: Path, written: Mapping[str, Any]) -> dict[str, str | None]:
    """modelopt writes it into ``hf_quant_config.json`` and, newer ones also, into ``config.json``."""
    path = checkpoint / "hf_quant_config.json"
    if path.is_file():
        told = json.loads(path.read_text(encoding="utf-8"))["quantization"]
        return {"quant_algo": told.get("quant_algo"), "kv_cache_quant_algo": told.get("kv_cache_quant_algo")}
    inside = written.get("quantization_config") or {}
    algorithm = inside.get("quant_algo") or (inside.get("quant_method") or "").upper() or None
    return {"quant_algo": algorithm, "kv_cache_quant_algo": "FP8" if inside.get("kv_cache_scheme") else None}


def check_options(options: VllmBuildOptions, model: Mapping[str, Any], installation: VllmInstallation) -> None:
    """Raise :class:`UsageError` for what cannot work with this checkpoint or in this installation."""
    algorithm, kv_algorithm = model["quantization"]["quant_algo"], model["quantization"]["kv_cache_quant_algo"]
    on_cpu, heads = installation.device == "cpu", model["num_key_value_heads"]
    positions = model["max_position_embeddings"]
    limits = {name: value for name, value in asdict(options).items() if name.startswith("max_")}
    problems = [
        (
            on_cpu and bool(algorithm),
            f"a checkpoint in {algorithm}, and vLLM on a CPU",
            "build the BF16 checkpoint here, or use a GPU: vLLM has FP8 kernels for GPUs only",
        ),
        (
            on_cpu and (options.kv_cache_dtype == "fp8" or bool(kv_algorithm)),
            "an FP8 KV cache, and vLLM on a CPU",
            "use kv_cache_dtype bfloat16 and a checkpoint without KV cache scales",
        ),
        (
            options.kv_cache_dtype == "fp8" and not kv_algorithm,
            "kv_cache_dtype fp8 for a checkpoint without KV cache scales, which come from calibration",
            "quantize with kv_cache_dtype fp8",
        ),
        (
            installation.gpus is not None and not on_cpu and options.tp_size > installation.gpus,
            f"tp_size {options.tp_size}, and there are {installation.gpus} GPUs",
            "lower tp_size, or use a machine with more GPUs",
        ),
        (on_cpu and options.tp_size > 1, f"tp_size {options.tp_size} on a CPU", "use tp_size 1"),
        (
            bool(heads % options.tp_size),
            f"tp_size {options.tp_size} does not divide the {heads} KV heads",
            "choose one that does",
        ),
        (min(limits.values()) < 1, f"a limit is below 1: {limits}", "use positive numbers"),
        (
            options.max_input_len >= options.max_seq_len,
            f"max_input_len {options.max_input_len} leaves no room in max_seq_len {options.max_seq_len}",
            "max_seq_len counts prompt and answer: make it larger",
        ),
        (
            options.max_seq_len > positions,
            f"max_seq_len {options.max_seq_len} exceeds the model's {positions} positions",
            "make it smaller",
        ),
        (
            options.max_num_tokens < options.max_batch_size,
            f"max_num_tokens {options.max_num_tokens} is below max_batch_size {options.max_batch_size}",
            "every request of a batch needs a token in each step: raise max_num_tokens",
        ),
    ]
    for wrong, what, fix in problems:
        if wrong:
            raise UsageError(f"engine options refused: {what}", fix=fix)


def engine_config(
    checkpoint: Path, cache: Path, options: VllmBuildOptions, installation: VllmInstallation, model: Mapping[str, Any]
) -> dict[str, Any]:
    """The ``config.json`` of an engine folder; ``tokens_per_block`` is known after the first start."""
    tp, kv_algorithm = options.tp_size, model["quantization"]["kv_cache_quant_algo"]
    fp8_kv = bool(kv_algorithm) and options.kv_cache_dtype != "bfloat16"
    limits = {name: value for name, value in asdict(options).items() if name.startswith("max_")}
    return {
        "builder": {"name": "vllm", "version": installation.vllm},
        "pretrained_config": {**model, "mapping": {"world_size": tp, "tp_size": tp, "pp_size": 1}},
        "build_config": {
            **limits,
            "kv_cache_dtype": "fp8" if fp8_kv else "bfloat16",
            "tokens_per_block": PROVISIONAL_BLOCK,
            "use_paged_kv_cache": True,
            "enable_block_reuse": options.enable_block_reuse,
        },
        "vllm": {
            "model": str(checkpoint),
            "args": vllm_arguments(options, installation, model),
            "python": str(installation.python),
            "env": worker_environment(cache),
            "start_s": options.start_s,
            "hang_s": options.hang_s,
        },
    }


def vllm_arguments(
    options: VllmBuildOptions, installation: VllmInstallation, model: Mapping[str, Any]
) -> dict[str, Any]:
    """Arguments of vLLM's ``AsyncEngineArgs``."""
    on_cpu = installation.device == "cpu"
    eager = on_cpu if options.eager is None else options.eager
    arguments: dict[str, Any] = {
        "dtype": "bfloat16",
        "kv_cache_dtype": options.kv_cache_dtype,
        "max_num_seqs": options.max_batch_size,
        "max_num_batched_tokens": options.max_num_tokens,
        "max_model_len": options.max_seq_len,
        "tensor_parallel_size": options.tp_size,
        "enable_prefix_caching": options.enable_block_reuse,
        "stream_interval": options.stream_interval,
        "enforce_eager": eager,
        "skip_tokenizer_init": True,
        "generation_config": "vllm",
        "seed": 0,
    }
    cache_bytes = options.kv_cache_bytes or (full_batch_bytes(options, model) if on_cpu else 0)
    if cache_bytes:
        arguments["kv_cache_memory_bytes"] = cache_bytes
    if not on_cpu:
        arguments["gpu_memory_utilization"] = options.gpu_memory_utilization
    if not (on_cpu or eager):
        arguments["cudagraph_capture_sizes"] = graph_sizes(options.max_batch_size)
    return arguments


def graph_sizes(largest: int) -> list[int]:
    """Batch sizes that get a CUDA graph: each captured one takes time at the start, the others are padded to one."""
    return sorted({size for size in (1, 2, 4, *range(GRAPH_STEP, largest, GRAPH_STEP)) if size < largest} | {largest})


def full_batch_bytes(options: VllmBuildOptions, model: Mapping[str, Any]) -> int:
    """Bytes of a BF16 KV cache for ``max_batch_size`` sequences of ``max_seq_len``, and vLLM's null block."""
    blocks = options.max_batch_size * -(-options.max_seq_len // CPU_BLOCK) + 1
    values = 2 * model["num_hidden_layers"] * model["num_key_value_heads"] * model["head_size"]
    return int(blocks * CPU_BLOCK * values * BF16_BYTES)


def worker_environment(cache: Path) -> dict[str, str]:
    """Variables of the engine's process: the caller's own for vLLM, and where it keeps what it compiles."""
    users = {name: value for name, value in os.environ.items() if name.startswith(USERS)}
    return {
        **ALWAYS,
        **users,
        "VLLM_CACHE_ROOT": str(cache / "vllm"),
        "TRITON_CACHE_DIR": str(cache / "triton"),
        "TORCHINDUCTOR_CACHE_DIR": str(cache / "inductor"),
    }


def _bytes(folder: Path, pattern: str) -> int:
    return sum(path.stat().st_size for path in folder.glob(pattern) if path.is_file())


def _write(path: Path, content: Mapping[str, Any]) -> None:
    path.write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")
