"""The vLLM engine as a server opens it: :class:`model_server.engines.Opener`."""

from pathlib import Path

from model_server.engines import EngineOptions, Logits
from serving_base.errors import RequestRefused
from vllm_serving.engine import EngineFolder, VllmEngine

FILLS_UNASKED = False
"""Triton's ensemble keeps what its client does not want of every response up to the answer's end, and then frees it one
answer after the other: 128 streams of an H100 had 0.84 of what the engine gives alone with zeros, 0.91 without.
"""


def open_engine(folder: Path, options: EngineOptions) -> VllmEngine:
    """``options.threads`` is not followed: the worker is no part of the server, and takes the cores that vLLM wants."""
    return VllmEngine(
        folder,
        batching=options.batching,
        kv_cache_blocks=-(-options.kv_cache_tokens // EngineFolder.read(folder).limits.tokens_per_block),
        enable_block_reuse=options.enable_block_reuse,
        gpu_sharers=options.gpu_sharers,
    )


def open_logits(folder: Path) -> Logits:
    raise RequestRefused(
        "this engine gives no logits",
        why=f"vLLM keeps them on the GPU, in the process of {folder.name}",
        fix="ask for log-probabilities, or serve an engine of the embedded lane",
    )
