"""Vocabularies of several sizes, and texts that were counted once with Llama's own tokenizers."""

import json
from pathlib import Path

import pytest

from serving_base.errors import UsageError
from tiny_llama import MODEL_DIR, vocabulary
from tiny_llama.tokenizer import SPECIAL_TOKENS, VOCABULARY, train


def test_the_smaller_vocabulary_is_the_beginning_of_the_larger() -> None:
    small, large = vocabulary.train_sizes([300, 400]).values()
    assert (small.get_vocab_size(), large.get_vocab_size()) == (300, 400)
    assert small.get_vocab().items() < large.get_vocab().items()


def test_any_text_can_be_said_and_a_larger_vocabulary_says_it_in_fewer_tokens() -> None:
    small, large = vocabulary.train_sizes([300, 1000]).values()
    texts = ["a function returns a value", "大语言模型 é\n"]
    assert vocabulary.bytes_per_token(large, texts) > vocabulary.bytes_per_token(small, texts) >= 1
    for text in texts:
        ids = small.encode(text, add_special_tokens=False).ids
        alphabet = {number: token for token, number in small.get_vocab().items()}
        assert all(number in alphabet for number in ids)


def test_a_vocabulary_below_the_bytes_is_refused() -> None:
    with pytest.raises(UsageError, match="256 tokens"):
        vocabulary.train_sizes([256, 512])


def test_the_shipped_tokenizer_is_what_training_gives(tmp_path: Path) -> None:
    train(out=tmp_path)
    new, shipped = (json.loads((folder / "tokenizer.json").read_text()) for folder in (tmp_path, MODEL_DIR))
    assert new["model"]["vocab"] == shipped["model"]["vocab"]
    assert len(new["model"]["vocab"]) == VOCABULARY - len(SPECIAL_TOKENS)
    assert new["pre_tokenizer"] == shipped["pre_tokenizer"]


def test_every_counted_text_has_both_counts() -> None:
    rows = vocabulary.counted_rows()
    assert {row["text"] for row in rows} == {"English", "German", "Chinese", "Python", "held-out documents"}
    assert all(0 < row["Llama-3"] <= row["Llama-2"] < row["bytes"] for row in rows)
    assert "llama-models" in vocabulary.counted_source()


def test_a_changed_text_must_be_counted_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    changed = tmp_path / "vocabularies.yml"
    changed.write_text(vocabulary.COUNTED.read_text(encoding="utf-8").replace("A large", "A small"), encoding="utf-8")
    monkeypatch.setattr(vocabulary, "COUNTED", changed)
    with pytest.raises(UsageError, match="changed after they were counted"):
        vocabulary.counted_rows()
