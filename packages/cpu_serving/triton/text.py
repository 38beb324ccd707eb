"""Text to token ids and back, with the ``tokenizers`` library alone: no torch, no transformers."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from tokenizers import Tokenizer

from serving_base.errors import EnvironmentProblem, RequestRefused


@dataclass(frozen=True)
class TextCodec:
    """A tokenizer folder's tokenizer and the ids that end and pad an answer."""

    tokenizer: Tokenizer
    end_id: int
    pad_id: int

    @classmethod
    def load(cls, folder: Path) -> "TextCodec":
        """Read ``folder``/tokenizer.json and the special tokens beside it. Without a pad token the end token pads."""
        path = folder / "tokenizer.json"
        if not path.is_file():
            raise EnvironmentProblem(f"no tokenizer in {folder}", why=f"{path} is not there", fix="fill tokenizer_dir")
        tokenizer = Tokenizer.from_file(str(path))
        names = _special_tokens(folder)
        if "eos_token" not in names:
            raise EnvironmentProblem(
                f"{folder} does not name an end token", fix='write "eos_token" in tokenizer_config.json'
            )
        end_id = tokenizer.token_to_id(names["eos_token"])
        pad_id = tokenizer.token_to_id(names.get("pad_token", names["eos_token"]))
        if end_id is None or pad_id is None:
            raise EnvironmentProblem(f"the special tokens of {folder} are not in its vocabulary: {names}")
        return cls(tokenizer, end_id, pad_id)

    def encode(self, text: str, *, special_tokens: bool) -> list[int]:
        return list(self.tokenizer.encode(text, add_special_tokens=special_tokens).ids)

    def decode(self, ids: Sequence[int], *, skip_special_tokens: bool) -> str:
        return str(self.tokenizer.decode(list(ids), skip_special_tokens=skip_special_tokens))

    def prompts(self, texts: Sequence[str], *, special_tokens: bool) -> tuple[np.ndarray, np.ndarray]:
        """Padded ids [B, L] and lengths [B, 1], int32. :class:`RequestRefused` for an empty text."""
        rows = []
        for number, text in enumerate(texts):
            if not text:
                where = f" (row {number} of the batch)" if len(texts) > 1 else ""
                raise RequestRefused(f"text_input is empty{where}", fix="send a prompt")
            rows.append(self.encode(text, special_tokens=special_tokens))
        longest = max(len(row) for row in rows)
        padded = [row + [self.pad_id] * (longest - len(row)) for row in rows]
        return np.array(padded, np.int32), np.array([[len(row)] for row in rows], np.int32)

    def words(self, rows: Sequence[Sequence[str]]) -> np.ndarray:
        """Word lists in TensorRT-LLM's layout, int32 [B, 2, n].

        Above: the ids of all words of the row, one after the other, padded with 0; below: where each word ends,
        padded with -1. Words are compared as token ids: "the" is not " the". No words at all: n is 0.
        """
        encoded = [[self.encode(word, special_tokens=False) for word in row if word] for row in rows]
        width = max((sum(len(ids) for ids in words) for words in encoded), default=0)
        layout = np.zeros((len(encoded), 2, width), np.int32)
        layout[:, 1] = -1
        for row, words in zip(layout, encoded, strict=True):
            ends = np.cumsum([len(ids) for ids in words], dtype=np.int32)
            row[1, : len(ends)] = ends
            row[0, : sum(len(ids) for ids in words)] = [token for ids in words for token in ids]
        return layout


def _special_tokens(folder: Path) -> dict[str, str]:
    names: dict[str, str] = {}
    for file in ("special_tokens_map.json", "tokenizer_config.json"):
        path = folder / file
        written = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
        for key in ("eos_token", "pad_token"):
            token = written.get(key)
            if token:
                names[key] = token["content"] if isinstance(token, dict) else token
    return names
