"""Words and commands of a shell with their places."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import repeat
from pathlib import PurePosixPath
from typing import NamedTuple

Place = tuple[int, int]
"""Line and column, from 1."""


@lru_cache(maxsize=4096)
def file_name(path: str) -> str:
    """The last part of a path, ``trtllm-build`` of ``/usr/bin/trtllm-build``; asked of every word by several rules."""
    return PurePosixPath(path).name if "/" in path or path == "." else path


@lru_cache(maxsize=16)
def lines_of(text: str) -> tuple[str, ...]:
    """The lines of a text, cut once and not again for each of its commands."""
    return tuple(text.replace("\r\n", "\n").split("\n"))


def places_of(text: str, first_line: int = 1) -> list[Place]:
    """The place of each character of a text, and of its end."""
    places: list[Place] = []
    for number, line in enumerate(text.split("\n"), first_line):
        places += zip(repeat(number), range(1, len(line) + 2), strict=False)
    return places


@dataclass(frozen=True)
class Word:
    """One word after quotes and known variables are resolved; an unknown variable stays as ``${X}``.

    Typographic dashes and quotes stay as written. ``places`` has the place of each character of ``text``.
    """

    text: str
    line: int
    column: int
    places: tuple[Place, ...] = field(default=(), repr=False, compare=False)

    def part(self, start: int, end: int | None = None) -> "Word":
        """``text[start:end]`` with its own place."""
        places = self.places[start:end]
        line, column = places[0] if places else (self.line, self.column)
        return Word(self.text[start:end], line, column, places)


def whole_text(text: str, first_line: int = 1) -> Word:
    """A whole text, whose first line is ``first_line`` of another, as a word."""
    return Word(text, first_line, 1, tuple(places_of(text, first_line)[: len(text)]))


def as_written(place: Word, text: str) -> Word:
    """``text``, which is as long as ``place``, at its places."""
    return Word(text, place.line, place.column, place.places)


def line_numbers(word: Word | None, text: str) -> tuple[int, ...]:
    """The line of each line of ``text``, where it was put together of several places; else nothing."""
    if word is None or len(word.places) != len(text):
        return ()
    starts = [0, *(index + 1 for index, character in enumerate(text) if character == "\n")]
    lines = [word.places[start][0] for start in starts if start < len(text)]
    is_whole = lines == list(range(lines[0], lines[0] + len(lines))) if lines else True
    return () if is_whole else (*lines, lines[-1])  # the last: of what follows a last line's end


def word_at(text: str, start: int, word: str) -> Word:
    """``word`` at its place in a whole text."""
    return Word(word, text.count("\n", 0, start) + 1, start - text.rfind("\n", 0, start))


class Redirect(NamedTuple):
    """``operator`` is one of > >> < << <<< &> and the like; of << and <<<, ``target`` is the text that goes in."""

    operator: str
    target: Word


class ShellCommand(NamedTuple):
    """One simple command. ``words`` is empty for a line of assignments only.

    ``env``: what is exported before, and the assignments in front. ``assignments``: the latter as words (``X=1``).
    ``cuts``: what a real shell stumbles on and people mean otherwise: a footnote or blanks behind the backslash,
    a missing backslash, a comment between two lines of one command. ``file`` is set where a folder was read.
    ``image``: the container that it runs in, where a Dockerfile or YAML says so. ``inside``: of a script in the words
    of another command, whose shell may fill in what is in its quotes.
    """

    words: tuple[Word, ...]
    env: Mapping[str, str]
    line: int
    end_line: int
    assignments: tuple[Word, ...] = ()
    redirects: tuple[Redirect, ...] = ()
    cuts: tuple[Word, ...] = ()
    file: str = ""
    image: str = ""
    inside: bool = False


ELSE, END = re.compile(r"[ \t]*(?:else|elif)\b"), re.compile(r"[ \t]*fi\b")


def are_branches(text: str, one: int, other: int) -> bool:
    """True for lines in the two branches of an ``if`` of a shell, of which one runs."""
    between = lines_of(text)[min(one, other) : max(one, other)]
    return any(map(ELSE.match, between)) and not any(map(END.match, between))


CONTAINERS = frozenset({"docker", "podman", "nvidia-docker", "kubectl", "srun", "singularity", "apptainer", "enroot"})
OPTIONS_OF_CONTAINERS = 80  # words of theirs in front of the command, at most


def front(command: ShellCommand, most: int) -> tuple[Word, ...]:
    """The first ``most`` words, in which a script's name is looked for; more where a container's options come first."""
    words = command.words
    named = [file_name(word.text) for word in words[:2]]
    first = next((name for name in named if name != "sudo"), "")
    return words[:OPTIONS_OF_CONTAINERS] if first in CONTAINERS else words[:most]
