"""Command lines that a variable holds and that the text does not run in sight: ``CMD="vllm serve ..."``."""

import re
from collections.abc import Iterator, Sequence

from trtllm_check.lint.invocations import Invocation, invocations
from trtllm_check.lint.shell import ShellCommand, Word, read_inside

STARTS = re.compile(
    r"\s*(?:\w+=\S+\s+)*"
    r"(?:python3?\s(?:-u\s+)?(?:-m\s+)?\S|(?:vllm serve|trtllm-\w+|tritonserver|mpirun|docker run)\s)"
)
OPTION = re.compile(r"\s--?[A-Za-z]")


def held_commands(commands: Sequence[ShellCommand], found: Sequence[Invocation]) -> list[ShellCommand]:
    """The commands in the values of variables; none that ``found`` has already, because the text runs them."""
    known = {_words(one) for one in found}
    held: list[ShellCommand] = []
    for command in commands:
        for value in _values(command):
            inner = read_inside(value, command.file)
            started = invocations(inner)
            if started and not any(_words(one) in known for one in started):
                held += inner
                known |= {_words(one) for one in started}
    return held


def _values(command: ShellCommand) -> Iterator[Word]:
    words = command.assignments if not command.words else ()
    for word in words:
        _, _, value = word.text.partition("=")
        if STARTS.match(value) and OPTION.search(value):
            yield word.part(len(word.text) - len(value))


def _words(one: Invocation) -> tuple[str, ...]:
    return (one.tool, *(word.text for word in one.arguments))
