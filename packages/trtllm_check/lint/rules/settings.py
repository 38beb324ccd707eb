"""Variables of the environment that a text sets, wherever it does: export, in front of a command, -e, a container."""

from collections.abc import Iterator
from typing import NamedTuple

from trtllm_check.lint.document import Document
from trtllm_check.lint.rules.box import boxes
from trtllm_check.lint.shell.words import Word

SETTERS = ("export", "env")


class NamedValue(NamedTuple):
    """``name=value`` at ``place`` of ``file``."""

    name: str
    value: str
    place: Word
    file: str = ""


def settings(document: Document) -> Iterator[NamedValue]:
    """All of them, and names alone, which pass a value on; what a container is given has its value's own place."""
    for command in document.commands:
        words = command.words[1:] if command.words and command.words[0].text in SETTERS else ()
        for word in (*command.assignments, *words):
            yield _setting(word, command.file)
    for docker in document.of("docker"):
        for word in docker.values("-e", "--env"):
            yield _setting(word, docker.command.file)
    for box in boxes(document):
        for name, word in box.settings.items():
            yield NamedValue(name, word.text, word, box.file)


def _setting(word: Word, file: str) -> NamedValue:
    name, _, value = word.text.partition("=")
    return NamedValue(name, value, word, file)
