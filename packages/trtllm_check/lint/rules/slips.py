"""Slips of the keyboard: dashes of an option, two options in one word, a requirement that the shell redirects."""

import re
from collections.abc import Iterator, Sequence
from itertools import pairwise
from pathlib import PurePosixPath
from typing import Any

from trtllm_check.lint.document import Document
from trtllm_check.lint.finding import Draft, Platform, drafts
from trtllm_check.lint.invocations import Invocation
from trtllm_check.lint.programs import TOOLS
from trtllm_check.lint.rules.vllm import is_vllm_option
from trtllm_check.lint.shell.words import Redirect, ShellCommand, Word, lines_of
from trtllm_check.lint.unread import is_strange

MANY_DASHES = re.compile(r"-{3,}(?P<name>[A-Za-z][\w-]*)[\w.-]*(?:=.*)?", re.DOTALL)
ONE_DASH = re.compile(r"-(?P<name>[A-Za-z][\w-]{3,})[\w.-]*(?:=.*)?", re.DOTALL)
TYPOGRAPHIC = re.compile(r"(?=.*[–—−])[-–—−]{1,3}(?P<name>[A-Za-z][\w-]*)[\w.-]*(?:=.*)?", re.DOTALL)
UNREAD = ("vllm", "tritonserver", "genai-perf", "aiperf", "trtllm-bench", "docker")  # others: typographic-dash
TWO_PARTS = re.compile(r"-[A-Za-z][A-Za-z0-9]*[_-]\w[\w-]*")
COMMANDS = r"serve|bench|throughput|latency|build|profile|analyze|download"
TOGETHER = re.compile(
    rf"(?P<first>{COMMANDS}|--[a-z][a-z0-9]*(?:[-_.][a-z0-9]+)*)(?P<second>--[a-z][\w.-]*)(?:=.*)?", re.DOTALL
)
VALUE_AND_OPTION = re.compile(r"(?:--[a-z][\w.-]*=)?(?P<first>[^\s={}'\"-][^\s={}'\"]*?)(?P<second>--[a-z][a-z0-9_-]+)")
PLACE_AND_OPTION = re.compile(
    r"(?:--[a-z][\w.-]*=)?(?P<first>\{[^{}\s'\":]+\}|\$\{\w+\}|\$\w+)(?P<second>--[a-z][a-z0-9_-]+)"
)
"""The same behind a value that is filled in: ``--host {ip}--port``."""
A_NUMBER = re.compile(r"\d+(?:\.\d+)?")
REQUIREMENT = re.compile(r"[A-Za-z][\w.-]*(?:\[[\w,-]+\])?")
VERSION = re.compile(r"=?\d[\w.*]*(?:,.*)?")
OPTION = re.compile(r"--?[A-Za-z][\w.-]*(?:=.*)?|[a-z][\w.]+=.+", re.DOTALL)
PAGES = (".md", ".sh", ".rst", ".mdx", ".bash")
NO_BLANK = re.compile(r"(?<=[^\s])[ \t]*(?P<mark>[\u00a0\u202f\u2007\u3000\u200b])[ \t]*(?=[^\s#])")
COMMENTED = re.compile(r"(?:^|\s)#")
ENOUGH = 2  # options with two dashes beside the one with one

OPTION_BEHIND = re.compile(r"-{1,2}[A-Za-z]")
GOES_ON = (",", "=", ":", "/", ";", "|", "&", "+")
"""Ends of a word that is meant to be joined to what the next line begins with."""


def check(document: Document, platform: Platform) -> Iterator[Draft]:
    """All slips."""
    release = platform.release.name
    ends: set[tuple[str, int]] = set()
    blanks: set[tuple[str, int]] = set()
    for one in document.invocations:
        yield from _line_ends(document, one, ends, release)
        for word, options in _options(one):
            yield from _together(one, word, release)
            if match := MANY_DASHES.fullmatch(word.text):
                meant = f"--{match['name']}"
                yield from _dashes(one, word, meant, release, form="many")
            elif one.tool in UNREAD and (match := TYPOGRAPHIC.fullmatch(word.text)):
                yield from _dashes(one, word, f"--{match['name']}", release, form="of typography")
            elif match := ONE_DASH.fullmatch(word.text):
                yield from _one_dash(one, word, match["name"], options, release)
        if one.tool == "pip":
            yield from _redirected(one, release)
        yield from _no_blank(document, one, blanks, release)
    yield from _strange_ends(document, ends, release)


