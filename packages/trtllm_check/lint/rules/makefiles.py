"""Recipes of make: a dollar that make takes for itself, and lines of which each has a shell of its own."""

import re
from collections.abc import Iterator
from typing import Any

from trtllm_check.lint.document import Document
from trtllm_check.lint.finding import Draft, Platform, drafts
from trtllm_check.lint.shell.words import Word, lines_of

MAKEFILE = re.compile(r"^[A-Za-z_.][\w.%/ -]*:(?![=:])[^\n]*\n(?:\t|[ \t]*#[^\n]*\n\t)", re.MULTILINE)
OTHER = re.compile(r"\A#!|^```|^~~~|\.ONESHELL", re.MULTILINE)
OURS = re.compile(r"vllm|trt-?llm|triton|docker|nvidia|huggingface|\bhf\b", re.IGNORECASE)
SINGLE = re.compile(r"(?<!\$)\$(?P<name>[A-Za-z_][A-Za-z0-9_]+)")
# Commands of a shell between round brackets, which make takes for the name of a variable.
CALLED = re.compile(
    r"(?<!\$)\$\((?P<name>pwd|whoami|hostname|nproc|date|(?:cat|ls|grep|git|docker|curl|id|realpath|dirname|basename"
    r"|find|awk|sed|uname|python3?|date|nvidia-smi|which|seq|echo|jq|aws)[ ][^()\n]*)\)"
)
ALONE = re.compile(r"\t[@-]?[ ]*(?P<what>export|cd|source|conda activate)[ ]+(?P<rest>[^&;|\n\\]+)$")
ASSIGNED = re.compile(r"(?P<name>[A-Za-z_]\w*)=")


def check(document: Document, platform: Platform) -> Iterator[Draft]:
    """All drafts of the family."""
    release = platform.release.name
    for file, text in document.texts:
        if "\n\t" in text and MAKEFILE.search(text) and not OTHER.search(text) and OURS.search(text):
            yield from _recipes(text, file, release)


def _recipes(text: str, file: str, release: str) -> Iterator[Draft]:
    lines = lines_of(text)
    for number, line in enumerate(lines, 1):
        called = CALLED.search(line) if "$(" in line and not line.lstrip().startswith("#") else None
        if called is not None and not re.search(
            rf"^\s*(?:export\s+)?{re.escape(called['name'])}\s*[:?+]?=", text, re.MULTILINE
        ):
            about: dict[str, Any] = {"name": called["name"]}
            place = Word(called[0], number, called.start() + 1)
            yield from drafts(release, "recipe-of-make", place, form="called", file=file, **about)
        if not line.startswith("\t") or line.lstrip().startswith("#"):
            continue
        match = SINGLE.search(line)
        if match is not None and "'" not in line[: match.start()]:
            known: dict[str, Any] = {"name": match["name"], "first": match["name"][0], "rest": match["name"][1:]}
            yield from drafts(release, "recipe-of-make", Word(match[0], number, match.start() + 1), file=file, **known)
        alone = ALONE.fullmatch(line)
        following = lines[number] if number < len(lines) else ""
        if alone is not None and following.startswith("\t") and not lines[number - 2].endswith("\\"):
            place = Word(line.strip(), number, len(line) - len(line.lstrip()) + 1)
            known = {"what": f"{alone['what']} {alone['rest']}".strip()}
            yield from drafts(release, "recipe-of-make", place, form="alone", file=file, **known)
