"""Command lines that the text does not run in sight: ``CMD="vllm serve ..."``, ``echo "vllm serve ..."``."""

import re
from collections.abc import Iterator, Sequence

from trtllm_check.lint.carriers.printed import commands_in, of_lines
from trtllm_check.lint.carriers.python_words import spaced
from trtllm_check.lint.invocations import Invocation, invocations
from trtllm_check.lint.shell import ShellCommand, Word, read_inside

STARTS = re.compile(
    r"\s*(?:\w+=\S+\s+)*"
    r"(?:python3?\s(?:-u\s+)?(?:-m\s+)?\S|(?:vllm serve|trtllm-\w+|tritonserver|mpirun|docker run)\s)"
)
PRINTS = ("echo", "printf")
ESCAPED_END = re.compile(r"\\n")
QUOTES_AND_BLANKS = re.compile(r"[\s'\"\\]")
OPTION = re.compile(r"\s--?[A-Za-z]")


def held_commands(commands: Sequence[ShellCommand], found: Sequence[Invocation]) -> list[ShellCommand]:
    """The commands in the values of variables; none that ``found`` has already, because the text runs them."""
    known = {_words(one) for one in found}
    held: list[ShellCommand] = []
    grown = _grown(commands)
    printed = {id(first): text for first, text in _printed(commands)}
    for command in commands:
        values = () if id(command) in grown else _values(command)
        for value in (*values, *(commands_in(printed[id(command)]) if id(command) in printed else ())):
            inner = read_inside(value, command.file)
            started = invocations(inner)
            if started and not any(_words(one) in known for one in started):
                held += inner
                known |= {_words(one) for one in started}
    return held


def _grown(commands: Sequence[ShellCommand]) -> set[int]:
    """Assignments whose value a later one of the same variable begins with: ``CMD="$CMD --more"``."""
    last: dict[tuple[str, str], str] = {}
    longer: set[tuple[str, str]] = set()  # by ``CMD+=" --more"``
    found: set[int] = set()
    for command in reversed(commands):
        if len(command.assignments) != 1 or command.words:
            continue
        name, _, value = command.assignments[0].text.partition("=")
        key = (command.file, name.rstrip("+"))
        if name.endswith("+"):
            longer.add(key)
            continue
        if key in longer or (value and last.get(key, "").startswith(f"{value} ")):
            found.add(id(command))
        longer.discard(key)
        last[key] = value
    return found


def _values(command: ShellCommand) -> Iterator[Word]:
    words = command.assignments if not command.words else ()
    for word in words:
        _, _, value = word.text.partition("=")
        if STARTS.match(value) and OPTION.search(value):
            yield word.part(len(word.text) - len(value))


def _printed(commands: Sequence[ShellCommand]) -> Iterator[tuple[ShellCommand, Word]]:
    """What ``echo`` says in lines one after the other, with the first of the commands."""
    run: list[ShellCommand] = []
    for command in [*commands, None]:
        is_echo = command is not None and command.words[:1] and command.words[0].text in PRINTS
        if run and not (is_echo and command is not None and _follows(run[-1], command)):
            yield run[0], of_lines([_said(one) for one in run])
            run = []
        if is_echo and command is not None:
            run.append(command)


def _follows(one: ShellCommand, other: ShellCommand) -> bool:
    return one.file == other.file and one.end_line < other.line <= one.end_line + 1


def _said(echo: ShellCommand) -> Word:
    words = [word for word in echo.words[1:] if word.text not in ("-e", "-n")]
    said = spaced(words, " ") or Word("", echo.line, 1)
    parts = ESCAPED_END.split(said.text)
    if len(parts) == 1:
        return said
    starts = [0, *(match.end() for match in ESCAPED_END.finditer(said.text))]
    return of_lines([said.part(start, start + len(part)) for start, part in zip(starts, parts, strict=True)])


def _words(one: Invocation) -> tuple[str, str]:
    """The same for a command and for what ``echo`` says of it, which has lost its quotes."""
    return one.tool, QUOTES_AND_BLANKS.sub("", "".join(word.text for word in one.arguments))