def _line_ends(document: Document, invocation: Invocation, ends: set[tuple[str, int]], release: str) -> Iterator[Draft]:
    """A backslash behind the last line of a command, and one that joins two lines to one word."""
    command = invocation.command
    text = next((text for name, text in document.texts if name == command.file), "")
    is_known = invocation.tool in TOOLS
    if not text:
        return
    lines = lines_of(text)
    for word, behind in pairwise(invocation.arguments):
        line = lines[word.line - 1] if word.line <= len(lines) else ""
        joined = behind.line == word.line + 1 and behind.column == 1 and line.endswith(f"{word.text}\\")
        is_option = is_known or OPTION_BEHIND.match(behind.text) is not None
        if joined and is_option and not word.text.endswith(GOES_ON):
            yield from drafts(
                release,
                "line-end",
                word,
                form="joined",
                invocation=invocation,
                first=word.text,
                second=behind.text,
            )
    if is_known:
        yield from _last_end(command, lines, ends, invocation.tool, release)


def _last_end(
    command: ShellCommand, lines: Sequence[str], ends: set[tuple[str, int]], tool: str, release: str
) -> Iterator[Draft]:
    """A backslash behind the last line of a command."""
    last = command.end_line
    if last == command.line or last > len(lines) or (command.file, last) in ends:
        return
    after = lines[last].strip() if last < len(lines) else ""
    if "…" in lines[last - 1] or "..." in lines[last - 1]:
        return  # what the page leaves out stands behind it
    if lines[last - 1].endswith("\\") and (not after or after.startswith(("```", "~~~"))):
        ends.add((command.file, last))
        line = lines[last - 1]
        place = Word("\\", last, len(line))
        for draft in drafts(release, "line-end", place, file=command.file, tool=tool):
            yield draft if after or _ends(lines, last) else draft._replace(severity="info")  # joined to nothing


def _ends(lines: Sequence[str], last: int) -> bool:
    """True where a block of a page ends behind the blank lines: what is pasted next is joined."""
    return next((line for line in lines[last:] if line.strip()), "").lstrip().startswith(("```", "~~~"))


def _strange_ends(document: Document, ends: set[tuple[str, int]], release: str) -> Iterator[Draft]:
    """The same behind a command of somebody's own that has options."""
    texts = {name: lines_of(text) for name, text in document.texts if name.endswith(PAGES) or not name}
    for command in document.commands:
        if command.end_line == command.line:
            continue
        options = [word.text for word in command.words if OPTION.fullmatch(word.text)]
        is_part = command.words[:1] and command.words[0].text.startswith("-")  # options for a command elsewhere
        if command.file in texts and len(options) >= ENOUGH and not is_part:
            tool = command.words[0].text
            yield from _last_end(command, texts[command.file], ends, tool, release)


def _no_blank(document: Document, invocation: Invocation, seen: set[tuple[str, int]], release: str) -> Iterator[Draft]:
    """A blank between two words that is none to a shell: of a web page, of no width, of full width."""
    command = invocation.command
    text = next((text for name, text in document.texts if name == command.file), "")
    if invocation.tool not in TOOLS and invocation.tool not in ("docker", "pip"):
        return
    for number, line in enumerate(lines_of(text)[command.line - 1 : command.end_line], command.line):
        match = NO_BLANK.search(line)
        if match is None or (command.file, number) in seen or COMMENTED.search(line[: match.start()]):
            continue
        seen.add((command.file, number))
        place = Word(match["mark"], number, match.start("mark") + 1)
        name = f"U+{ord(match['mark']):04X}"
        behind = line[match.end() :].split()[0][:40]
        yield from drafts(release, "no-blank", place, file=command.file, name=name, word=behind, tool=invocation.tool)


