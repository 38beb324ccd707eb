"""Text in, text out on one engine: what TensorRT-LLM's ``run.py`` does, in this process."""

from collections.abc import Sequence
from pathlib import Path

from playbook.lanes.embedded.engine import Engine, Sampling


def generate_text(engine_dir: Path, prompts: Sequence[str], max_new_tokens: int) -> list[str]:
    """Greedy answers to ``prompts``, whose text already holds its special tokens; ends at the tokenizer's end token."""
    from transformers import PreTrainedTokenizerFast  # a third of the import time of AutoTokenizer

    tokenizer = PreTrainedTokenizerFast.from_pretrained(engine_dir / "tokenizer")
    ids = [tokenizer(prompt, add_special_tokens=False)["input_ids"] for prompt in prompts]
    sampling = Sampling(max_new_tokens=max_new_tokens, end_id=tokenizer.eos_token_id)
    with Engine(engine_dir) as engine:
        completions = engine.generate(ids, sampling)
    return [str(tokenizer.decode(list(each.token_ids), skip_special_tokens=True)) for each in completions]
