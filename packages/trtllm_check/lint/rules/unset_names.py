"""Variables that a script hands to a tool and never sets, where it sets others of their kind itself."""

import re
from collections.abc import Iterator
from functools import lru_cache

from trtllm_check.lint.document import Document
from trtllm_check.lint.finding import Draft, Platform, drafts
from trtllm_check.lint.invocations import Invocation
from trtllm_check.lint.kinds import kind_of_text
from trtllm_check.lint.shell.pasted import has_fence
from trtllm_check.lint.unread import is_strange

RULE = "variable-never-set"
ALONE = re.compile(r"\$\{(?P<name>[a-z][a-z0-9]*(?:_[a-z0-9]+)*)\}")
WRITTEN = re.compile(r"\$(?:\{(?P<braced>[a-z]\w*)\}|(?P<plain>[a-z]\w*))")
SET = re.compile(
    r"^[ \t]*(?:(?:local|export|readonly|declare|typeset)[ \t]+(?:-\w+[ \t]+)*)?(?P<name>[a-z]\w*)\+?=", re.MULTILINE
)
# Any place that gives a name a value, or may: also where it stands as a word of its own, as for read and getopts.
NAMED = re.compile(r"(?<![\w$\{/.-])(?P<name>[a-z]\w*)(?=\+?=|\b)|\$\{(?P<default>[a-z]\w*)(?::?[=?+-]|[#%/\[^,@])")
FROM_ELSEWHERE = re.compile(
    r"^[ \t]*(?:source|\.|eval)[ \t]|\bset -a\b|\bgetopts?\b|\b(?:sbatch|envsubst|export -f)\b|\{\{|\{%|<<[A-Z]",
    re.MULTILINE,
)
FEWEST, MOST = 3, 3
NO_TOOLS = ("docker", "python")


def check(document: Document, platform: Platform) -> Iterator[Draft]:
    """All drafts of the family."""
    for file, text in document.texts:
        if "$" not in text or has_fence(text) or FROM_ELSEWHERE.search(text) or kind_of_text(text) != "shell":
            continue
        if len({match["name"] for match in SET.finditer(text)}) >= FEWEST:
            yield from _unset(document, file, text, platform.release.name)


def _unset(document: Document, file: str, text: str, release: str) -> Iterator[Draft]:
    said: set[str] = set()
    strange = {match["braced"] or match["plain"] for match in WRITTEN.finditer(text)} - _named(text)
    if len(strange) > MOST:
        return  # a script that gets its variables from what starts it
    for one in document.invocations:
        if one.command.file != file or one.tool in NO_TOOLS or is_strange(one):
            continue
        for name, flag in _alone(one):
            if name not in said and name not in _named(text):
                said.add(name)
                word = one.find(flag)
                place = word.values[0] if word is not None else one.path
                yield from drafts(release, RULE, place, invocation=one, file=file, name=name, flag=flag)


def _alone(one: Invocation) -> Iterator[tuple[str, str]]:
    """Variables that are the whole value of an option, without quotes."""
    for given in one.given:
        if given.flag.startswith("-") and len(given.values) == 1:
            match = ALONE.fullmatch(given.values[0].text)
            if match is not None:
                yield match["name"], given.flag


@lru_cache(maxsize=8)
def _named(text: str) -> frozenset[str]:
    """Names that stand anywhere but behind a dollar sign alone."""
    without = re.sub(r"(?m)^[ \t]*#.*$", "", text)
    return frozenset(match["name"] or match["default"] for match in NAMED.finditer(without))
