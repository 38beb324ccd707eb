"""Text in, text out on the engine of any folder: what TensorRT-LLM's ``run.py`` does, in this process."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, closing
from pathlib import Path
from typing import Any

from model_server.answers import complete, stream
from model_server.engines import EngineOptions, ServedEngine, opener_of
from model_server.protocol import Sampling
from model_server.text import TextCodec

GREEDY: Mapping[str, Any] = {}
Opened = Callable[[Path], AbstractContextManager[ServedEngine]]
"""An engine folder's engine: opened for one use, or held open (:func:`model_server.engines.held_engine`)."""


def opened_once(folder: Path) -> AbstractContextManager[ServedEngine]:
    return closing(opener_of(folder).open_engine(folder, EngineOptions()))


def generate_text(
    engine_dir: Path,
    prompts: Sequence[str],
    max_new_tokens: int,
    sampling: Mapping[str, Any] = GREEDY,
    *,
    opened: Opened = opened_once,
) -> list[str]:
    """Answers to ``prompts``, whose text already holds its special tokens; each ends at the tokenizer's end token.

    ``sampling``: fields of :class:`Sampling`, such as ``top_k`` and ``seed``; none is greedy.
    """
    codec = TextCodec.load(engine_dir / "tokenizer")
    ids = [codec.encode(prompt, special_tokens=False) for prompt in prompts]
    asked = Sampling(max_new_tokens=max_new_tokens, end_id=codec.end_id, **sampling)
    with opened(engine_dir) as engine:
        completions = complete(engine, ids, asked)
    return [codec.decode(each.token_ids) for each in completions]


def stream_text(engine_dir: Path, prompt: str, max_new_tokens: int, *, opened: Opened = opened_once) -> list[str]:
    """The greedy answer to ``prompt`` in the pieces in which it comes."""
    codec = TextCodec.load(engine_dir / "tokenizer")
    asked = Sampling(max_new_tokens=max_new_tokens, end_id=codec.end_id)
    ids = codec.encode(prompt, special_tokens=False)
    with opened(engine_dir) as engine:
        return [codec.decode(output.token_ids, skip_special_tokens=False) for output in stream(engine, ids, asked)]
