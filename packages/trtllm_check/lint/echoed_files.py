"""Files that a script writes line by line: ``echo "engine=MPI" >> serving.properties``, ``printf`` for several."""

import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from trtllm_check.lint.carriers.script import Script
from trtllm_check.lint.shell.words import ShellCommand, Word, file_name

WRITERS = ("echo", "printf")
SWITCH = re.compile(r"-[neE]+")
LINES = re.compile(r"(?:%s\\n)+")
FORMAT = re.compile(r"%(?!%)")
REMOVERS = ("rm", "cp", "mv", "rsync", "sed", "git")
BREAK = re.compile(r"\\n")


class EchoedFile(NamedTuple):
    """``name``: of the file that is written; ``text``: its lines, each at its place; ``file``: the script's own."""

    name: str
    text: Word
    file: str


def echoed_files(commands: Sequence[ShellCommand]) -> Iterator[EchoedFile]:
    """The files that ``echo`` and ``printf`` write, as they are in the end; one that anything else writes is not."""
    scripts: dict[tuple[str, str], Script | None] = {}
    for command in commands:
        if command.words and file_name(command.words[0].text) in REMOVERS:
            for file, name in [*scripts]:
                if file == command.file and any(_is_above(word.text, name) for word in command.words[1:]):
                    scripts[file, name] = None  # what it holds now nobody can tell
        words = [word.text for word in command.words]
        if words[:1] == ["sed"] and any(word.startswith(("-i", "--in-place")) for word in words):
            scripts |= dict.fromkeys((command.file, word) for word in words[1:])
        for redirect in command.redirects:
            if redirect.operator not in (">", ">>", ">|") or redirect.target.text.startswith(("/dev/", "&")):
                continue
            at = (command.file, redirect.target.text)
            if not command.words or file_name(command.words[0].text) not in WRITERS or _is_formatted(command):
                scripts[at] = None
                continue
            if redirect.operator != ">>" or at not in scripts:
                scripts[at] = Script()
            if (script := scripts[at]) is not None:
                for line in _lines(command):
                    script.line(line)
    for (file, name), script in scripts.items():
        if script is not None and (text := script.word()).text.strip():
            yield EchoedFile(name, text, file)


def _is_formatted(command: ShellCommand) -> bool:
    """True for ``printf 'name: %s\\n' "$NAME"``, which puts what follows into its first word."""
    words = [word for word in command.words[1:] if not SWITCH.fullmatch(word.text)]
    is_print = file_name(command.words[0].text) == "printf" and bool(words)
    return is_print and FORMAT.search(words[0].text) is not None and not LINES.fullmatch(words[0].text)


def _is_above(folder: str, name: str) -> bool:
    """True for the file itself, and for a folder that it lies in."""
    folder = folder.rstrip("/*")
    return len(folder) > 1 and (name == folder or name.startswith(f"{folder}/"))


def _lines(command: ShellCommand) -> Iterator[Word]:
    """What the command prints: ``echo`` one line of all its words, ``printf '%s\\n'`` a line of each."""
    words = list(command.words[1:])
    while words and SWITCH.fullmatch(words[0].text):
        words.pop(0)
    if file_name(command.words[0].text) == "printf" and words and LINES.fullmatch(words[0].text):
        yield from words[1:]
    elif words:
        whole = Script()
        for word in words:
            whole.take(word)
            whole.add(" ", (word.line, word.column))
        line = whole.word()
        start = 0
        for match in BREAK.finditer(line.text):
            yield line.part(start, match.start())
            start = match.end()
        yield line.part(start, len(line.text) - 1)
