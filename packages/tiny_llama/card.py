"""The tiny model's card (``README.md`` beside the weights), written from the figures of the run that made them."""

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

# ruff: noqa: E501 - table rows of markdown cannot be wrapped
CARD = """\
---
license: apache-2.0
language: en
library_name: transformers
---
# Tiny Llama-3 for the FP8 playbook

A Llama-3-architecture model ({parameters:,} parameters, {megabytes:.1f} MB of BF16 weights) small enough to quantize,
compile and serve on a laptop in seconds. It exists so that every step of the course has real input and a checkable output.

| | |
|---|---|
| architecture | {hidden} hidden, {intermediate} intermediate (SwiGLU), {layers} layers, {heads} query and {kv_heads} KV heads (GQA), RMSNorm, RoPE theta 500000 |
| tokenizer | byte-level BPE, 2048 entries, Llama-3's split pattern, special tokens and chat template |
| training text | CPython 3.11 docstrings and pydoc topics ({train_tokens:,} tokens), PSF licence (`../text/LICENSE.md`); 600 templated questions, this project's own |
| command | `python -m tiny_llama.corpus`, `python -m tiny_llama.tokenizer`, `python -m tiny_llama.train`: {train_cpu_s} CPU s, seed {seed} |
| held-out perplexity | **{held_perplexity}** on {held_tokens:,} tokens; a unigram model of the same tokens has {unigram_perplexity} |
| templated questions | {trained_questions_right:.1%} of those it was trained on, {held_questions_right:.1%} of those held out, answered to the letter |
| licence of the weights | Apache-2.0 |

**It can** answer the templated questions (count to ten in eight languages, one-digit sums, capitals, opposites, days, months)
and continue English in the manner of Python's documentation. **It cannot** do anything else: ask it a question outside the
templates and it will answer one inside them, with confidence. It knows no facts beyond the templates and is not a
conversation partner. Weights trained on another processor differ in the last digits.
"""


def write_card(out: Path, *, recipe: Any, figures: dict[str, Any]) -> None:
    """Write the card and ``training.json`` (recipe and figures) under ``out``."""
    facts = {**asdict(recipe), **figures}
    (out / "training.json").write_text(json.dumps(facts, indent=2) + "\n", encoding="utf-8")
    card = CARD.format(megabytes=figures["weight_bytes"] / 1e6, **facts)
    (out / "README.md").write_text(card, encoding="utf-8")
