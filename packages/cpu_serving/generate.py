"""Text in, text out on one engine: what TensorRT-LLM's ``run.py`` does, in this process."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from cpu_serving.engine import Engine, Sampling
from cpu_serving.protocol import Batching, StepRecord

GREEDY: Mapping[str, Any] = {}


def generate_text(
    engine_dir: Path, prompts: Sequence[str], max_new_tokens: int, sampling: Mapping[str, Any] = GREEDY
) -> list[str]:
    """Answers to ``prompts``, whose text already holds its special tokens; each ends at the tokenizer's end token.

    ``sampling``: fields of :class:`Sampling`, such as ``top_k`` and ``seed``; none is greedy.
    """
    tokenizer = _tokenizer(engine_dir)
    ids = [tokenizer(prompt, add_special_tokens=False)["input_ids"] for prompt in prompts]
    asked = Sampling(max_new_tokens=max_new_tokens, end_id=tokenizer.eos_token_id, **sampling)
    with Engine(engine_dir) as engine:
        completions = engine.generate(ids, asked)
    return [str(tokenizer.decode(list(each.token_ids), skip_special_tokens=True)) for each in completions]


def stream_text(engine_dir: Path, prompt: str, max_new_tokens: int) -> list[str]:
    """The greedy answer to ``prompt`` in the pieces in which it comes, one a token."""
    tokenizer = _tokenizer(engine_dir)
    asked = Sampling(max_new_tokens=max_new_tokens, end_id=tokenizer.eos_token_id)
    ids = tokenizer(prompt, add_special_tokens=False)["input_ids"]
    with Engine(engine_dir) as engine:
        return [str(tokenizer.decode(list(output.token_ids))) for output in engine.stream(ids, asked)]


def step_records(engine_dir: Path, prompt: str, lengths: Sequence[int], batching: Batching) -> list[StepRecord]:
    """The steps that one request of ``prompt`` per entry of ``lengths`` takes, each that many tokens long."""
    ids = _tokenizer(engine_dir)(prompt, add_special_tokens=False)["input_ids"]
    with Engine(engine_dir, batching=batching, record_steps=True) as engine:
        engine.generate([ids] * len(lengths), [Sampling(max_new_tokens=length) for length in lengths])
        return list(engine.records)


def _tokenizer(engine_dir: Path) -> Any:
    from transformers import PreTrainedTokenizerFast  # a third of the import time of AutoTokenizer

    return PreTrainedTokenizerFast.from_pretrained(engine_dir / "tokenizer")
