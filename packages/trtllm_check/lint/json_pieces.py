"""JSON as pages show it: several objects one after the other, comments between the lines, a comma before the end."""

import json
import re
from collections.abc import Collection, Iterator
from typing import Any, NamedTuple

OPENS = re.compile(r"^[ \t]*(?=\{)", re.MULTILINE)
TOKEN = re.compile(r"\"(?:[^\"\\\n]|\\.)*\"|//[^\n]*|#[^\n]*|/\*.*?\*/|[{}\[\]]", re.DOTALL)
LAST_COMMA = re.compile(r"\"(?:[^\"\\\n]|\\.)*\"|,(?=\s*[}\]])")
LONGEST = 100_000
MOST = 200
# What only bodies of requests have among the names of a page's objects.
ASKS = frozenset({"inputs", "text_input", "messages", "prompt", "input_ids"})


class JsonObject(NamedTuple):
    """An object of the text from ``start`` on; ``text`` is as long as what stands there, and is JSON."""

    start: int
    text: str
    fields: dict[str, Any]


def pieces(text: str) -> Iterator[JsonObject]:
    """The outermost objects that begin a line, those that are JSON but for comments and last commas."""
    if len(text) > LONGEST:
        return
    end = number = 0
    for match in OPENS.finditer(text):
        if match.end() < end or number >= MOST:
            continue
        number += 1
        closing = _closing(text, match.end())
        if closing is None:
            continue
        clean = _clean(text[match.end() : closing])
        try:
            fields = json.loads(clean)
        except (ValueError, RecursionError):
            continue
        if isinstance(fields, dict):
            end = closing
            yield JsonObject(match.end(), clean, fields)


def told_pieces(
    text: str, taken: Collection[int], names: Collection[str], prefixes: tuple[str, ...]
) -> list[JsonObject]:
    """Those outside of the lines ``taken`` that are a request, or hold a variable of these names."""
    if "{" not in text or '"' not in text:
        return []
    return [
        one
        for one in pieces(text)
        if text.count("\n", 0, one.start) + 1 not in taken
        and (ASKS & one.fields.keys() or any(key in names or key.startswith(prefixes) for key in one.fields))
    ]


def _closing(text: str, start: int) -> int | None:
    """Where the object at ``start`` ends."""
    depth = 0
    for match in TOKEN.finditer(text, start, min(len(text), start + LONGEST)):
        depth += {"{": 1, "[": 1, "}": -1, "]": -1}.get(match[0], 0)
        if not depth and match[0] in "}]":
            return match.end()
    return None


def _clean(text: str) -> str:
    text = TOKEN.sub(lambda match: _blank(match[0]) if match[0][:1] in "/#" else match[0], text)
    return LAST_COMMA.sub(lambda match: " " if match[0] == "," else match[0], text)


def _blank(text: str) -> str:
    return re.sub(r"[^\n]", " ", text)
