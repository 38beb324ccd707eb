"""What of a config.pbtxt can be read behind its first fault: the rest of the fields, each as it stands.

A bracket that lacks is taken as closed where the next field cannot stand inside it, one too many is passed over, and a
field without a value is left out. Only what does not depend on the missing part may be judged by it.
"""

from collections.abc import Iterator
from functools import lru_cache

from trtllm_check.lint.pbtxt import (
    CLOSING,
    DEEPEST,
    TEXTS_KEPT,
    ConfigError,
    ConfigReader,
    ConfigToken,
    Message,
    Scalar,
    tokens_of,
)

# Fields of ModelConfig that no message inside it has, but for the parameters of accelerators and agents:
# triton-inference-server/common protobuf/model_config.proto.
OUTERMOST = frozenset(
    {
        *("backend", "platform", "max_batch_size", "input", "output", "instance_group", "dynamic_batching"),
        *("sequence_batching", "ensemble_scheduling", "parameters", "model_transaction_policy", "version_policy"),
        *("optimization", "model_warmup", "default_model_filename", "response_cache", "model_operations"),
    }
)
OPENERS, CLOSERS = (*CLOSING, "["), (*CLOSING.values(), "]")
WITH_PARAMETERS = ("gpu_execution_accelerator", "cpu_execution_accelerator", "agents", "batch_input", "batch_output")


def mended_config(text: str) -> Message:
    """All fields of ``text`` that can be read."""
    return _read(text)[0]


def open_brackets(text: str) -> tuple[ConfigError, ...]:
    """Where a bracket lacks: the fields that cannot stand inside what is open before them."""
    return _read(text)[1]


def ends_within(text: str) -> bool:
    """True for a text that stops behind a name or a value inside of a block: somebody cut it there."""
    depth, last = 0, ""
    for token in tokens_of(text)[:-1]:
        if token.kind == "sign":
            depth += (token.text in OPENERS) - (token.text in CLOSERS)
        last = token.text
    return depth > 0 and last not in CLOSERS


@lru_cache(maxsize=TEXTS_KEPT)
def _read(text: str) -> tuple[Message, tuple[ConfigError, ...]]:
    reader = _MendingReader(tokens_of(text))
    return reader.message("", 0), tuple(reader.open)


class _MendingReader(ConfigReader):
    """``above``: the names of the fields that are open; ``open``: where a bracket lacks."""

    def __init__(self, tokens: list[ConfigToken]) -> None:
        super().__init__(tokens)
        self.above: list[str] = []
        self.open: list[ConfigError] = []

    def message(self, closing: str, depth: int) -> Message:
        start = self.next
        fields: list[tuple[str, Scalar | Message]] = []
        places: list[tuple[int, int]] = []
        while self.next.kind != "end":
            token = self.next
            if closing and (token.text == closing or token.text == "]"):
                break
            if token.kind == "word" and depth and token.text in OUTERMOST and self.above[-1] not in WITH_PARAMETERS:
                problem = f"a bracket of {self.above[0]} is not closed before {token.text}"
                if depth == 1 or not self.open or self.open[-1].line != token.line:
                    self.open.append(ConfigError(problem, token.line, token.column))
                break
            self.position += 1
            if token.kind != "word" or depth > DEEPEST:
                continue
            self.above.append(token.text)
            found = list(self.values(self.take(":") is not None, depth))
            self.above.pop()
            fields += [(token.text, value) for value in found]
            places += [(token.line, token.column)] * len(found)
            self.take(",", ";")
        self.take(closing)
        return Message(tuple(fields), start.line, start.column, tuple(places))

    def values(self, colon: bool, depth: int) -> Iterator[Scalar | Message]:
        if not self.take("["):
            yield from self.one(colon, depth)
            return
        while not self.take("]"):
            following = self.tokens[min(self.position + 1, len(self.tokens) - 1)].text
            is_field = self.next.kind == "word" and (following in (":", "{", "[") or self.next.text in OUTERMOST)
            if self.next.kind == "end" or self.next.text == "}" or is_field:
                return
            before = self.position
            yield from self.one(True, depth)
            self.position += self.position == before
            self.take(",")

    def one(self, colon: bool, depth: int) -> Iterator[Scalar | Message]:
        """A value, or none."""
        token = self.next
        if token.text not in CLOSING and (not colon or token.kind not in ("word", "string")):
            return
        try:
            yield self.value(colon, depth)
        except ConfigError:
            return
