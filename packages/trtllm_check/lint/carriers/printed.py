"""Command lines among lines that a program prints or writes: ``print("docker run \\\\")``, ``echo "  --gpus all"``."""

import re
from collections.abc import Iterable, Iterator

from trtllm_check.lint.carriers.script import joined, unknown_arguments
from trtllm_check.lint.programs import TOOL_NAMES
from trtllm_check.lint.shell import Word

NO_OPERAND = (
    r"is|was|are|needs?|requires?|takes?|with|without|and|or|to|for|fail(?:s|ed)?|stop(?:s|ped)?|exit(?:s|ed)|does|has|can"
    r"|will|must|not|commands?|server|process|errors?|options?|flags?|supports?|uses?|using|via|from|in|on|as|of"
)
START = re.compile(
    r"[ \t]*(?:[$>#•*-][ \t]+|\d+[.)][ \t]+)?(?=(?:[A-Z_]\w*=\S+[ ]+)*(?:sudo[ ]+)?"
    r"(?:docker[ ]+run[ ]+(?:-|\\)"
    r"|(?:mpirun[ ]+(?:--?[\w-]+[ ]+(?:\d+[ ]+)?)*)?python3?[ ]+(?:-u[ ]+)?[\w./${}~-]+\.py[ ]+(?:--[a-z]|\\)"
    rf"|(?:(?:{TOOL_NAMES})|python3?[ ]+-m[ ]+(?:tensorrt_llm|vllm)\.\S+)(?:[ ]+(?:serve|bench))?"
    rf"(?:[ ]*$|[ ]+(?:-|\\|(?!(?:{NO_OPERAND})[ ])[^\s,;:!]+(?:[ ]*$|[ ]+(?:-|\\))))))"
)
BEGINS = re.compile(rf"[ \t]*(?:docker[ ]+run|{TOOL_NAMES})[ ]+\S")
OPTION = re.compile(r"\s--?[A-Za-z]")
GOES_ON = re.compile(r"[ \t]+--?[A-Za-z]")
MARKUP = re.compile(r"\[/?[a-z_]+(?:[ ][a-z_#\d]+)*\]|\[/\]|\x1b\[[\d;]*m")  # of Rich, of a terminal


def is_sentence(line: str) -> bool:
    """True for a line that begins with a tool's name and goes on with words."""
    return BEGINS.match(line) is not None and START.match(line) is None


def of_lines(lines: Iterable[Word]) -> Word:
    """The lines as one text."""
    parts: list[Word] = []
    for line in lines:
        if parts and not parts[-1].text.endswith("\n"):
            place = parts[-1].places[-1] if parts[-1].places else (line.line, line.column)
            parts.append(Word("\n", *place, (place,)))
        parts.append(line)
    return joined(parts)


def commands_in(text: Word) -> Iterator[Word]:
    """The commands in the lines of ``text``, each with the lines that go on with it."""
    command: list[Word] = []
    is_open = False
    for line in _lines(text):
        if command and (is_open or GOES_ON.match(line.text)):
            if not is_open:
                place = line.places[0]
                command[-1] = joined([command[-1], Word(" \\", *place, (place, place))])
            command.append(line)
        else:
            yield from _whole(command)
            match = START.match(line.text)
            command = [line.part(match.end())] if match else []
        is_open = bool(command) and line.text.rstrip().endswith("\\")
    if command and is_open:  # the rest comes under a condition
        command.append(unknown_arguments(command[-1].places[-1]))
    yield from _whole(command)


def _whole(command: list[Word]) -> Iterator[Word]:
    if command and any(OPTION.search(f" {line.text}") for line in command):
        yield of_lines(command)


def _lines(text: Word) -> Iterator[Word]:
    position = 0
    for line in text.text.split("\n"):
        piece = text.part(position, position + len(line.rstrip()))
        position += len(line) + 1
        if MARKUP.search(piece.text):
            kept, end = [], 0
            for match in MARKUP.finditer(piece.text):
                kept.append(piece.part(end, match.start()))
                end = match.end()
            piece = joined([*kept, piece.part(end)])
        yield piece
