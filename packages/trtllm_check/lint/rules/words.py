"""Words that hold more than one: an option with its value, or a whole command line, as one item of a list."""

import re
from collections.abc import Iterator
from pathlib import PurePosixPath
from typing import Any

from trtllm_check.lint.document import Document
from trtllm_check.lint.finding import Draft, Platform, drafts
from trtllm_check.lint.invocations import Invocation
from trtllm_check.lint.programs import PROGRAMS, PYTHON, TOOLS
from trtllm_check.lint.shell.words import Word

OPTION = re.compile(r"(?P<flag>--[A-Za-z][\w-]*|-[A-Za-z])[ \t]+(?P<value>\S.*)", re.DOTALL)
CHECKED = (
    "vllm",
    "trtllm-serve",
    "trtllm-build",
    "trtllm-bench",
    "trtllm-eval",
    "tritonserver",
    "convert_checkpoint.py",
)
YAML = re.compile(r"(?:[ \t]*+(?:#[^\n]*+|---[ \t]*+\r?+|\r?+)\n)*+[A-Za-z][\w.-]*:(?:[ \t]|\r?\n|$)")
READ_BY_A_PROGRAM = re.compile(r"^(?:- )?[ ]*(?:apiVersion|kind|services|spec|containers|jobs|steps)\s*:", re.MULTILINE)
TAKES_WORDS = re.compile(r"arg|option|opt|extra|flag|prompt|text|template|command|cmd", re.IGNORECASE)


def check(document: Document, platform: Platform) -> Iterator[Draft]:
    """Both kinds."""
    release = platform.release.name
    for one in document.of(*CHECKED):
        for word in _options(one):
            match = OPTION.fullmatch(word.text)
            if match:
                known: dict[str, Any] = {"flag": match["flag"], "value": match["value"], "tool": one.tool}
                is_open = _is_for_a_template(document, one.command.file)
                for draft in drafts(release, "option-in-one-word", word, file=one.command.file, **known):
                    yield draft._replace(severity="info") if is_open else draft
    for command in document.commands:
        if command.words and not command.words[0].text.startswith("`") and (name := _program(command.words[0])):
            yield from drafts(release, "command-in-one-word", command.words[0], file=command.file, name=name)


def _is_for_a_template(document: Document, file: str) -> bool:
    """True for YAML that a template of the project reads, which may put its items into one line."""
    text = dict(document.texts).get(file, "")
    return YAML.match(text) is not None and READ_BY_A_PROGRAM.search(text) is None


def _options(invocation: Invocation) -> Iterator[Word]:
    """Words that stand where an option may, not as the value of an option that takes whole texts."""
    before = ""
    for word in invocation.arguments:
        is_value = before.startswith("-") and " " not in before and TAKES_WORDS.search(before) is not None
        if not is_value and "$" not in word.text:
            yield word
        before = word.text


def _program(word: Word) -> str:
    """The program that a whole command line in one word begins with; "" for any other word."""
    parts = word.text.split()
    if len(parts) < 3 or "(" in parts[0]:
        return ""  # Bash(python ...): what a list allows
    name = PurePosixPath(parts[0]).name
    known = name in TOOLS or name in PROGRAMS or PYTHON.fullmatch(name) is not None
    return parts[0] if known and any(part.startswith("-") for part in parts[1:]) else ""
