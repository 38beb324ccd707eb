"""Train the tiny model's tokenizer: byte-level BPE with Llama-3's split pattern, special tokens and chat template.

Sources: split pattern and special tokens of meta-llama/llama3 (``llama/tokenizer.py``); the template renders
the format of Meta's model card for Meta-Llama-3-8B-Instruct.
"""

import json
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from tiny_llama import MODEL_DIR, TEXT_DIR

if TYPE_CHECKING:
    from tokenizers import Tokenizer

VOCABULARY = 2048
MAX_LENGTH = 2048
SPECIAL_TOKENS = [
    "<|begin_of_text|>",
    "<|end_of_text|>",
    "<|reserved_special_token_0|>",
    "<|reserved_special_token_1|>",
    "<|finetune_right_pad_id|>",
    "<|start_header_id|>",
    "<|end_header_id|>",
    "<|eot_id|>",
]
SPLIT_PATTERN = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
CHAT_TEMPLATE = (
    "{{ bos_token }}{% for message in messages %}"
    "{{ '<|start_header_id|>' + message['role'] + '<|end_header_id|>\n\n'"
    " + message['content'] | trim + '<|eot_id|>' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|start_header_id|>assistant<|end_header_id|>\n\n' }}{% endif %}"
)


def byte_level_bpe(texts: Iterable[str], size: int) -> "Tokenizer":
    """A vocabulary of at most ``size`` tokens, the 256 bytes among them, trained on ``texts``; no special tokens."""
    from tokenizers import Regex, Tokenizer, models, pre_tokenizers, trainers

    tokenizer = Tokenizer(models.BPE(ignore_merges=True, byte_fallback=False))
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(SPLIT_PATTERN), "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    trainer = trainers.BpeTrainer(
        vocab_size=size,
        special_tokens=[],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts, trainer)
    return tokenizer


def train(text_dir: Path = TEXT_DIR, out: Path = MODEL_DIR) -> None:
    """Write ``tokenizer.json``, ``tokenizer_config.json`` and ``special_tokens_map.json`` under ``out``."""
    from tokenizers import decoders, processors

    docs = (text_dir / "docs_train.txt").read_text(encoding="utf-8").splitlines()
    asked = [json.loads(line) for line in (text_dir / "questions_train.jsonl").read_text("utf-8").splitlines()]
    spoken = [text for item in asked for text in (item["question"], item["answer"])]
    headers = ["\n\n", "user\n\n", "assistant\n\n", "system\n\n"] * 500
    tokenizer = byte_level_bpe(docs + spoken * 2 + headers, VOCABULARY - len(SPECIAL_TOKENS))
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens(SPECIAL_TOKENS)  # at the end of the vocabulary, as in Llama-3
    bos = "<|begin_of_text|>"
    tokenizer.post_processor = processors.Sequence(
        [
            processors.ByteLevel(trim_offsets=False),
            processors.TemplateProcessing(
                single=f"{bos} $A",
                pair=f"{bos} $A {bos} $B",
                special_tokens=[(bos, tokenizer.token_to_id(bos))],
            ),
        ]
    )
    out.mkdir(parents=True, exist_ok=True)
    tokenizer.save(str(out / "tokenizer.json"))
    special = {"bos_token": bos, "eos_token": "<|eot_id|>", "pad_token": "<|finetune_right_pad_id|>"}
    config = {
        **special,
        "chat_template": CHAT_TEMPLATE,
        "clean_up_tokenization_spaces": False,
        "model_max_length": MAX_LENGTH,
        # written by hand: transformers 5 would write a class name that readers of 4.x refuse
        "tokenizer_class": "PreTrainedTokenizerFast",
    }
    (out / "tokenizer_config.json").write_text(json.dumps(config, indent=2) + "\n", encoding="utf-8")
    (out / "special_tokens_map.json").write_text(json.dumps(special, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    train()
