"""Who is where in a text: the questions that rules ask for every command, answered by one walk over all of them.

A rule that walked over all commands for each of them would take a hundred times as long for ten times the text.
"""

import posixpath
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property, wraps
from typing import TYPE_CHECKING, Any, TypeVar

from trtllm_check.lint.facts import OUTPUT, output
from trtllm_check.lint.invocations import Invocation
from trtllm_check.lint.shell import ShellCommand, Word

if TYPE_CHECKING:
    from trtllm_check.lint.document import Document

One = TypeVar("One")


@dataclass(frozen=True)
class Lookups:
    """The commands and invocations of one text. Each index is made when it is first asked."""

    commands: Sequence[ShellCommand]
    invocations: Sequence[Invocation]

    def of(self, tools: tuple[str, ...]) -> tuple[Invocation, ...]:
        """The invocations of any of ``tools``, in order."""
        known = self._of.get(tools)
        if known is None:
            numbers = sorted(number for tool in {*tools} for number in self._numbers.get(tool, ()))
            known = self._of[tools] = tuple(self.invocations[number] for number in numbers)
        return known

    def naming(self, path: str) -> list[ShellCommand]:
        """The commands that have ``path`` among their words, however it is spelled, in order."""
        return self._naming.get(posixpath.normpath(path), [])

    def inside(self, command: ShellCommand) -> list[Invocation]:
        """The invocations that ``command`` itself makes, in order."""
        return self._inside.get(id(command), [])

    def started_by(self, word: Word) -> list[Invocation]:
        """The invocations that have ``word`` itself in front of them: what a docker run starts."""
        return self._behind.get(id(word), [])

    def sender(self, place: Word) -> Invocation | None:
        """The curl that ``place`` is a value or the input of."""
        return self._senders.get(id(place))

    def writers(self, tool: str, folder: str) -> list[Invocation]:
        """The uses of ``tool`` that write ``folder``, in order."""
        return self._writers.get((tool, posixpath.normpath(folder)), [])

    @cached_property
    def vllm_options(self) -> frozenset[str]:
        """The options, without dashes, that any command of vLLM gets."""
        given = (each.name for one in self.of(("vllm",)) for each in one.given if each.flag.startswith("--"))
        return frozenset(name.lstrip("-").partition(".")[0].replace("_", "-") for name in given)

    @cached_property
    def tool_starts(self) -> dict[int, Word]:
        """Identity of a command -> the word of its innermost tool."""
        return {id(one.command): one.path for one in self.invocations}

    @cached_property
    def answers(self) -> dict[object, Any]:
        """What :func:`once` keeps: function -> its answer."""
        return {}

    @cached_property
    def _of(self) -> dict[tuple[str, ...], tuple[Invocation, ...]]:
        return {}

    @cached_property
    def _numbers(self) -> dict[str, list[int]]:
        found: dict[str, list[int]] = defaultdict(list)
        for number, one in enumerate(self.invocations):
            found[one.tool].append(number)
        return dict(found)

    @cached_property
    def _naming(self) -> dict[str, list[ShellCommand]]:
        found: dict[str, list[ShellCommand]] = defaultdict(list)
        for command in self.commands:
            for path in {posixpath.normpath(word.text) for word in command.words}:
                found[path].append(command)
        return dict(found)

    @cached_property
    def _inside(self) -> dict[int, list[Invocation]]:
        found: dict[int, list[Invocation]] = defaultdict(list)
        for one in self.invocations:
            found[id(one.command)].append(one)
        return dict(found)

    @cached_property
    def _behind(self) -> dict[int, list[Invocation]]:
        found: dict[int, list[Invocation]] = defaultdict(list)
        for one in self.invocations:
            for word in {id(word) for word in one.launcher}:
                found[word].append(one)
        return dict(found)

    @cached_property
    def _senders(self) -> dict[int, Invocation]:
        found: dict[int, Invocation] = {}
        for curl in self.of(("curl",)):
            values = (word for given in curl.given for word in given.values)
            for word in (*values, *(redirect.target for redirect in curl.command.redirects)):
                found.setdefault(id(word), curl)
        return found

    @cached_property
    def _writers(self) -> dict[tuple[str, str], list[Invocation]]:
        found: dict[tuple[str, str], list[Invocation]] = defaultdict(list)
        for one in self.of(tuple(OUTPUT)):
            found[one.tool, output(one)].append(one)
        return dict(found)


def once(asked: "Callable[[Document], Iterable[One]]") -> "Callable[[Document], tuple[One, ...]]":
    """All that ``asked`` yields, worked out once for a document and not once for each rule that wants it."""

    @wraps(asked)
    def answer(document: "Document") -> tuple[One, ...]:
        answers = document.lookups.answers
        if asked not in answers:
            answers[asked] = tuple(asked(document))
        found: tuple[One, ...] = answers[asked]
        return found

    return answer
