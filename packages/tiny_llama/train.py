"""Train the tiny model, seeded, on the committed text: ``python -m tiny_llama.train``.

It takes minutes on two CPU cores and writes the weights (BF16 safetensors) and, beside them, a model card
(``README.md``) with the figures measured at the end of the run.
"""

import json
import math
import random
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from serving_base.quality import perplexity, torch_logits, unigram_perplexity, windows
from tiny_llama import MODEL_DIR
from tiny_llama.data import document_ids, prompt_ids, read_questions

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


IGNORED = -100  # label of a token that the loss skips


@dataclass(frozen=True)
class Recipe:
    """Everything that decides the result, besides the text."""

    hidden: int = 256
    intermediate: int = 768
    layers: int = 4
    heads: int = 8
    kv_heads: int = 2
    steps: int = 1300
    learning_rate: float = 2e-3
    question_share: float = 0.4
    polish_steps: int = 120  # a second phase, from the saved BF16 weights: the facts that were learned last
    polish_learning_rate: float = 6e-4
    polish_question_share: float = 0.75
    warmup_steps: int = 50
    batch: int = 16
    length: int = 256
    seed: int = 0
    threads: int = 1


def build_model(recipe: Recipe, tokenizer: Any) -> Any:
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(recipe.seed)
    return LlamaForCausalLM(
        LlamaConfig(
            vocab_size=len(tokenizer),
            hidden_size=recipe.hidden,
            intermediate_size=recipe.intermediate,
            num_hidden_layers=recipe.layers,
            num_attention_heads=recipe.heads,
            num_key_value_heads=recipe.kv_heads,
            max_position_embeddings=2048,
            rms_norm_eps=1e-5,
            rope_parameters={"rope_type": "default", "rope_theta": 500000.0},
            tie_word_embeddings=False,
            bos_token_id=tokenizer.bos_token_id,
            eos_token_id=tokenizer.eos_token_id,
            pad_token_id=tokenizer.pad_token_id,
        )
    )


def batches(
    recipe: Recipe, question_share: float, documents: list[int], chats: list[tuple[list[int], list[int]]]
) -> Iterator[tuple[Any, Any]]:
    """Yield (ids, labels), each (batch, length): rows of documents, then rows of packed questions and answers."""
    import torch

    rng = random.Random(recipe.seed)

    def asked() -> Iterator[tuple[list[int], list[int]]]:
        while True:
            yield from rng.sample(chats, len(chats))

    stream = asked()
    question_rows = round(recipe.batch * question_share)
    while True:
        ids, labels = [], []
        for _ in range(recipe.batch - question_rows):
            start = rng.randrange(len(documents) - recipe.length - 1)
            row = documents[start : start + recipe.length + 1]
            ids.append(row[:-1])
            labels.append(row[1:])
        for _ in range(question_rows):
            row, targets = [], []
            while len(row) < recipe.length + 1:
                prompt, answer = next(stream)
                row += prompt + answer
                targets += [IGNORED] * len(prompt) + answer
            ids.append(row[: recipe.length])
            labels.append(targets[1 : recipe.length + 1])
        yield torch.tensor(ids), torch.tensor(labels)  # both [batch, length]


def run_phase(model: Any, feed: Iterator[tuple[Any, Any]], recipe: Recipe, *, steps: int, learning_rate: float) -> None:
    """Train ``model`` in place for ``steps`` batches: AdamW, linear warm-up, cosine decay to a twentieth."""
    import torch
    from torch.nn.functional import cross_entropy
    from tqdm import tqdm

    matrices = [p for p in model.parameters() if p.dim() > 1]
    vectors = [p for p in model.parameters() if p.dim() < 2]
    groups = [{"params": matrices, "weight_decay": 0.1}, {"params": vectors, "weight_decay": 0.0}]
    optimizer = torch.optim.AdamW(groups, lr=learning_rate, betas=(0.9, 0.95))

    def schedule(step: int) -> float:
        cosine = 0.5 * (1 + math.cos(math.pi * min(1.0, step / steps)))
        return min(1.0, (step + 1) / recipe.warmup_steps) * (0.05 + 0.95 * cosine)

    scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, schedule)
    model.train()
    progress = tqdm(range(steps), desc="train", mininterval=10)
    for _ in progress:
        ids, labels = next(feed)
        with torch.autocast("cpu", torch.bfloat16):
            scores = model(input_ids=ids, use_cache=False).logits  # [batch, length, vocabulary]
        loss = cross_entropy(scores.float().flatten(0, 1), labels.flatten())  # [batch * length, ...]
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        scheduler.step()
        progress.set_postfix(loss=f"{loss.item():.3f}", refresh=False)


def save(model: Any, out: Path) -> None:
    """Write ``model`` in BF16 as a Hugging Face folder."""
    import torch

    model.to(torch.bfloat16)
    model.config.rope_theta = 500000.0  # both spellings: transformers 5 reads rope_parameters, older readers this
    model.save_pretrained(out)
    (out / "model.safetensors").chmod(0o644)


def exact_answers(model: Any, tokenizer: Any, questions: list[dict[str, str]]) -> float:
    """Share of the questions whose greedy answer equals the right one, to the letter."""
    import torch

    right = 0
    for item in questions:
        ids = torch.tensor([prompt_ids(tokenizer, item["question"])])  # [1, prompt]
        with torch.inference_mode():
            out = model.generate(ids, attention_mask=torch.ones_like(ids), max_new_tokens=64, do_sample=False)
        right += tokenizer.decode(out[0, ids.shape[1] :], skip_special_tokens=True) == item["answer"]
    return right / len(questions)


def train(recipe: Recipe = Recipe(), out: Path = MODEL_DIR) -> None:
    """Train, save, polish what was saved, evaluate, and write the model card."""
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    torch.set_num_threads(recipe.threads)
    tokenizer = AutoTokenizer.from_pretrained(MODEL_DIR)
    documents, held = document_ids(tokenizer, "train"), document_ids(tokenizer, "held")
    questions = read_questions("train")
    chats = [
        (
            prompt_ids(tokenizer, item["question"]),
            [*tokenizer.encode(item["answer"], add_special_tokens=False), tokenizer.eos_token_id],
        )
        for item in questions
    ]
    started_cpu_s = time.process_time()
    model = build_model(recipe, tokenizer)
    feed = batches(recipe, recipe.question_share, documents, chats)
    run_phase(model, feed, recipe, steps=recipe.steps, learning_rate=recipe.learning_rate)
    save(model, out)
    model = AutoModelForCausalLM.from_pretrained(out, dtype=torch.float32)
    feed = batches(recipe, recipe.polish_question_share, documents, chats)
    run_phase(model, feed, recipe, steps=recipe.polish_steps, learning_rate=recipe.polish_learning_rate)
    save(model, out)
    train_cpu_s = time.process_time() - started_cpu_s

    saved = AutoModelForCausalLM.from_pretrained(out, dtype=torch.bfloat16).eval()
    write_card(
        out,
        recipe=recipe,
        figures={
            "parameters": sum(p.numel() for p in saved.parameters()),
            "weight_bytes": (out / "model.safetensors").stat().st_size,
            "train_tokens": len(documents),
            "held_tokens": len(held),
            "train_cpu_s": round(train_cpu_s),
            "held_perplexity": round(perplexity(torch_logits(saved), windows(held)), 2),
            "unigram_perplexity": round(unigram_perplexity(documents, held, len(tokenizer)), 1),
            "trained_questions_right": exact_answers(saved, tokenizer, questions),
            "held_questions_right": exact_answers(saved, tokenizer, read_questions("held")),
        },
    )


if __name__ == "__main__":
    train()
