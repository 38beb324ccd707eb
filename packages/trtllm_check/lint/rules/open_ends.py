"""Shell in fences: here-documents without an end or with $(NAME), a quote without its other; marks of a merge."""

import re
from collections.abc import Iterator
from typing import Any

from trtllm_check.lint.document import Document
from trtllm_check.lint.finding import Draft, Platform, drafts
from trtllm_check.lint.shell.pasted import fences
from trtllm_check.lint.shell.words import Word

SHELLS = ("bash", "sh", "shell", "zsh", "console")
HEREDOC = re.compile(
    r"^[ \t]*(?:\$ )?(?:sudo )?(?:cat|tee|kubectl|oc|helm|docker|bash|sh)\b[^\n#\"']*"
    r"<<-?[ \t]*(['\"]?)(?P<name>[A-Z][A-Z_]*)\1[^\n]*$",
    re.MULTILINE,
)
COMMAND = re.compile(
    r"^[ \t]*(?:\$ )?(?:pip3?|uv|docker|kubectl|helm|vllm|curl|python3?|export|git|aws)\s.*$", re.MULTILINE
)
MERGE = re.compile(r"^<<<<<<< \S+$(?=(?:.*\n)*?={7}\n(?:.*\n)*?>>>>>>> \S)", re.MULTILINE)
CALLED = re.compile(r"(?<!\\)\$\((?P<name>[A-Z][A-Z0-9_]{2,})\)")
COMMENT = re.compile(r"(?:^|(?<=\s))#.*$", re.MULTILINE)
MAKEFILE = re.compile(r"^\.PHONY:|^[\w./-]+:[^=\n]*\n\t", re.MULTILINE)  # which writes its own dollars
OPEN_VALUE = re.compile(r"--[a-z][\w-]*[= ][\w./:-]+(?P<quote>['\"])[ \t]*\\?[ \t]*$", re.MULTILINE)
ESCAPED = re.compile(r"\\.")
ELIDED = re.compile(  # "# ... (truncated)" on the last line of a block
    r"^[ \t]*(?:#|//)?[ \t]*(?:\.{3}|…|[\[(<]?(?:truncated|omitted|snipped|cut|rest of)\b)[^\n]*\s*\Z",
    re.MULTILINE | re.IGNORECASE,
)


def check(document: Document, platform: Platform) -> Iterator[Draft]:
    """All drafts of the family."""
    for file, text in document.texts:
        if (match := MERGE.search(text)) is not None:
            yield from drafts(platform.release.name, "merge-marks", _place(text, match.start(), "<<<<<<<"), file=file)
        for block in () if MAKEFILE.search(text) else fences(text):
            if block.language in SHELLS or not block.language:
                yield from _heredocs(text, block.start, block.end, file, platform.release.name)
                yield from _behind_a_value(text, block.start, block.end, file, platform.release.name)
            if block.language in SHELLS:
                yield from _quotes(text, block.start, block.end, file, platform.release.name)


def _heredocs(text: str, start: int, end: int, file: str, release: str) -> Iterator[Draft]:
    inside = text[start:end]
    for match in HEREDOC.finditer(inside):
        name = match["name"]
        if not match[1]:
            yield from _commands(text, start + match.end(), end, name, file, release)
        behind = inside[match.end() :]
        is_open = not re.search(rf"^[ \t]*{name}\b", behind, re.MULTILINE)
        if is_open and behind.strip() and not ELIDED.search(behind):
            place = _place(text, start + match.start("name"), name)
            is_cut = start > 0 and end >= len(text.rstrip())  # a block of a page that does not end either
            for draft in drafts(release, "shell-left-open", place, file=file, name=name):
                yield draft._replace(severity="info") if is_cut else draft


def _quotes(text: str, start: int, end: int, file: str, release: str) -> Iterator[Draft]:
    inside = text[start:end]
    if "<<" in inside:
        return
    for quote, other in (('"', "'"), ("'", '"')):
        plain = ESCAPED.sub("  ", inside)
        if plain.count(quote) != 1 or other in plain or "`" in plain:
            continue
        at = plain.index(quote)
        line = COMMAND.search(plain, plain.rfind("\n", 0, at) + 1)
        if line is not None and line.start() <= at < line.end() and "#" not in plain[line.start() : at]:
            yield from drafts(
                release, "shell-left-open", _place(text, start + at, quote), form="quote", file=file, quote=quote
            )


def _behind_a_value(text: str, start: int, end: int, file: str, release: str) -> Iterator[Draft]:
    """``--max-model-len 8192'`` at the end of a line, with the only quote of its kind in the block."""
    inside = COMMENT.sub(lambda match: " " * len(match[0]), text[start:end])
    found = [match for match in OPEN_VALUE.finditer(inside) if inside.count(match["quote"]) == 1]
    for match in found:
        place = _place(text, start + match.start("quote"), match["quote"])
        yield from drafts(release, "shell-left-open", place, form="quote", file=file, quote=match["quote"])


def _commands(text: str, start: int, end: int, name: str, file: str, release: str) -> Iterator[Draft]:
    """``$(HF_TOKEN)`` in a here-document that the shell reads."""
    last = re.compile(rf"^[ \t]*{name}\b", re.MULTILINE).search(text, start, end)
    found = CALLED.search(text, start, last.start() if last else end)
    if found is not None:
        place = _place(text, found.start(), found[0])
        known: dict[str, Any] = {"name": found["name"], "end": name}
        yield from drafts(release, "shell-left-open", place, form="command", file=file, **known)


def _place(text: str, start: int, word: str) -> Word:
    return Word(word, text.count("\n", 0, start) + 1, start - text.rfind("\n", 0, start))
