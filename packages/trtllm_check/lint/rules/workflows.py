"""GitHub's workflows: functions and strings that an expression does not have, build arguments that are none."""

import re
from collections.abc import Iterator
from typing import Any

from trtllm_check.lint.document import Document
from trtllm_check.lint.finding import Draft, Platform, drafts
from trtllm_check.lint.shell.words import word_at

RULE = "workflow-expression"
WORKFLOW = re.compile(r"^[ ]+(?:- )?uses:[ \t]*[\"']?[\w.-]+/[\w./-]+@[\w.-]+|^[ ]+runs-on:[ \t]*\S", re.MULTILINE)
EXPRESSION = re.compile(r"\$\{\{(?P<inside>(?:[^'}]|'[^'\n]*'|\}(?!\}))*)\}\}")
TEXT = re.compile(r"'[^'\n]*'")
CALL = re.compile(r"(?<![\w.-])(?P<name>[A-Za-z_]\w*)[ \t]*\(")
# docs.github.com/actions/reference/workflows-and-actions/expressions, functions and status check functions.
FUNCTIONS = frozenset(
    {
        *("contains", "startswith", "endswith", "format", "join", "tojson", "fromjson", "hashfiles", "case"),
        *("success", "always", "cancelled", "failure"),
    }
)
SHELL = {"substring": "cut -c1-7", "replace": "sed or ${NAME//a/b}", "split": "cut or IFS", "tolower": "tr A-Z a-z"}
DOUBLE = re.compile(r"(?:==|!=|,|\(|\|\||&&)[ \t]*(?P<text>\\?\"[^\"\n]*\")")
BUILD_ARGS = re.compile(r"^(?P<indent>[ ]*)build-args:[ \t]*[|>][+-]?[ \t]*\n", re.MULTILINE)
COLON = re.compile(r"[ ]+(?P<name>[A-Za-z_]\w*)[ \t]*:[ \t]+\S.*")
PUSH = "docker/build-push-action"


def check(document: Document, platform: Platform) -> Iterator[Draft]:
    """All drafts of the family."""
    release = platform.release.name
    for file, text in document.texts:
        if not WORKFLOW.search(text):
            continue
        seen: set[str] = set()
        for match in EXPRESSION.finditer(text):
            yield from _functions(text, match, file, seen, release)
            yield from _strings(text, match, file, release)
        if PUSH in text:
            yield from _arguments(text, file, release)


def _functions(text: str, match: re.Match[str], file: str, seen: set[str], release: str) -> Iterator[Draft]:
    """``${{ substring(github.sha, 0, 7) }}``, each function once."""
    inside = TEXT.sub(lambda one: " " * len(one[0]), match["inside"])
    for call in CALL.finditer(inside):
        name = call["name"]
        if name.lower() in FUNCTIONS or name in seen:
            continue
        seen.add(name)
        place = word_at(text, match.start("inside") + call.start("name"), name)
        about: dict[str, Any] = {"name": name, "tool": SHELL.get(name.lower(), "the shell's own means")}
        yield from drafts(release, RULE, place, file=file, **about)


def _strings(text: str, match: re.Match[str], file: str, release: str) -> Iterator[Draft]:
    """``${{ inputs.mode == "fast" }}``."""
    inside = TEXT.sub(lambda one: " " * len(one[0]), match["inside"])
    found = DOUBLE.search(inside)
    if found is not None:
        place = word_at(text, match.start("inside") + found.start("text"), found["text"])
        right = f"'{found['text'].strip(chr(92)).strip(chr(34)).strip(chr(92))}'"
        yield from drafts(release, RULE, place, form="quotes", file=file, written=found["text"], right=right)


def _arguments(text: str, file: str, release: str) -> Iterator[Draft]:
    """``NAME: value`` among the build-args, which are lines of ``NAME=value``."""
    for block in BUILD_ARGS.finditer(text):
        start = block.end()
        for line in text[start:].split("\n"):
            if line.strip() and len(line) - len(line.lstrip()) <= len(block["indent"]):
                break
            found = COLON.fullmatch(line)
            if found is not None and "=" not in line.partition(":")[0]:
                place = word_at(text, start + found.start("name"), found["name"])
                yield from drafts(release, RULE, place, form="build-args", file=file, name=found["name"])
                break
            start += len(line) + 1
