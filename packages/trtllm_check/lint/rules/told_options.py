"""Options that a page lists in a table, or names between its words: none of a release, values that they do not take."""

import re
from collections.abc import Iterator, Sequence
from functools import cache
from typing import Any, NamedTuple

from trtllm_check.lint.document import Document
from trtllm_check.lint.finding import Draft, Platform, drafts
from trtllm_check.lint.shell.words import Word, word_at
from trtllm_check.releases import known_releases, load_release
from trtllm_check.releases.clients import example_words
from trtllm_check.releases.history import with_flag
from trtllm_check.releases.nearest import nearest

RULE = "told-option"
BUILD = "trtllm-build"
TOOLS = (BUILD, "convert_checkpoint.py", "quantize.py", "trtllm-serve", "run.py", "summarize.py", "trtllm-eval")
ROW = re.compile(r"^[ \t]*\|[ ]*`?(?P<flag>--[a-z]\w+)`?[ ]*\|(?P<rest>[^\n]*)\|[ \t]*$", re.MULTILINE)
LINE = re.compile(r"[ \t]*\|")
VALUES = re.compile(r"[a-z0-9_]+(?:[ ]?[,/][ ]?[a-z0-9_]+)*")
OF_A_TYPE = re.compile(r"(?:b?float|int|fp|bf)\d\w*")
ABOUT = re.compile(r"trt-?llm|tensorrt[-_ ]?llm", re.IGNORECASE)
PLATFORM = re.compile(r"`platform:[ ]*\"(?P<name>tensorrt[-_]?llm)\"`", re.IGNORECASE)
SAYS_NOT = re.compile(r"\b(?:not|never|no longer|instead of|don't)\b|❌", re.IGNORECASE)
FEWEST, NEAR = 3, 0.8


class _Row(NamedTuple):
    flag: str
    line: int
    place: Word
    cells: tuple[tuple[str, int], ...]


def check(document: Document, platform: Platform) -> Iterator[Draft]:
    """All drafts of the family."""
    release = platform.release.name
    for file, text in document.texts:
        if "|" not in text and "`platform" not in text:
            continue
        if not ABOUT.search(text):
            continue
        for rows in _tables(text):
            yield from _table(rows, text, file, release)
        for match in PLATFORM.finditer(text):
            line = text[text.rfind("\n", 0, match.start()) + 1 : match.start()]
            if not SAYS_NOT.search(line):
                place = word_at(text, match.start(), match[0])
                yield from drafts(release, RULE, place, form="platform", file=file, name=match["name"])


def _tables(text: str) -> Iterator[list[_Row]]:
    """The rows that begin with an option, of each table with some of them."""
    found: list[_Row] = []
    end = 0
    for match in ROW.finditer(text):
        between = text[end : match.start()]
        if found and not all(map(LINE.match, between.split("\n")[1:-1])):
            yield found
            found = []
        start = match.start("rest")
        cells: list[tuple[str, int]] = []
        for cell in match["rest"].split("|"):
            cells.append((cell, start))
            start += len(cell) + 1
        place = word_at(text, match.start("flag"), match["flag"])
        found.append(_Row(match["flag"], place.line, place, tuple(cells)))
        end = match.end()
    yield from [found] if found else []


def _table(rows: Sequence[_Row], text: str, file: str, release: str) -> Iterator[Draft]:
    known = [row for row in rows if any(with_flag(tool, row.flag) for tool in TOOLS)]
    if len(known) < FEWEST or len(known) * 2 <= len(rows):
        return  # of another program
    for row in rows:
        if row not in known and row.flag not in example_words():
            near = nearest(row.flag, frozenset(one for one in _all_flags()), NEAR)
            instead = f"write {near}" if near else f"leave {row.flag} out"
            yield from drafts(release, RULE, row.place, file=file, flag=row.flag, instead=instead)
        elif with_flag(BUILD, row.flag):
            yield from _values(row, text, file, release)


def _values(row: _Row, text: str, file: str, release: str) -> Iterator[Draft]:
    """``float16, float8`` beside ``--gemm_plugin``: types, of which one is taken and another is not."""
    taken = _choices(row.flag)
    for cell, start in row.cells:
        written = cell.replace("`", " ")
        if not taken or not VALUES.fullmatch(written.strip()):
            continue
        words = [(match[0], start + match.start()) for match in re.finditer(r"[a-z0-9_]+", written)]
        if not any(word in taken for word, _ in words):
            continue
        for word, at in words:
            if word not in taken and OF_A_TYPE.fullmatch(word):
                known: dict[str, Any] = {"flag": row.flag, "value": word, "takes": ", ".join(sorted(taken))}
                yield from drafts(release, RULE, word_at(text, at, word), form="value", file=file, **known)


@cache
def _choices(flag: str) -> frozenset[str]:
    """What trtllm-build takes for a flag in any release."""
    tools = [tool for name in known_releases() if (tool := load_release(name).tools.get(BUILD))]
    found = [one for tool in tools if tool.has(flag) and (one := tool.argument(flag)) is not None]
    return frozenset(str(choice) for one in found for choice in (*one.choices, *one.unconfirmed))


@cache
def _all_flags() -> frozenset[str]:
    tools = [tool for name in known_releases() for each in TOOLS if (tool := load_release(name).tools.get(each))]
    return frozenset(name for tool in tools for name in tool.arguments if name.startswith("--"))
