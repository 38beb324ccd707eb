"""Words of a command line to flags with their values."""

import re
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from trtllm_check.lint.commands.programs import DOCKER_BUILD_VALUED, HUB_LISTS, PROGRAMS, SWITCHES, Program
from trtllm_check.lint.shell.words import Word

FLAG = re.compile(r"(?P<name>(?:-{1,2}|[-–—−]{1,2})[A-Za-z][^=\s]*)(?P<value>=.*)?", re.DOTALL)
DASHES = re.compile(r"[-–—−]+")
Takes = Callable[[str], int | None]
"""How many values a flag takes; None: all up to the next flag."""


class Given(NamedTuple):
    """One flag with its values as written, without ``=``; ``flag`` is empty for a positional argument.

    ``word`` is where the flag (or the positional argument) stands. ``-it`` of docker and the like is two flags.
    """

    flag: str
    values: tuple[Word, ...]
    word: Word

    @property
    def name(self) -> str:
        """The flag with ASCII dashes: ``--tp_size`` for ``–tp_size``."""
        return self.flag if self.flag.isascii() else DASHES.sub("--", self.flag, count=1)


def arguments_of(tool: str, words: Sequence[Word]) -> tuple[Given, ...]:
    """The arguments of ``tool`` by what is known of it in any release."""
    if tool in PROGRAMS:
        return tuple(_group_program(words, PROGRAMS[tool]))
    switches = SWITCHES.get(tool, frozenset())
    others = 1 if tool in ("hf", "huggingface-cli") else None
    return group(words, lambda flag: 0 if flag in switches else None if flag in HUB_LISTS else others)


def group(words: Sequence[Word], takes: Takes) -> tuple[Given, ...]:
    """Flags with as many values as they take; other words are positional, each on its own."""
    found: list[Given] = []
    position = 0
    while position < len(words):
        word = words[position]
        position += 1
        match = FLAG.fullmatch(word.text)
        if match is None:
            found.append(Given("", (word,), word))
            continue
        flag = match["name"]
        if match["value"] is not None:
            found.append(Given(flag, (word.part(len(flag) + 1),), word))
            continue
        wanted = takes(Given(flag, (), word).name)
        end = position
        while end < len(words) and (wanted is None or end - position < wanted) and not FLAG.fullmatch(words[end].text):
            end += 1
        found.append(Given(flag, tuple(words[position:end]), word))
        position = end
    return tuple(found)


def _group_program(words: Sequence[Word], program: Program) -> Iterator[Given]:
    position = operands = 0
    while position < len(words):
        word = words[position]
        position += 1
        is_option = word.text.startswith("-") and len(word.text) > 1
        if operands == program.operands or not is_option:
            operands += operands != program.operands
            if word.text in ("build", "buildx") and operands == 1 and program.operands == 2:
                program = program._replace(valued=program.valued | DOCKER_BUILD_VALUED)
            yield Given("", (word,), word)
            continue
        flag = word.text
        if program.clusters and not flag.startswith("--"):
            *switches, last = _letters(word, program)
            yield from (Given(switch, (), word) for switch in switches)
            flag = last
            inline = word.part(len(switches) + 2) if len(word.text) > len(switches) + 2 else None
            if inline is not None and inline.text.startswith("="):
                inline = inline.part(1)
        else:
            flag, sign, _ = word.text.partition("=")
            inline = word.part(len(flag) + 1) if sign else None
        if inline is not None:
            yield Given(flag, (inline,), word)
            continue
        end = position + program.takes(flag)
        yield Given(flag, tuple(words[position:end]), word)
        position = end


def _letters(word: Word, program: Program) -> list[str]:
    """``-it`` to ``-i -t``, up to the first that takes a value: the rest is the value."""
    letters: list[str] = []
    for letter in word.text[1:]:
        letters.append(f"-{letter}")
        if program.takes(letters[-1]):
            break
    return letters
