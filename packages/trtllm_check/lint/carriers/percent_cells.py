"""Scripts of cells between ``# %%``: what stands in their comments, Markdown and a notebook's shell lines."""

import re
from collections.abc import Iterator

from trtllm_check.lint.carriers.script import Carried, Script
from trtllm_check.lint.shell.words import Word

CELL = re.compile(r"^# ?%%(?P<rest>[^\n]*)$", re.MULTILINE)
PROSE = re.compile(r"\[(?:markdown|md)\]|\bmarkdown\b", re.IGNORECASE)
COMMENT = re.compile(r"[ \t]*#[ ]?")
SHELL_LINE = re.compile(r"[ \t]*#[ ]?(?:!|%(?=(?:pip|cd|env)\b))(?=[a-z./])")
PAGE = "cell.md"


def cells(word: Word) -> Carried:
    """The Markdown as pages, and the lines ``# !pip install ...`` as scripts."""
    found = Carried()
    if "%%" not in word.text:
        return found
    for rest, cell in _split(word):
        script = Script()
        for line in _lines(cell):
            if PROSE.search(rest):
                mark = COMMENT.match(line.text)
                script.line(line.part(mark.end() if mark else 0))
            elif match := SHELL_LINE.match(line.text):
                script.line(line.part(match.end()))
        if (text := script.word()).text.strip():
            is_page = PROSE.search(rest) is not None
            found = found.with_(Carried(texts=((PAGE, text),)) if is_page else Carried(scripts=((text, ""),)))
    return found


def _split(word: Word) -> Iterator[tuple[str, Word]]:
    heads = list(CELL.finditer(word.text))
    ends = [*(one.start() for one in heads[1:]), len(word.text)]
    for head, end in zip(heads, ends[: len(heads)], strict=True):
        yield head["rest"], word.part(min(head.end() + 1, end), end)


def _lines(word: Word) -> Iterator[Word]:
    position = 0
    for line in word.text.split("\n"):
        yield word.part(position, position + len(line))
        position += len(line) + 1
