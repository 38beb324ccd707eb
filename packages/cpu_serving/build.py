"""Compile a checkpoint ahead of time into an engine folder: the embedded lane's ``trtllm-build``."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from cpu_serving.checkpoint import read_checkpoint
from cpu_serving.config import EngineConfig
from cpu_serving.graph import build_graph
from cpu_serving.llama import LlamaShape
from cpu_serving.runtime import openvino
from serving_base.errors import EngineError, UsageError
from serving_base.tokenizer_files import copy_tokenizer

if TYPE_CHECKING:
    from trtllm_check.deployment import Deployment

TOKENS_PER_BLOCK = 32  # fixed by OpenVINO's CPU plugin
_NO_OPERATION = {"Constant", "Const", "Parameter", "Input", "Result", "Output"}


@dataclass(frozen=True)
class BuildOptions:
    """Limits of an engine, named as ``trtllm-build`` names them; lengths in tokens.

    ``max_num_tokens``: tokens of all requests together in one step (longer prompts are split over steps).
    ``max_seq_len``: prompt and answer together. ``kv_cache_dtype`` "auto": as the checkpoint.
    ``use_paged_context_fmha`` lets a prompt start from cached blocks of an earlier one: what block reuse needs. Reused
    are whole blocks of prompts only, which the graph makes possible (``tagged_prompts`` in ``config.json``).
    """

    max_batch_size: int = 8
    max_num_tokens: int = 256
    max_input_len: int = 1024
    max_seq_len: int = 2048
    kv_cache_dtype: Literal["auto", "fp8", "bfloat16"] = "auto"
    use_paged_kv_cache: bool = True
    use_paged_context_fmha: bool = True

    @classmethod
    def from_profile(cls, profile: Deployment) -> BuildOptions:
        return cls(
            max_batch_size=profile.max_batch_size,
            max_num_tokens=profile.max_num_tokens,
            max_input_len=profile.max_input_len,
            max_seq_len=profile.max_seq_len,
        )


def build_engine(checkpoint: Path, out: Path, options: BuildOptions) -> EngineConfig:
    """Write ``openvino_model.xml``, ``openvino_model.bin``, ``config.json`` and ``tokenizer/`` into ``out``.

    ``checkpoint``: a TensorRT-LLM checkpoint or a Hugging Face Llama folder.
    Raises :class:`UsageError` for options that cannot work, ``CheckpointError`` for an unreadable checkpoint.
    """
    weights = read_checkpoint(checkpoint)
    _check(options, weights.shape)
    fp8_kv_cache = _fp8_kv_cache(options, weights.shape)
    model = build_graph(weights, fp8_kv_cache=fp8_kv_cache, tagged_prompts=options.use_paged_context_fmha)
    out.mkdir(parents=True, exist_ok=True)
    openvino().save_model(model, out / "openvino_model.xml", compress_to_fp16=False)
    config = {
        "builder": {"name": "openvino", "version": openvino().__version__},
        "pretrained_config": _pretrained_config(weights.shape),
        "build_config": {
            "max_batch_size": options.max_batch_size,
            "max_num_tokens": options.max_num_tokens,
            "max_input_len": options.max_input_len,
            "max_seq_len": options.max_seq_len,
            "kv_cache_dtype": "fp8" if fp8_kv_cache else "bfloat16",
            "tokens_per_block": TOKENS_PER_BLOCK,
            "use_paged_kv_cache": options.use_paged_kv_cache,
            "enable_block_reuse": options.use_paged_context_fmha,
            "tagged_prompts": options.use_paged_context_fmha,
        },
    }
    (out / "config.json").write_text(json.dumps(config, indent=2) + "\n", encoding="utf-8")
    copy_tokenizer(checkpoint, out)
    return EngineConfig.read(out)


@dataclass(frozen=True)
class GraphStage:
    """A graph at one point of its compilation: how many operations of each type, constants and inputs left out."""

    name: str
    counts: Mapping[str, int]

    @property
    def operations(self) -> int:
        return sum(self.counts.values())


@dataclass(frozen=True)
class CompiledReport:
    """What the compiler does with an engine, and the bytes of the engine's files.

    Stages: ``written`` (the engine's file), ``paged`` (attention over a cache in variables has become paged
    attention), ``compiled`` (what the CPU executes: norms, rotary embeddings and projections fused).
    """

    stages: tuple[GraphStage, ...]
    file_bytes: Mapping[str, int]


def describe_compiled(engine: Path) -> CompiledReport:
    """Compile an engine as the runtime does and count the operations before and after."""
    EngineConfig.read(engine)
    core = openvino().Core()
    model = core.read_model(engine / "openvino_model.xml")
    written = _count(node.get_type_name() for node in model.get_ops())
    openvino("openvino._offline_transformations").paged_attention_transformation(model)
    paged = _count(node.get_type_name() for node in model.get_ops())
    compiled = core.compile_model(model, "CPU", {"INFERENCE_PRECISION_HINT": "f32", "KV_CACHE_PRECISION": "f32"})
    executed = _count(node.get_rt_info()["layerType"].value for node in compiled.get_runtime_model().get_ops())
    if not executed.get("PagedAttention"):
        raise EngineError(f"{engine}: no paged attention after compilation", fix="build the engine again")
    stages = (GraphStage("written", written), GraphStage("paged", paged), GraphStage("compiled", executed))
    files = {path.name: path.stat().st_size for path in sorted(engine.glob("openvino_model.*"))}
    return CompiledReport(stages, files)


def _count(types: Any) -> dict[str, int]:
    counts = Counter(kind for kind in types if kind not in _NO_OPERATION)
    return dict(sorted(counts.items(), key=lambda item: (-item[1], item[0])))


def _fp8_kv_cache(options: BuildOptions, shape: LlamaShape) -> bool:
    stored = shape.kv_cache_quant_algo == "FP8"
    if options.kv_cache_dtype == "fp8" and not stored:
        raise UsageError(
            "kv_cache_dtype fp8 for a checkpoint without KV cache scales",
            why="the scales come from calibration",
            fix="quantize with kv_cache_dtype fp8",
        )
    return stored if options.kv_cache_dtype == "auto" else options.kv_cache_dtype == "fp8"


def _check(options: BuildOptions, shape: LlamaShape) -> None:
    limits = {name: value for name, value in asdict(options).items() if name.startswith("max_")}
    problems = [
        (min(limits.values()) < 1, f"a limit is below 1: {limits}", "use positive numbers"),
        (
            options.max_input_len >= options.max_seq_len,
            f"max_input_len {options.max_input_len} leaves no room in max_seq_len {options.max_seq_len}",
            "max_seq_len counts prompt and answer: make it larger",
        ),
        (
            options.max_seq_len > shape.max_position_embeddings,
            f"max_seq_len {options.max_seq_len} exceeds the model's {shape.max_position_embeddings} positions",
            "make it smaller",
        ),
        (
            options.max_num_tokens < options.max_batch_size,
            f"max_num_tokens {options.max_num_tokens} is below max_batch_size {options.max_batch_size}",
            "every request of a batch needs a token in each step: raise max_num_tokens",
        ),
        (not options.use_paged_kv_cache, "a KV cache that is not paged", "leave use_paged_kv_cache on"),
    ]
    for wrong, what, fix in problems:
        if wrong:
            raise UsageError(f"engine options refused: {what}", fix=fix)


def _pretrained_config(shape: LlamaShape) -> dict[str, Any]:
    """The architecture under TensorRT-LLM's key names. Ranks are merged, so the mapping is of one rank."""
    return {
        "architecture": "LlamaForCausalLM",
        "num_hidden_layers": shape.num_layers,
        "num_attention_heads": shape.num_heads,
        "num_key_value_heads": shape.num_kv_heads,
        "head_size": shape.head_size,
        "hidden_size": shape.hidden_size,
        "intermediate_size": shape.intermediate_size,
        "vocab_size": shape.vocab_size,
        "norm_epsilon": shape.norm_epsilon,
        "max_position_embeddings": shape.max_position_embeddings,
        "rotary_base": shape.rope_theta,
        "rotary_scaling": None if shape.rope_scaling is None else asdict(shape.rope_scaling),
        "mapping": {"world_size": 1, "tp_size": 1, "pp_size": 1},
        "quantization": {"quant_algo": shape.quant_algo, "kv_cache_quant_algo": shape.kv_cache_quant_algo},
    }
