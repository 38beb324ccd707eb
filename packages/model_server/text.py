"""Text to token ids and back, and chat messages to a prompt: ``tokenizers`` and jinja2, no torch, no transformers."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from tokenizers import Tokenizer

from serving_base.errors import EnvironmentProblem, RequestRefused

SPECIAL_TOKENS = ("bos_token", "eos_token", "pad_token")
END_TOKENS = ("<|eot_id|>", "<|end_of_text|>")
"""Llama-3 ends a turn with the one and a document with the other; both end an answer."""
UNFINISHED = "\ufffd"
"""What bytes decode to that are no whole character yet."""


@dataclass(frozen=True)
class TextCodec:
    """A tokenizer folder's tokenizer, the special tokens that it names (``eos_token`` ...) and its chat template."""

    tokenizer: Tokenizer
    special_tokens: Mapping[str, str]
    template: str = ""
    folder: Path = Path()

    @classmethod
    def load(cls, folder: Path, *, fix: str = "fill tokenizer_dir") -> "TextCodec":
        """Read ``folder``/tokenizer.json and what stands beside it. Raises :class:`EnvironmentProblem` with ``fix``."""
        path = folder / "tokenizer.json"
        if not path.is_file():
            raise EnvironmentProblem(f"no tokenizer in {folder}", why=f"{path} is not there", fix=fix)
        config = _read_json(folder / "tokenizer_config.json")
        written = _read_json(folder / "special_tokens_map.json") | config
        named = {name: _content(written[name]) for name in SPECIAL_TOKENS if written.get(name)}
        template = folder / "chat_template.jinja"
        source = template.read_text(encoding="utf-8") if template.is_file() else str(config.get("chat_template", ""))
        return cls(Tokenizer.from_file(str(path)), named, source, folder)

    @cached_property
    def end_id(self) -> int:
        """Raises :class:`EnvironmentProblem` where the folder names no end token."""
        return self._id_of("eos_token")

    @cached_property
    def pad_id(self) -> int:
        """Without a pad token the end token pads."""
        return self._id_of("pad_token" if "pad_token" in self.special_tokens else "eos_token")

    @cached_property
    def end_ids(self) -> frozenset[int]:
        """Every token that ends an answer."""
        numbers = map(self.tokenizer.token_to_id, {self.special_tokens.get("eos_token", ""), *END_TOKENS})
        return frozenset(number for number in numbers if number is not None)

    def _id_of(self, name: str) -> int:
        if name not in self.special_tokens:
            raise EnvironmentProblem(
                f"{self.folder} does not name an end token", fix='write "eos_token" in tokenizer_config.json'
            )
        number = self.tokenizer.token_to_id(self.special_tokens[name])
        if number is None:
            raise EnvironmentProblem(
                f"the special tokens of {self.folder} are not in its vocabulary: {dict(self.special_tokens)}"
            )
        return int(number)

    def encode(self, text: str, *, special_tokens: bool) -> list[int]:
        return list(self.tokenizer.encode(text, add_special_tokens=special_tokens).ids)

    def encode_prompt(self, text: str) -> list[int]:
        """Token ids with the begin token in front, unless the text brings it."""
        begin = self.special_tokens.get("bos_token", "")
        return self.encode(text, special_tokens=not (begin and text.startswith(begin)))

    def decode(self, ids: Sequence[int], *, skip_special_tokens: bool = True) -> str:
        return str(self.tokenizer.decode(list(ids), skip_special_tokens=skip_special_tokens))

    def render_chat(self, messages: Sequence[Mapping[str, str]]) -> str:
        """The prompt for these messages, begin token included. Raises :class:`RequestRefused`."""
        from jinja2 import TemplateError
        from jinja2.sandbox import ImmutableSandboxedEnvironment

        if not self.template:
            raise RequestRefused("the model has no chat template", fix="send inputs or prompt instead of messages")
        environment = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True)
        names = {name: self.special_tokens[name] for name in ("bos_token", "eos_token") if name in self.special_tokens}
        try:
            template = environment.from_string(self.template)
            return template.render(messages=messages, add_generation_prompt=True, **names)
        except TemplateError as error:
            raise RequestRefused(f"the chat template refused the messages: {error}") from error

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
        return np.array(padded, np.int32), np.array([[len(row)] for row in rows], np.int32)  # [B, L], [B, 1]

    def words(self, rows: Sequence[Sequence[str]]) -> np.ndarray:
        """Word lists in TensorRT-LLM's layout, int32 [B, 2, n].

        Above: the ids of all words of the row, one after the other, padded with 0; below: where each word ends,
        padded with -1. Words are compared as token ids: "the" is not " the". No words at all: n is 0.
        """
        encoded = [[self.encode(word, special_tokens=False) for word in row if word] for row in rows]
        width = max((sum(len(ids) for ids in words) for words in encoded), default=0)
        layout = np.zeros((len(encoded), 2, width), np.int32)  # [B, 2, n]
        layout[:, 1] = -1
        for row, words in zip(layout, encoded, strict=True):
            ends = np.cumsum([len(ids) for ids in words], dtype=np.int32)
            row[1, : len(ends)] = ends
            row[0, : sum(len(ids) for ids in words)] = [token for ids in words for token in ids]
        return layout


@dataclass
class Detokenizer:
    """The text of one answer, token by token; a character of several tokens comes with its last one."""

    codec: TextCodec
    _pending: list[int] = field(default_factory=list)

    def add(self, token_id: int, *, last: bool) -> str:
        """The text that this token completes; the last token gives what is left."""
        self._pending.append(token_id)
        text = self.codec.decode(self._pending)
        if text.endswith(UNFINISHED) and not last:
            return ""
        self._pending.clear()
        return text


def _read_json(path: Path) -> dict[str, Any]:
    return json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}


def _content(token: str | Mapping[str, Any]) -> str:
    return token if isinstance(token, str) else str(token["content"])
