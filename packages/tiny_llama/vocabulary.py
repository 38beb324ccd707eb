"""What the size of a vocabulary does: fewer tokens for a text, and more parameters for the ends of a model.

Vocabularies of several sizes are trained here, and four texts were counted with the tokenizers of Llama-2 and Llama-3
themselves (``vocabularies.yml``), whose files do not ship.
"""

import hashlib
import json
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from serving_base.errors import UsageError
from serving_base.yaml_files import read_yaml
from tiny_llama import TEXT_DIR
from tiny_llama.tokenizer import byte_level_bpe

if TYPE_CHECKING:
    from tokenizers import Tokenizer

COUNTED = TEXT_DIR.parent / "vocabularies.yml"
BYTES = 256  # every vocabulary begins with the single bytes, so that no text is unknown


def train_sizes(sizes: Sequence[int]) -> "dict[int, Tokenizer]":
    """A vocabulary of each size, trained on the tiny model's documents. Smaller ones are the beginning of the largest.

    Byte-pair encoding merges the most frequent pair first, so the first tokens are the same whatever the size.
    """
    if min(sizes) <= BYTES:
        raise UsageError(f"a vocabulary of {min(sizes)} tokens", why=f"the single bytes are {BYTES}", fix="take more")
    documents = (TEXT_DIR / "docs_train.txt").read_text(encoding="utf-8").splitlines()
    largest = byte_level_bpe(documents, max(sizes))
    return {size: _first(largest, size) for size in sizes}


def _first(tokenizer: "Tokenizer", size: int) -> "Tokenizer":
    from tokenizers import Tokenizer

    content = json.loads(tokenizer.to_str())
    model = content["model"]
    model["vocab"] = {token: number for token, number in model["vocab"].items() if number < size}
    model["merges"] = model["merges"][: size - BYTES]
    return Tokenizer.from_str(json.dumps(content))


def bytes_per_token(tokenizer: "Tokenizer", texts: Iterable[str]) -> float:
    """UTF-8 bytes of ``texts`` over their tokens, without special tokens."""
    texts = list(texts)
    tokens = sum(len(tokenizer.encode(text, add_special_tokens=False).ids) for text in texts)
    return sum(len(text.encode()) for text in texts) / tokens


def held_texts() -> list[str]:
    """The held-out documents, by paragraph: the vocabularies were not trained on them."""
    return (TEXT_DIR / "docs_held.txt").read_text(encoding="utf-8").splitlines()


def counted_rows() -> list[dict[str, Any]]:
    """A row per text: its name, its UTF-8 bytes and its tokens by tokenizer, as counted once (:func:`counted_source`).

    :class:`UsageError` when a text is no longer the one that was counted.
    """
    found = _counted()
    texts: dict[str, str] = found["texts"]
    digest = hashlib.sha256(json.dumps(texts, ensure_ascii=False).encode()).hexdigest()[:12]
    if digest != found["counted"]["texts_sha256"]:
        raise UsageError(
            f"the texts of {COUNTED.name} changed after they were counted",
            why=f"their hash is {digest}, and {found['counted']['texts_sha256']} was counted",
            fix="count them again with both tokenizers",
        )
    sizes = {name: len(text.encode()) for name, text in texts.items()} | {
        "held-out documents": sum(len(text.encode()) for text in held_texts())
    }
    tokens: dict[str, dict[str, int]] = found["counted"]["tokens"]
    return [{"text": name, "bytes": size} | {one: tokens[one][name] for one in tokens} for name, size in sizes.items()]


def counted_source() -> str:
    """When the texts were counted, and with which files."""
    return str(_counted()["counted"]["source"])


def _counted() -> dict[str, Any]:
    content: dict[str, Any] = read_yaml(COUNTED)
    return content
