"""Values of the shell that are put into Python code without quotes: ``true`` and paths are no values of Python's."""

import re
from collections.abc import Iterator
from typing import Any

from trtllm_check.lint.document import Document
from trtllm_check.lint.finding import Draft, Platform, drafts
from trtllm_check.lint.shell.words import word_at

RULE = "python-stops"
LONGEST = 40_000
INLINE = re.compile(
    r"\bpython[\d.]*[ \t]+(?:-[a-bd-zA-Z]\w*[ \t]+)*-c[ \t]*\""
    r"(?P<code>(?:\\.|[^\"\\]){1,40000})\"",
    re.DOTALL,
)
HELD = re.compile(
    r"^(?=[^\n#]*(?:\bpython[\d.]*\b|>>?[ \t]*\S+\.py\b|\btee[ \t]+\S+\.py\b))[^\n#]*"
    r"(?<!<)<<-?[ \t]*(?P<mark>[A-Za-z_]\w*)\b[^\n]*\n",
    re.MULTILINE,
)
USED = re.compile(
    r"(?:(?<![=!<>])=|[(,:\[]|\breturn)[ \t]*(?P<use>\$(?:\{(?P<braced>\w+)\}|(?P<plain>\w+)))"
    r"(?=[ \t]*(?:[,)\]}\n#]|\Z))"
)
SET = (
    r"(?:^|[;&|)]|\b(?:then|do|else|export|local|readonly|declare))[ \t]*{name}="
    r"(?P<quote>[\"']?)(?:\$\{{\w+:?[-=](?P<default>[^}}\"'\s]*)\}}|(?P<value>[^\"'\s;&|#$]*))(?P=quote)(?=[\s;&|]|$)"
)
ANY = r"(?:^|[\s;&|]){name}\+?=|\bread\b[^\n]*\b{name}\b|\bfor[ \t]+{name}\b"
BOOLEANS = {"true": "True", "false": "False", "null": "None", "none": "None", "yes": "True", "no": "False"}
PATH = re.compile(r"(?:~|\.{0,2}/|[A-Za-z][\w.-]*/)[\w./-]*[A-Za-z][\w./-]*")


def check(document: Document, platform: Platform) -> Iterator[Draft]:
    """All drafts of the family, but where the reader of Python saw it."""
    seen = {(one.file, one.place.line) for one in document.faults if one.rule == RULE}
    for file, text in document.texts:
        if "python" in text or ".py" in text:
            for start, code in _codes(text) if "$" in text else ():
                yield from _code(text, start, code, file, platform.release.name, seen)


def _codes(text: str) -> Iterator[tuple[int, str]]:
    """Python code that the shell puts variables into, and where it begins."""
    for match in INLINE.finditer(text):
        yield match.start("code"), match["code"]
    for match in HELD.finditer(text):
        end = re.compile(rf"^[ \t]*{match['mark']}[ \t\r]*$", re.MULTILINE)
        found = end.search(text, match.end(), match.end() + LONGEST)
        if found is not None:
            yield match.end(), text[match.end() : found.start()]


def _code(text: str, start: int, code: str, file: str, release: str, seen: set[tuple[str, int]]) -> Iterator[Draft]:
    said: set[str] = set()
    for match in USED.finditer(code):
        name = match["braced"] or match["plain"]
        at = match.start("use")
        before = code[code.rfind("\n", 0, at) + 1 : at].replace("\\", "")
        is_quoted = before.count("'") % 2 or before.count('"') % 2 or code.count('"""', 0, at) % 2
        if name in said or is_quoted or "#" in before:
            continue
        value = _value(text, name)
        if value in BOOLEANS or PATH.fullmatch(value):
            said.add(name)
            place = word_at(text, start + at, match["use"])
            form = "pasted" if value in BOOLEANS else "pasted path"
            known: dict[str, Any] = {"use": match["use"], "name": name, "value": value}
            known["right"] = BOOLEANS.get(value, f"'{match['use']}'")
            if (file, place.line) not in seen:
                yield from drafts(release, RULE, place, form=form, file=file, **known)


def _value(text: str, name: str) -> str:
    """The value that a variable is set to, if all that set it are of one kind; "" where that is not known."""
    found = list(re.finditer(SET.format(name=re.escape(name)), text, re.MULTILINE))
    values = [match["default"] if match["value"] is None else match["value"] for match in found]
    is_all = len(found) == len(re.findall(ANY.format(name=re.escape(name)), text, re.MULTILINE))
    is_one = all(one in BOOLEANS for one in values) or all(map(PATH.fullmatch, values))
    return values[0] if values and is_all and is_one else ""
