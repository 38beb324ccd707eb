"""The part of an engine folder's ``config.json`` that the engine enforces."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from model_server.protocol import EngineLimits, Sampling
from serving_base.errors import EngineError, MissingArtifact

_BUILD_KEYS = (
    "max_batch_size",
    "max_num_tokens",
    "max_input_len",
    "max_seq_len",
    "kv_cache_dtype",
    "tokens_per_block",
    "use_paged_kv_cache",
    "enable_block_reuse",
)


@dataclass(frozen=True)
class EngineConfig(EngineLimits):
    """The limits, and what the engine must know of the graph.

    ``enable_block_reuse``: a prompt may start from whole blocks of earlier prompts. It is safe only where the graph
    takes tagged token ids (``tagged_prompts``; False in folders written before there were tags): docs/engine-reuse.md.
    """

    kv_cache_dtype: str
    use_paged_kv_cache: bool
    enable_block_reuse: bool
    vocab_size: int
    num_layers: int
    num_kv_heads: int
    head_size: int
    tagged_prompts: bool = False

    @classmethod
    def read(cls, folder: Path) -> EngineConfig:
        """Read ``folder``/config.json; :class:`MissingArtifact` or :class:`EngineError` says what is wrong with it."""
        path = Path(folder) / "config.json"
        if not path.is_file() or not (Path(folder) / "openvino_model.xml").is_file():
            raise MissingArtifact(
                f"no engine in {folder}", why="config.json or openvino_model.xml is not there", fix="build the engine"
            )
        try:
            written = json.loads(path.read_text(encoding="utf-8"))
            build, pretrained = written["build_config"], written["pretrained_config"]
            return cls(
                **{name: build[name] for name in _BUILD_KEYS},
                tagged_prompts=build.get("tagged_prompts", False),
                vocab_size=pretrained["vocab_size"],
                num_layers=pretrained["num_hidden_layers"],
                num_kv_heads=pretrained["num_key_value_heads"],
                head_size=pretrained["head_size"],
            )
        except (ValueError, KeyError, TypeError) as error:
            raise EngineError(
                f"{path} is not an engine's config.json", why=repr(error), fix="build the engine again"
            ) from error

    def check_request(self, prompt_ids: Sequence[int], sampling: Sampling, kv_blocks: int) -> None:
        """Raise :class:`EngineError` when a request can never run in this engine with ``kv_blocks`` cache blocks."""
        sampling.check()
        self.check_fits(len(prompt_ids), sampling, kv_blocks)
        outside = [token for token in prompt_ids if not 0 <= token < self.vocab_size]
        if outside:
            raise EngineError(
                f"request refused: token ids outside the vocabulary of {self.vocab_size}: {outside[:5]}",
                fix="use the tokenizer that belongs to this engine",
            )