def _options(invocation: Invocation) -> Iterator[tuple[Word, list[str]]]:
    """The words in front of a docker image, and those of a tool or of somebody's Python; with all of the kind."""
    tool = invocation.tool
    if tool == "docker":
        words = [given.word for given in invocation.given if given.flag]
    elif tool in TOOLS or (tool == "python" and is_strange(invocation)):
        words = list(invocation.arguments)
    else:
        return
    texts = [word.text for word in words]
    for word in dict.fromkeys(words):
        yield word, texts


def _dashes(invocation: Invocation, word: Word, meant: str, release: str, *, form: str) -> Iterator[Draft]:
    written = word.text.partition("=")[0]
    name = PurePosixPath(invocation.path.text).name
    yield from drafts(
        release, "option-dashes", word, form=form, invocation=invocation, written=written, meant=meant, tool=name
    )


def _one_dash(invocation: Invocation, word: Word, name: str, options: list[str], release: str) -> Iterator[Draft]:
    """``-tensor-parallel-size`` of vLLM, and ``-n_kv_head`` of a script whose other options have two dashes."""
    if invocation.tool == "vllm" and is_vllm_option(name):
        yield from _dashes(invocation, word, f"--{name}", release, form="")
    elif invocation.tool == "python" and TWO_PARTS.fullmatch(word.text):
        others = [text for text in options if TWO_PARTS.fullmatch(text)]
        if len(others) == 1 and sum(text.startswith("--") for text in options) >= ENOUGH:
            yield from _dashes(invocation, word, f"--{name}", release, form="a script's")


def _together(invocation: Invocation, word: Word, release: str) -> Iterator[Draft]:
    match = TOGETHER.fullmatch(word.text)
    if match:
        first, second, tool = match["first"], match["second"], invocation.tool
        yield from drafts(
            release, "options-run-together", word, invocation=invocation, tool=tool, first=first, second=second
        )
    elif invocation.tool == "vllm" and (match := _glued(invocation, word)) is not None:
        first, second = match["first"], match["second"]
        if is_vllm_option(second.removeprefix("--")) and not A_NUMBER.fullmatch(first):  # vllm-form speaks of numbers
            known: dict[str, Any] = {"tool": "vllm", "first": first, "second": second}
            before = (given.flag for given in invocation.given if any(word is value for value in given.values[:1]))
            known["of"] = f" of {flag}" if (flag := next(before, "")) else ""
            yield from drafts(release, "options-run-together", word, form="value", invocation=invocation, **known)


def _glued(invocation: Invocation, word: Word) -> re.Match[str] | None:
    """A value and an option in one word; what a place is filled with may end in a blank where it is no value."""
    if (match := VALUE_AND_OPTION.fullmatch(word.text)) is not None:
        return match
    is_value = any(word is value for given in invocation.given if given.flag[:2] == "--" for value in given.values[:1])
    return PLACE_AND_OPTION.fullmatch(word.text) if is_value or word.text.startswith("--") else None


def _redirected(pip: Invocation, release: str) -> Iterator[Draft]:
    for redirect in pip.command.redirects:
        place = redirect.target
        for word in pip.positional:
            ends = (word.line, word.column + len(word.text) + len(redirect.operator))
            if (place.line, place.column) == ends and _is_requirement(word, redirect):
                said = f"{word.text}{redirect.operator}{place.text}"
                what = "write its output into a file" if ">" in redirect.operator else "read its input from a file"
                yield from drafts(
                    release,
                    "requirement-redirected",
                    word,
                    file=pip.command.file,
                    written=said,
                    name=word.text,
                    target=place.text,
                    what=what,
                )


def _is_requirement(word: Word, redirect: Redirect) -> bool:
    is_comparison = redirect.operator in ("<", ">")
    return (
        is_comparison
        and REQUIREMENT.fullmatch(word.text) is not None
        and VERSION.fullmatch(redirect.target.text) is not None
    )
