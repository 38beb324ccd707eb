"""The tiny model's text as token ids: for training, calibration and evaluation."""

import json
from typing import Any

from serving_base.quality import unigram_perplexity, windows
from tiny_llama import TEXT_DIR


def read_questions(name: str) -> list[dict[str, str]]:
    """The templated questions that were trained on (``"train"``) or held out (``"held"``)."""
    lines = (TEXT_DIR / f"questions_{name}.jsonl").read_text(encoding="utf-8").splitlines()
    return [json.loads(line) for line in lines]


def document_ids(tokenizer: Any, name: str) -> list[int]:
    """Ids of every paragraph, each opened by ``<|begin_of_text|>``, in one stream."""
    lines = (TEXT_DIR / f"docs_{name}.txt").read_text(encoding="utf-8").splitlines()
    return [token for ids in tokenizer(lines)["input_ids"] for token in ids]


def prompt_ids(tokenizer: Any, question: str) -> list[int]:
    """Ids of ``question`` as a user's message in Llama-3's chat format, up to where the assistant begins."""
    chat = [{"role": "user", "content": question}]
    return list(tokenizer.apply_chat_template(chat, add_generation_prompt=True, return_dict=False))


def calibration_texts(tokenizer: Any, samples: int, max_length: int) -> list[list[int]]:
    """Texts to calibrate on: one question with its answer for every three windows of documents, in a fixed order."""
    ids, questions = document_ids(tokenizer, "train"), read_questions("train")
    starts = range(0, len(ids), max_length)

    def text(position: int) -> list[int]:
        if position % 4 == 3:
            item = questions[position * 7 % len(questions)]
            answer = tokenizer.encode(item["answer"], add_special_tokens=False)
            return [*prompt_ids(tokenizer, item["question"]), *answer]
        start = starts[position * 7 % len(starts)]
        return ids[start : start + max_length]

    return [text(position)[:max_length] for position in range(samples)]


def evaluation_texts(tokenizer: Any, count: int = 32, size: int = 256) -> list[list[int]]:
    """The first ``count`` held-out windows of ``size`` predictions: what every chapter measures perplexity on."""
    return [list(window) for window in windows(document_ids(tokenizer, "held"), size)][:count]


def unigram_baseline(tokenizer: Any) -> float:
    """Held-out perplexity of a model that knows only token frequencies."""
    return unigram_perplexity(document_ids(tokenizer, "train"), document_ids(tokenizer, "held"), len(tokenizer))
