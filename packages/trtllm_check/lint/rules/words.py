"""Words that hold more than one: an option with its value, or a whole command line, as one item of a list."""

import re
from collections.abc import Iterator
from pathlib import PurePosixPath

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
TAKES_WORDS = re.compile(r"arg|option|opt|extra|flag|prompt|text|template|command|cmd", re.IGNORECASE)


def check(document: Document, platform: Platform) -> Iterator[Draft]:
    """Both kinds."""
    release = platform.release.name
    for one in document.of(*CHECKED):
        for word in _options(one):
            match = OPTION.fullmatch(word.text)
            if match:
                flag, value = match["flag"], match["value"]
                yield from drafts(
                    release, "option-in-one-word", word, file=one.command.file, flag=flag, value=value, tool=one.tool
                )
    for command in document.commands:
        if command.words and (name := _program(command.words[0])):
            yield from drafts(release, "command-in-one-word", command.words[0], file=command.file, name=name)


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
    if len(parts) < 3:
        return ""
    name = PurePosixPath(parts[0]).name
    known = name in TOOLS or name in PROGRAMS or PYTHON.fullmatch(name) is not None
    return parts[0] if known and any(part.startswith("-") for part in parts[1:]) else ""
