"""Cells of a notebook that were pasted as text: what stands below ``%%writefile serving.properties`` is that file."""

import re
from typing import NamedTuple

from trtllm_check.lint.carriers.script import joined
from trtllm_check.lint.kinds import Kind, kind_of_name
from trtllm_check.lint.shell.words import Word, as_written

HEAD = re.compile(r"^[ \t]*%%(?:writefile|file)[ \t]+(?:-a[ \t]+)?(?P<name>[\w./{}$-]+)[ \t]*\n", re.MULTILINE)
END = re.compile(r"^[ \t]*(?:%%|```|~~~)", re.MULTILINE)
SETTING = re.compile(r"[ \t]*(?:#.*|[\w.-]+[ \t]*[=:].*|[ \t]*)")
SURE = re.compile(r"[ \t]*(?:#.*|(?:option\.\w+|engine)[ \t]*=.*|[\w.]+=[^\s()\"']+)?[ \t]*")  # behind an empty line
OF_SETTINGS: tuple[Kind, ...] = ("serving.properties", "environment")


class FileCell(NamedTuple):
    """One file that a cell writes, without the line of the magic."""

    name: str
    kind: Kind
    text: Word


def file_cells(word: Word) -> tuple[list[FileCell], Word]:
    """The files, and the text with them blanked. Programs in Python stay: their reader knows the magics."""
    found: list[FileCell] = []
    rest = word
    for match in HEAD.finditer(word.text):
        kind = kind_of_name(match["name"])
        if kind in (None, "python"):
            continue
        stop = END.search(word.text, match.end())
        end = stop.start() if stop else len(word.text)
        end = _last_setting(word.text, match.end(), end) if kind in OF_SETTINGS else end
        found.append(FileCell(match["name"], kind, word.part(match.end(), end)))
        blank = re.sub(r"[^\n]", " ", word.text[match.start() : end])
        rest = joined([rest.part(0, match.start()), as_written(word.part(match.start(), end), blank), rest.part(end)])
    return found, rest


def _last_setting(text: str, start: int, end: int) -> int:
    """Where the settings end and the next cell, which nothing parts from them, begins."""
    form = SETTING
    for line in text[start:end].splitlines(keepends=True):
        if not form.fullmatch(line.rstrip("\r\n")):
            return start
        form = form if line.strip() else SURE
        start += len(line)
    return end
