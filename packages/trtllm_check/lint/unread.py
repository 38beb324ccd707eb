"""Which lines of a script said nothing to the checker."""

from collections.abc import Collection, Iterable, Sequence
from itertools import groupby
from typing import NamedTuple

from trtllm_check.lint.invocations import Invocation
from trtllm_check.lint.programs import HOLDERS, MENTIONS, WRAPPERS
from trtllm_check.lint.programs import SHELLS as SHELL_PROGRAMS
from trtllm_check.lint.shell.pasted import FENCE
from trtllm_check.lint.shell.words import ShellCommand

# What shells do themselves, and programs that say nothing of a model.
HARMLESS = frozenset(
    {
        *("cd", "pushd", "popd", "source", ".", "set", "unset", "exit", "return", "wait", "sleep", "trap", "read"),
        *("export", "declare", "local", "readonly", "typeset", "for", "while", "if", "case", "function", "[[", "true"),
        *("mkdir", "touch", "pwd", "kill", "conda", "nvidia-smi", "unzip", "aws", "ulimit", "alias", "shift", "eval"),
    }
)


class Unread(NamedTuple):
    """Lines ``first`` to ``last`` of ``file`` (empty for a single text) that say nothing to the checker."""

    first: int
    last: int
    file: str = ""

    def __str__(self) -> str:
        return str(self.first) if self.first == self.last else f"{self.first}-{self.last}"


def unread(
    text: str, commands: Sequence[ShellCommand], invocations: Iterable[Invocation], read: Collection[int], file: str
) -> list[Unread]:
    """The lines of shell ``text`` that are neither blank, comments, part of a known command nor in ``read``."""
    here = [one for one in invocations if one.command.file == file]
    known = {one.command.line for one in here if not is_strange(one) or heredoc_lines([one.command])}
    covered = set(read)
    for command in commands:
        if command.line in known or is_harmless(command):
            covered |= set(range(command.line, command.end_line + 1)) | heredoc_lines([command])
    says = [_says_something(line) for line in text.split("\n")]
    left = [n for n, something in enumerate(says, 1) if n not in covered and something]
    blank = {n for n, something in enumerate(says, 1) if not something} - covered
    return [Unread(first, last, file) for first, last in _ranges(left, blank)]


def is_strange(invocation: Invocation) -> bool:
    """True for Python that runs somebody's own script."""
    return invocation.tool == "python" and not invocation.has("-c", "-m")


def is_harmless(command: ShellCommand) -> bool:
    """True for settings of variables, and for what does nothing to a model."""
    name = command.words[0].text.rpartition("/")[2] if command.words else ""
    return (
        not command.words
        or command.words[0].text.startswith("cd..")
        or name in HARMLESS | MENTIONS
        or name in SHELL_PROGRAMS | WRAPPERS.keys() | HOLDERS
    )


def heredoc_lines(commands: Iterable[ShellCommand]) -> set[int]:
    """The lines of the texts that go into ``commands``, and of the words that end them."""
    bodies = [one.target for command in commands for one in command.redirects if one.operator == "<<"]
    lines = [{body.line, *(line for line, _ in body.places)} for body in bodies]
    return {line for body in lines for line in (*body, max(body) + 1)}


def _says_something(line: str) -> bool:
    stripped = line.strip()
    return bool(stripped) and not stripped.startswith("#") and not FENCE.match(line)


def _ranges(numbers: Sequence[int], between: Collection[int]) -> list[tuple[int, int]]:
    """First and last of each run of ``numbers``; those of ``between`` do not end a run."""
    found: list[tuple[int, int]] = []
    for _, group in groupby(enumerate(numbers), key=lambda pair: pair[1] - pair[0]):
        run = [number for _, number in group]
        if found and all(number in between for number in range(found[-1][1] + 1, run[0])):
            found[-1] = (found[-1][0], run[-1])
        else:
            found.append((run[0], run[-1]))
    return found
