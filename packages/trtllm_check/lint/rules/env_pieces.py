"""Variables of pods whose values are bare numbers, in what is no whole manifest: templates, and pieces of a page."""

import re
from collections.abc import Iterator
from typing import Any

from trtllm_check.lint.document import Document
from trtllm_check.lint.finding import Draft, Platform, drafts
from trtllm_check.lint.shell.pasted import fences
from trtllm_check.lint.shell.words import word_at

RULE = "env-value-not-text"
ENTRY = re.compile(
    r"^(?P<margin>[ ]*)- name:[ ]*[\"']?(?P<name>[A-Z][A-Z0-9_]*)[\"']?[ ]*\r?\n"
    r"(?P=margin)  value:[ ]*(?P<value>-?\d+(?:\.\d+)?|true|false|True|False|yes|no|on|off)[ ]*(?:#[^\n]*)?\r?$",
    re.MULTILINE,
)
OF_A_POD = re.compile(r"^[ ]*(?:- )?(?:containers|podSpec|initContainers):[ ]*(?:#[^\n]*)?$", re.MULTILINE)
WHOLE = re.compile(r"^apiVersion:", re.MULTILINE)
TEMPLATE = re.compile(r"\{[{%]")
LANGUAGES = ("yaml", "yml", "")


def check(document: Document, platform: Platform) -> Iterator[Draft]:
    """All drafts of the family."""
    said = {(one.file, one.place.line) for one in document.faults if one.rule == RULE}
    for file, text in document.texts:
        if "value:" not in text or not OF_A_POD.search(text):
            continue
        blocks = [(one.start, one.end) for one in fences(text) if one.language in LANGUAGES]
        if not blocks and TEMPLATE.search(text):
            blocks = [(0, len(text))]
        for start, end in blocks:
            inside = text[start:end]
            if WHOLE.search(inside) or not OF_A_POD.search(inside):
                continue
            for match in ENTRY.finditer(inside):
                if not _is_of_env(inside, match):
                    continue
                value = match["value"]
                kind = "bool" if value.isalpha() else "float" if "." in value else "int"
                known: dict[str, Any] = {"name": match["name"], "value": value, "kind": kind}
                place = word_at(text, start + match.start("value"), value)
                if (file, place.line) not in said:
                    yield from drafts(platform.release.name, RULE, place, file=file, **known)


def _is_of_env(text: str, match: re.Match[str]) -> bool:
    """True where the list that the entry stands in is called ``env``."""
    margin = len(match["margin"])
    for line in reversed(text[: match.start()].split("\n")):
        stripped = line.lstrip(" ")
        indent = len(line) - len(stripped)
        if not stripped or stripped.startswith(("#", "{%", "{{", "{#")):
            continue
        if indent < margin or (indent == margin and not stripped.startswith("- ")):
            return stripped.rstrip().partition("#")[0].rstrip().removeprefix("- ") == "env:"
    return False
