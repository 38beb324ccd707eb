"""Shell text put together from pieces of another text, each character at its place there."""

import re
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from trtllm_check.lint.carriers.aws_calls import AwsCall
from trtllm_check.lint.carriers.cluster_objects import ClusterObject
from trtllm_check.lint.carriers.faults import FormFault
from trtllm_check.lint.carriers.python_calls import Call
from trtllm_check.lint.carriers.python_tensors import TensorUse
from trtllm_check.lint.carriers.sent import SentRequest
from trtllm_check.lint.carriers.used_names import UsedName
from trtllm_check.lint.carriers.workloads import ClusterService, ServedContainer
from trtllm_check.lint.shell import Place, Word

SPECIAL = re.compile(r"[\"\\`]|\$(?![{(])")
QUOTE = re.compile("'")
OUR_NAME = re.compile(r"\W+")
LONGEST_NAME = 40
MORE = "more"


class Carried(NamedTuple):
    """What a text holds for the checker.

    ``scripts``: shell text, and the image that it runs in ("" if unknown); ``texts``: other texts with the name that
    tells their kind ("" if none does); ``images``: containers that it names; ``calls``: of Python APIs;
    ``workloads``: what starts containers for good; ``aws_calls``: what tells SageMaker;
    ``faults``: what is wrong with the text itself; ``names``: of Python packages that it uses;
    ``requests``: to servers of models; ``tensors``: of Triton's models that it names.
    """

    scripts: tuple[tuple[Word, str], ...] = ()
    texts: tuple[tuple[str, Word], ...] = ()
    images: tuple[Word, ...] = ()
    calls: tuple[Call, ...] = ()
    workloads: tuple[ServedContainer | ClusterService | ClusterObject, ...] = ()
    aws_calls: tuple[AwsCall, ...] = ()
    faults: tuple[FormFault, ...] = ()
    names: tuple[UsedName, ...] = ()
    requests: tuple[SentRequest, ...] = ()
    tensors: tuple[TensorUse, ...] = ()

    def with_(self, other: "Carried") -> "Carried":
        return Carried(
            self.scripts + other.scripts,
            self.texts + other.texts,
            self.images + other.images,
            self.calls + other.calls,
            self.workloads + other.workloads,
            self.aws_calls + other.aws_calls,
            self.faults + other.faults,
            self.names + other.names,
            self.requests + other.requests,
            self.tensors + other.tensors,
        )


class Script:
    """Builds a script; what it adds of its own stands at the place of what comes next to it."""

    def __init__(self) -> None:
        self.characters: list[str] = []
        self.places: list[Place] = []

    def add(self, text: str, place: Place) -> None:
        self.characters.append(text)
        self.places += [place] * len(text)

    def take(self, word: Word) -> None:
        """``word`` as it is written: shell text."""
        places = word.places if len(word.places) == len(word.text) else ((word.line, word.column),) * len(word.text)
        self.characters.append(word.text)
        self.places += places

    def end(self) -> None:
        self.add("\n", self.places[-1] if self.places else (1, 1))

    def line(self, word: Word) -> None:
        self.take(word)
        self.end()

    def words(self, words: Iterable[Word]) -> None:
        """One command of ``words`` that no shell has split; ``${x}`` in them stays unknown."""
        for word in words:
            self.quoted(word)
            self.add(" ", _last(word))
        self.end()

    def quoted(self, word: Word) -> None:
        # A script of its own goes into single quotes: its backslashes end its lines.
        # A quote in it ends them, stands for itself and opens them again.
        mark, special, escape, again = ("'", QUOTE, "'\\", "'") if "\n" in word.text else ('"', SPECIAL, "\\", "")
        self.add(mark, (word.line, word.column))
        position = 0
        for match in special.finditer(word.text):
            self.take(word.part(position, match.start()))
            self.add(escape, _place(word, match.start()))
            position = match.start() + len(again)
            self.take(word.part(match.start(), position))
            self.add(again, _place(word, match.start()))
        self.take(word.part(position))
        self.add(mark, _last(word))

    def variable(self, name: str, value: Word, *, exported: bool = True) -> None:
        self.add(f"export {name}=" if exported else f"{name}=", (value.line, value.column))
        self.quoted(value)
        self.end()

    def word(self) -> Word:
        line, column = self.places[0] if self.places else (1, 1)
        return Word("".join(self.characters), line, column, tuple(self.places))


def unknown(written: str, place: Place) -> Word:
    """A value that only the running program knows: ``${...}``, with what is written for a name."""
    name = OUR_NAME.sub("_", written).strip("_")[:LONGEST_NAME] or "unknown"
    text = f"${{{name if not name[0].isdigit() else f'_{name}'}}}"
    return Word(text, *place, (place,) * len(text))


def unknown_arguments(place: Place) -> Word:
    """Stands for arguments that only the running program knows."""
    return unknown(MORE, place)


def hides_arguments(words: Iterable[Word]) -> bool:
    """True where :func:`unknown_arguments` stand among ``words``."""
    return any(word.text == f"${{{MORE}}}" for word in words)


def joined(words: Sequence[Word]) -> Word:
    """The words as one, without anything between them."""
    places = [place for word in words for place in word.places]
    line, column = (words[0].line, words[0].column) if words else (1, 1)
    return Word("".join(word.text for word in words), line, column, tuple(places))


def with_single_dollars(word: Word) -> Word:
    """compose's ``$$NAME`` as the container gets it."""
    parts = word.text.split("$$")
    starts = [0]
    for part in parts[:-1]:
        starts.append(starts[-1] + len(part) + 2)
    pieces = [word.part(max(start - 1, 0), start + len(part)) for start, part in zip(starts, parts, strict=True)]
    return joined(pieces) if len(parts) > 1 else word


def dedented(word: Word) -> Word:
    """``word`` without the margin that all of its lines have; each character at its place."""
    lines = word.text.split("\n")
    margin = min((len(line) - len(line.lstrip()) for line in lines if line.strip()), default=0)
    if not margin:
        return word
    parts: list[Word] = []
    position = 0
    for line in lines:
        end = position + len(line) + 1
        parts.append(word.part(min(position + margin, position + len(line)), end))
        position = end
    return joined(parts)


def aligned(value: str, source: Word, start: int, end: int) -> Word:
    """``value``, which ``source.text[start:end]`` stands for with quotes, escapes and indentation, at its places."""
    text = source.text
    places: list[Place] = []
    position = start
    last = max(min(end, len(text)) - 1, start)
    for character in value:
        if character.isspace():
            places.append(_place(source, min(position, last)))
            if position < end and text[position].isspace():
                if text[position] == "\n":
                    while position < end and text[position].isspace():
                        position += 1
                else:
                    position += 1
            continue
        found = text.find(character, position, end)
        found = min(position, last) if found < 0 else found
        places.append(_place(source, found))
        position = max(position, found + 1)
    line, column = places[0] if places else _place(source, start)
    return Word(value, line, column, tuple(places))


def _place(word: Word, index: int) -> Place:
    if not word.places:
        return word.line, word.column
    return word.places[min(index, len(word.places) - 1)]


def _last(word: Word) -> Place:
    return _place(word, len(word.text))
