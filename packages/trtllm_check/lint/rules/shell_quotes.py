"""Quotes that a shell does not take as they are meant: a word processor's, ones around a variable or a pattern."""

import posixpath
import re
from collections.abc import Iterator
from functools import cache
from typing import Any

from trtllm_check.lint.document import Document
from trtllm_check.lint.finding import Draft, Platform, drafts
from trtllm_check.lint.invocations import Invocation
from trtllm_check.lint.programs import PYTHON
from trtllm_check.lint.shell.words import ShellCommand, Word, lines_of

RULE = "shell-quotes"
CURLED = re.compile(r"(?:--?[A-Za-z][\w-]*=|[A-Za-z_]\w*=)?[“”‘’„]")
VARIABLE = re.compile(r"\$(?:\{[A-Za-z_]\w*\}|[A-Za-z_]\w*)")
# Texts whose reader replaces variables before any shell does, or hands them to another shell.
REPLACED = re.compile(
    r"<<|\benvsubst\b|^(?:services|apiVersion|jobs|on|stages|image|version|name|steps)\s*:|^\S[^\n]*:[^\n]*\n\t|\{%|\{\{|\bssh\b",
    re.MULTILINE,
)
QUOTED_PROGRAMS = ("vllm", "docker", "trtllm-serve", "trtllm-build", "curl", "tritonserver")
IN_FRONT = ("nohup", "exec", "time", "setsid")
# Programs that take names of files, and leave patterns to the shell. rm -f says nothing where there is no file.
OF_FILES = frozenset({"cp", "mv", "rm", "ls", "cat", "ln", "chmod", "chown", "du", "head", "tail", "stat"})
QUOTED_PATTERN = re.compile(
    r"(?<![^\s=(])(?P<quote>[\"'])(?P<path>[^\"'\s\\]*/[^\"'\s\\/]*\*[^\"'\s\\/]*)(?P=quote)(?![^\s;)&|])"
)


def check(document: Document, platform: Platform) -> Iterator[Draft]:
    """All drafts of the family."""
    release = platform.release.name
    texts = dict(document.texts)
    is_asked = cache(lambda text: "'$" in text and REPLACED.search(text) is None)  # of a whole text, once
    for one in document.invocations:
        text = texts.get(one.command.file, "")
        yield from _curled(one, text, release)
        if one.tool == "vllm" and not one.command.image and not one.command.inside and is_asked(text):
            yield from _single(one, text, release)
    for command in document.commands:
        if len(command.words) > 1 and command.words[0].text in IN_FRONT:
            yield from _whole(command.words[1], command.file, release)
        names = [word.text for word in command.words[:2]]
        tool = next((name for name in (names if names[:1] == ["sudo"] else names[:1]) if name in OF_FILES), "")
        if tool and any("*" in word.text for word in command.words):
            yield from _pattern(command, tool, texts.get(command.file, ""), release)


def _curled(one: Invocation, text: str, release: str) -> Iterator[Draft]:
    """``--hf-overrides ‘{...}’``."""
    if one.tool not in QUOTED_PROGRAMS:
        return
    word = next((word for word in one.arguments if CURLED.match(word.text)), None)
    if word is not None and "`#" not in "".join(lines_of(text)[word.line - 1 : word.line]):  # of a comment in a command
        known: dict[str, Any] = {"word": word.text if len(word.text) < 40 else f"{word.text[:36]} ..."}
        yield from drafts(release, RULE, word, file=one.command.file, **known)


def _single(one: Invocation, text: str, release: str) -> Iterator[Draft]:
    """``vllm serve '$MODEL'``."""
    lines = lines_of(text)
    for word in one.arguments:
        if not VARIABLE.fullmatch(word.text) or word.line > len(lines):
            continue
        line = lines[word.line - 1]
        at = line.find(f"'{word.text}'")
        if at >= 0 and line[:at].count('"') % 2 == 0 and line[:at].count("'") % 2 == 0:
            known: dict[str, Any] = {"name": word.text}
            yield from drafts(release, RULE, word, form="single", file=one.command.file, **known)


def _whole(word: Word, file: str, release: str) -> Iterator[Draft]:
    """``nohup "vllm serve model"``: one word, which is the name of no program."""
    parts = word.text.split()
    name = posixpath.basename(parts[0]) if parts else ""
    if len(parts) > 1 and (name in QUOTED_PROGRAMS or PYTHON.fullmatch(name)):
        yield from drafts(release, "command-in-one-word", word, file=file, name=parts[0])


def _pattern(command: ShellCommand, tool: str, text: str, release: str) -> Iterator[Draft]:
    """``cp "$ENGINES/*" models``: a pattern that the quotes keep from the shell."""
    lines = lines_of(text)
    is_silent = tool == "rm" and any(re.fullmatch(r"-\w*f\w*|--force", word.text) for word in command.words)
    for word in command.words[1:]:
        place = word.part(word.text.find("*")) if "*" in word.text else word
        line = lines[place.line - 1] if "*" in word.text and 0 < place.line <= len(lines) else ""
        for match in QUOTED_PATTERN.finditer(line):
            if not match.start() < place.column <= match.end() or match["path"].rpartition("/")[2] not in word.text:
                continue
            folder, _, name = match["path"].rpartition("/")
            known: dict[str, Any] = {"tool": tool, "word": match[0], "right": f'"{folder}"/{name}'}
            form = "pattern, silent" if is_silent else "pattern"
            yield from drafts(release, RULE, word, form=form, file=command.file, **known)
            return
