"""Text in, text out on one engine: what TensorRT-LLM's ``run.py`` does, in this process."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from cpu_serving.engine import Engine, Sampling
from model_server.protocol import Batching, StepRecord
from model_server.text import TextCodec

GREEDY: Mapping[str, Any] = {}


def generate_text(
    engine_dir: Path, prompts: Sequence[str], max_new_tokens: int, sampling: Mapping[str, Any] = GREEDY
) -> list[str]:
    """Answers to ``prompts``, whose text already holds its special tokens; each ends at the tokenizer's end token.

    ``sampling``: fields of :class:`Sampling`, such as ``top_k`` and ``seed``; none is greedy.
    """
    codec = TextCodec.load(engine_dir / "tokenizer")
    ids = [codec.encode(prompt, special_tokens=False) for prompt in prompts]
    asked = Sampling(max_new_tokens=max_new_tokens, end_id=codec.end_id, **sampling)
    with Engine(engine_dir) as engine:
        completions = engine.generate(ids, asked)
    return [codec.decode(each.token_ids) for each in completions]


def stream_text(engine_dir: Path, prompt: str, max_new_tokens: int) -> list[str]:
    """The greedy answer to ``prompt`` in the pieces in which it comes, one a token."""
    codec = TextCodec.load(engine_dir / "tokenizer")
    asked = Sampling(max_new_tokens=max_new_tokens, end_id=codec.end_id)
    ids = codec.encode(prompt, special_tokens=False)
    with Engine(engine_dir) as engine:
        return [codec.decode(output.token_ids, skip_special_tokens=False) for output in engine.stream(ids, asked)]


def step_records(engine_dir: Path, prompt: str, lengths: Sequence[int], batching: Batching) -> list[StepRecord]:
    """The steps that one request of ``prompt`` per entry of ``lengths`` takes, each that many tokens long."""
    ids = TextCodec.load(engine_dir / "tokenizer").encode(prompt, special_tokens=False)
    with Engine(engine_dir, batching=batching, record_steps=True) as engine:
        engine.generate([ids] * len(lengths), [Sampling(max_new_tokens=length) for length in lengths])
        return list(engine.records)
