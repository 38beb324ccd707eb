"""The embedded engine as a server opens it: :class:`model_server.engines.Opener`."""

from pathlib import Path

from cpu_serving.apart import EngineApart
from cpu_serving.config import EngineConfig
from cpu_serving.engine import Engine
from cpu_serving.runtime import EngineLogits
from model_server.engines import EngineOptions, ServedEngine

FILLS_UNASKED = True


def open_engine(folder: Path, options: EngineOptions) -> ServedEngine:
    opened = EngineApart if options.apart else Engine
    return opened(
        folder,
        threads=options.threads,
        batching=options.batching,
        kv_cache_blocks=-(-options.kv_cache_tokens // EngineConfig.read(folder).tokens_per_block),
        enable_block_reuse=options.enable_block_reuse,
    )


def open_logits(folder: Path) -> EngineLogits:
    return EngineLogits(folder, threads=1)
