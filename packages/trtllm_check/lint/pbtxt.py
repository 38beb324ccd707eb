"""Reads protobuf's text format into fields that know where they stand, placeholders included.

Protobuf's own parser tells no places and refuses a file with ``${...}`` in it; it has the last word in :func:`refusal`.
"""

import importlib.util
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache, lru_cache
from pathlib import Path
from typing import Any, NamedTuple

TOKEN = re.compile(
    r"""(?P<blank>[\s]+|\#[^\n]*)
    |(?P<string>"(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])*')
    |(?P<word>(?:\$\{\w*\}|[\w.+$-])+)
    |(?P<sign>[{}<>\[\]:,;])
    |(?P<other>.)""",
    re.VERBOSE | re.DOTALL,
)
PLACEHOLDER = re.compile(r"\$\{(\w+)\}")
VARIABLE = re.compile(r"\$\{?[A-Za-z_]")  # one of fill_template.py, or a shell's, which somebody fills in
POSITION = re.compile(r"^(\d+):(\d+) : ")
CLOSING = {"{": "}", "<": ">"}
DEEPEST = 50
TRUE = ("true", "t", "1")


class ConfigError(Exception):
    """What is wrong with a text, and where; lines and columns from 1."""

    def __init__(self, message: str, line: int, column: int) -> None:
        super().__init__(message)
        self.message, self.line, self.column = message, line, column


@dataclass(frozen=True)
class Scalar:
    """One value as written, a string without its quotes."""

    text: str
    line: int
    column: int
    quoted: bool = False


@dataclass(frozen=True)
class Message:
    """Fields of a message in their order; a list is as many fields of one name. ``places``: of their names."""

    fields: tuple[tuple[str, "Scalar | Message"], ...]
    line: int
    column: int
    places: tuple[tuple[int, int], ...] = ()

    def messages(self, *names: str) -> list["Message"]:
        return [value for key, value in self.fields if key in names and isinstance(value, Message)]

    def scalars(self, name: str) -> list[Scalar]:
        return [value for key, value in self.fields if key == name and isinstance(value, Scalar)]

    def scalar(self, name: str) -> Scalar | None:
        """The last value of ``name``, as protobuf takes it."""
        found = self.scalars(name)
        return found[-1] if found else None

    def text(self, name: str) -> str:
        found = self.scalar(name)
        return found.text if found else ""

    def all_scalars(self) -> Iterator[tuple[str, Scalar]]:
        """Every value with its field's name, at any depth."""
        for name, value in self.fields:
            if isinstance(value, Message):
                yield from value.all_scalars()
            else:
                yield name, value


class ConfigToken(NamedTuple):
    """A word, a string, a sign or the end, and where it stands."""

    kind: str
    text: str
    line: int
    column: int


TEXTS_KEPT = 64  # of a repository each file is read by several rules


@lru_cache(maxsize=TEXTS_KEPT)
def read_config(text: str) -> Message:
    """The whole text; :class:`ConfigError` where it is none."""
    return ConfigReader(tokens_of(text)).message("", 0)


@lru_cache(maxsize=TEXTS_KEPT)
def refusal(text: str) -> ConfigError | None:
    """What protobuf says against ``text`` as a configuration of Triton's; None if it takes it."""
    from google.protobuf import text_format

    try:
        text_format.Parse(text, model_config()())
    except text_format.ParseError as error:
        message = str(error)
        position = POSITION.match(message)
        line, column = (int(position[1]), int(position[2])) if position else (1, 1)
        return ConfigError(message[position.end() :] if position else message, line, column)
    except ValueError as error:  # a number that no field holds, for some of which protobuf tells no place
        number = str(error).rpartition(" ")[2]
        start = max(text.find(number), 0)
        return ConfigError(str(error), text.count("\n", 0, start) + 1, start - text.rfind("\n", 0, start))
    return None


@cache
def model_config() -> Any:
    """Triton's ModelConfig, without the rest of ``tritonclient.grpc``, which takes ten times as long to import."""
    package = importlib.util.find_spec("tritonclient")
    if package is None or not package.submodule_search_locations:
        raise ImportError("tritonclient is not installed")
    path = Path(package.submodule_search_locations[0]) / "grpc" / "model_config_pb2.py"
    spec = importlib.util.spec_from_file_location("model_config_pb2", path)
    if spec is None or spec.loader is None:
        raise ImportError(f"{path} cannot be loaded")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.ModelConfig


def tokens_of(text: str) -> list[ConfigToken]:
    tokens = []
    line, line_start = 1, 0
    for match in TOKEN.finditer(text):
        kind, found = match.lastgroup or "", match[0]
        if kind != "blank":
            tokens.append(ConfigToken(kind, found, line, match.start() - line_start + 1))
        if "\n" in found:
            line += found.count("\n")
            line_start = match.start() + found.rindex("\n") + 1
    return [*tokens, ConfigToken("end", "", line, max(len(text) - line_start, 0) + 1)]


class ConfigReader:
    """Of tokens; :class:`ConfigError` at the first that does not belong there."""

    def __init__(self, tokens: list[ConfigToken]) -> None:
        self.tokens = tokens
        self.position = 0

    @property
    def next(self) -> ConfigToken:
        return self.tokens[self.position]

    def take(self, *signs: str) -> ConfigToken | None:
        token = self.next
        if token.text not in signs or token.kind not in ("sign", "end"):
            return None
        self.position += 1
        return token

    def fail(self, wanted: str) -> ConfigError:
        token = self.next
        found = f"`{token.text}`" if token.text else "the end of the file"
        return ConfigError(f"expected {wanted}, found {found}", token.line, token.column)

    def message(self, closing: str, depth: int) -> Message:
        start = self.next
        if depth > DEEPEST:
            raise self.fail("fewer levels")
        fields: list[tuple[str, Scalar | Message]] = []
        places: list[tuple[int, int]] = []
        while not (self.next.kind == "end" if not closing else self.next.text == closing):
            if self.next.kind != "word":
                raise self.fail(f"a field's name or `{closing}`" if closing else "a field's name")
            name, place = self.next.text, (self.next.line, self.next.column)
            self.position += 1
            colon = self.take(":") is not None
            found = [(name, value) for value in self.values(colon, depth)]
            fields += found
            places += [place] * len(found)
            self.take(",", ";")
        self.position += bool(closing)
        return Message(tuple(fields), start.line, start.column, tuple(places))

    def values(self, colon: bool, depth: int) -> Iterator[Scalar | Message]:
        if not self.take("["):
            yield self.value(colon, depth)
            return
        if self.take("]"):
            return
        yield self.value(True, depth)
        while not self.take("]"):
            if not self.take(","):
                raise self.fail("`,` or `]`")
            yield self.value(True, depth)

    def value(self, colon: bool, depth: int) -> Scalar | Message:
        token = self.next
        opening = self.take("{", "<")
        if opening:
            return self.message(CLOSING[opening.text], depth + 1)
        if not colon:
            raise self.fail("`:` or `{`")
        if token.kind == "word":
            self.position += 1
            return Scalar(token.text, token.line, token.column)
        if token.kind != "string":
            raise self.fail("a value")
        text = ""
        while self.next.kind == "string":
            text += self.next.text[1:-1]
            self.position += 1
        return Scalar(text, token.line, token.column, quoted=True)
