"""Names that a program uses, and that nothing of the text imports or makes."""

import re
from collections.abc import Iterator
from functools import lru_cache

from trtllm_check.lint.carriers.loose_names import ERROR
from trtllm_check.lint.document import Document
from trtllm_check.lint.finding import Draft, Platform, drafts
from trtllm_check.lint.shell.pasted import fences, is_python
from trtllm_check.lint.shell.words import lines_of

FAMILY = "loose_names"
RULE = "name-missing"
FROM, PB_UTILS = re.compile(r"from (?P<module>\S+) import"), "triton_python_backend_utils"
# What Triton, LMI, SageMaker, Ray, Locust or pytest calls.
BY_OTHERS = re.compile(
    r"__|execute|initialize|finalize|auto_complete_config|forward|handle|predict|inference|load|setup|run|main|on_|test_"
    r"|\w*_(?:fn|handler)$"
)
DEFINED = re.compile(r"(?P<depth>[ \t]*)(?:async[ ]+)?def[ ]+(?P<name>\w+)")
PROSE = re.compile(r"^[A-Z][\w'-]*(?: [\w'(),-]+){3,}[.:]?$", re.MULTILINE)  # a sentence without a mark in front
MADE = (
    r"\bimport\b[^\n]*\b{name}\b|\b(?:as|def|class|for)\s+{name}\b"
    r"|^[ \t]*{name}\s*(?::[^\n=]+)?=|^[ \t]+{name},?[ \t]*$"
)


def check(document: Document, platform: Platform) -> Iterator[Draft]:
    """All drafts of the family."""
    texts = dict(document.texts)
    for one in document.names:
        if one.error != ERROR:
            continue
        text = texts.get(one.file, "")
        made = re.compile(MADE.format(name=re.escape(one.dotted)), re.MULTILINE)
        if made.search(text):
            continue  # another piece of the page does
        is_page = any(fences(text))
        if not is_page and not _is_program(text):
            continue  # a piece of code between sentences
        form = "on a page" if is_page and not _imports_others(one.member, text) else ""
        instead = one.member if one.member.startswith("write ") else f"put {one.member} at the top"
        for draft in drafts(
            platform.release.name, RULE, one.place, form=form, file=one.file, name=one.dotted, instead=instead
        ):
            if not is_page and _is_never_called(one.place.line, text):
                yield draft._replace(severity="info")
            else:
                yield draft._replace(severity="warning") if is_page and not form else draft


@lru_cache(maxsize=8)
def _is_program(text: str) -> bool:
    return PROSE.search(text) is None or is_python(text)


def _is_never_called(line: int, text: str) -> bool:
    """True for a line of a function that the text does not call: nothing happens until another one does."""
    lines = lines_of(text)
    depth = len(lines[line - 1]) - len(lines[line - 1].lstrip()) if 0 < line <= len(lines) else 0
    for number in range(line - 2, -1, -1):
        match = DEFINED.match(lines[number])
        if match and len(match["depth"]) < depth:
            name = re.escape(match["name"])
            by_others = BY_OTHERS.match(name) or lines[number - 1].lstrip().startswith("@")
            return not by_others and re.search(rf"(?<!def )(?<!\w){name}\b", text) is None
    return False


def _imports_others(member: str, text: str) -> bool:
    """True where the text has a line that imports other names of the module: this one was forgotten there."""
    match = FROM.match(member)
    module = match["module"] if match else PB_UTILS if "pb_utils." in member else ""
    return bool(module) and re.search(rf"^[ \t]*from {re.escape(module)} import\b", text, re.MULTILINE) is not None
