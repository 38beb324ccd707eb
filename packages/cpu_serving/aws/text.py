"""Text to token ids and back, and chat messages to a prompt: ``tokenizers`` and jinja2, no transformers."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer

from serving_base.errors import EnvironmentProblem, RequestRefused

END_TOKENS = ("<|eot_id|>", "<|end_of_text|>")
"""Llama-3 ends a turn with the one and a document with the other; both end an answer."""
UNFINISHED = "\ufffd"
"""What bytes decode to that are no whole character yet."""


@dataclass(frozen=True)
class ChatTokenizer:
    """The tokenizer and chat template of an engine's ``tokenizer`` folder."""

    tokenizer: Tokenizer
    end_ids: frozenset[int]
    template: str
    special_tokens: Mapping[str, str]

    @classmethod
    def load(cls, folder: Path) -> "ChatTokenizer":
        path = folder / "tokenizer.json"
        if not path.is_file():
            raise EnvironmentProblem(f"no tokenizer in {folder}", fix="upload the engine folder with its tokenizer/")
        tokenizer = Tokenizer.from_file(str(path))
        config = _read_json(folder / "tokenizer_config.json")
        written = config | _read_json(folder / "special_tokens_map.json")
        special = {name: _content(written[name]) for name in ("bos_token", "eos_token") if written.get(name)}
        names = {special.get("eos_token", ""), *END_TOKENS}
        end_ids = frozenset(number for name in names if (number := tokenizer.token_to_id(name)) is not None)
        template = folder / "chat_template.jinja"
        source = template.read_text(encoding="utf-8") if template.is_file() else str(config.get("chat_template", ""))
        return cls(tokenizer, end_ids, source, special)

    def encode(self, text: str) -> list[int]:
        """Token ids with the begin token in front, unless the text brings it."""
        begins = bool(self.special_tokens.get("bos_token")) and text.startswith(self.special_tokens["bos_token"])
        return list(self.tokenizer.encode(text, add_special_tokens=not begins).ids)

    def decode(self, ids: Sequence[int]) -> str:
        """Text without special tokens."""
        return str(self.tokenizer.decode(list(ids), skip_special_tokens=True))

    def render_chat(self, messages: Sequence[Mapping[str, str]]) -> str:
        """The prompt for these messages, begin token included. Raises :class:`RequestRefused`."""
        from jinja2 import TemplateError
        from jinja2.sandbox import ImmutableSandboxedEnvironment

        if not self.template:
            raise RequestRefused("the model has no chat template", fix="send inputs or prompt instead of messages")
        environment = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True)
        try:
            template = environment.from_string(self.template)
            return template.render(messages=messages, add_generation_prompt=True, **self.special_tokens)
        except TemplateError as error:
            raise RequestRefused(f"the chat template refused the messages: {error}") from error


@dataclass
class Detokenizer:
    """The text of one answer, token by token; a character of several tokens comes with its last one."""

    tokenizer: ChatTokenizer
    _pending: list[int] = field(default_factory=list)

    def add(self, token_id: int, *, last: bool) -> str:
        """The text that this token completes; the last token gives what is left."""
        self._pending.append(token_id)
        text = self.tokenizer.decode(self._pending)
        if text.endswith(UNFINISHED) and not last:
            return ""
        self._pending.clear()
        return text


def _read_json(path: Path) -> dict[str, Any]:
    return json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}


def _content(token: str | Mapping[str, Any]) -> str:
    return token if isinstance(token, str) else str(token["content"])
