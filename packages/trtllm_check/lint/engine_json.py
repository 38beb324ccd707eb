"""JSON that people paste beside requests: a checkpoint's or engine's config.json, and model.json of Triton's vLLM."""

from collections.abc import Mapping
from pathlib import PurePosixPath
from typing import Any

from trtllm_check.lint.carriers.python_calls import Call
from trtllm_check.lint.shell import Word

OF_CHECKPOINTS = frozenset({"mapping", "pretrained_config", "build_config", "architecture"})
OF_ALGORITHMS = frozenset({"quant_algo", "kv_cache_quant_algo"})
OF_BODIES = frozenset({"messages", "prompt", "inputs", "input", "text_input", "stream", "max_tokens", "parameters"})
OF_ENGINES = frozenset(
    {
        *("gpu_memory_utilization", "tensor_parallel_size", "pipeline_parallel_size", "max_model_len", "enforce_eager"),
        *("disable_log_requests", "disable_log_stats", "max_num_seqs", "max_num_batched_tokens", "enable_lora"),
        *("enable_prefix_caching", "swap_space", "distributed_executor_backend", "enable_chunked_prefill"),
    }
)
OF_TRITON = "model.json"
ENOUGH = 2  # of them, for a text that nothing names


def is_config(fields: Mapping[str, Any] | None) -> bool:
    """True for what the checker knows as config.json: of a checkpoint or an engine, of a model, or its quantization."""
    return is_checkpoint(fields) or is_quantization(fields) or is_model(fields)


def is_quantization(fields: Mapping[str, Any] | None) -> bool:
    """True for hf_quant_config.json, as ModelOpt writes it beside the weights."""
    quantization = fields.get("quantization") if fields is not None else None
    return isinstance(quantization, dict) and not OF_ALGORITHMS.isdisjoint(quantization)


def is_model(fields: Mapping[str, Any] | None) -> bool:
    """True for config.json of a model of the hub."""
    return fields is not None and isinstance(fields.get("architectures"), list) and "model_type" in fields


def is_checkpoint(fields: Mapping[str, Any] | None) -> bool:
    """True for config.json of a checkpoint or an engine of TensorRT-LLM."""
    if fields is None or not OF_CHECKPOINTS & fields.keys():
        return False
    inner = fields.get("pretrained_config")
    mapping = fields.get("mapping") or (inner.get("mapping") if isinstance(inner, dict) else None)
    return isinstance(mapping, dict) and "tp_size" in mapping


def engine_call(fields: Mapping[str, Any] | None, word: Word, file: str, name: str = "") -> Call | None:
    """model.json of Triton's vLLM backend as the call that the backend makes of it; None for what is none.

    ``name``: how a text calls the file that it writes; one of another name is read by nobody knows what.
    """
    if fields is None or not isinstance(fields.get("model"), str) or PurePosixPath(name).name not in ("", OF_TRITON):
        return None
    if OF_BODIES & fields.keys() or len(OF_ENGINES & fields.keys()) < ENOUGH:
        return None
    arguments, values = [], []
    for name, value in fields.items():
        index = word.text.find(f'"{name}"')
        key = word.part(index + 1, index + 1 + len(name)) if index >= 0 else word
        arguments.append(key)
        if isinstance(value, str | int | float):
            values.append((name, Word(str(value), key.line, key.column)))
    return Call("vllm", "AsyncEngineArgs", tuple(arguments), file, tuple(values))
