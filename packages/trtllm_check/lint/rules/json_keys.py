"""A name that a JSON object has twice with two values, of which readers keep the last."""

import json
import re
from collections.abc import Iterator
from typing import Any

from trtllm_check.lint.document import Document
from trtllm_check.lint.finding import Draft, Platform, drafts
from trtllm_check.lint.shell.pasted import fences
from trtllm_check.lint.shell.words import word_at

RULE = "dict-key-twice"
LONGEST, LONGEST_VALUE = 100_000, 40
LANGUAGES = ("json", "jsonc", "")


def check(document: Document, platform: Platform) -> Iterator[Draft]:
    """All drafts of the family."""
    for file, text in document.texts:
        blocks = [(one.start, one.end) for one in fences(text) if one.language in LANGUAGES]
        for start, end in blocks or [(0, len(text))]:
            inside = text[start:end]
            if inside.lstrip().startswith("{") and len(inside) <= LONGEST:
                for key, before, value in _twice(inside):
                    yield from _said(text, file, (start, end), key, before, value, platform.release.name)


def _twice(text: str) -> Iterator[tuple[str, Any, Any]]:
    """Names with their first and their last value, where these differ."""
    found: list[tuple[str, Any, Any]] = []

    def pairs(items: list[tuple[str, Any]]) -> dict[str, Any]:
        kept: dict[str, Any] = {}
        for key, value in items:
            if key in kept and kept[key] != value:
                found.append((key, kept[key], value))
            kept[key] = value
        return kept

    try:
        json.loads(text, object_pairs_hook=pairs)
    except (ValueError, RecursionError):
        return
    yield from found


def _said(
    text: str, file: str, span: tuple[int, int], key: str, before: Any, value: Any, release: str
) -> Iterator[Draft]:
    written = re.compile(rf"\"{re.escape(key)}\"(?=\s*:)")
    places = [match.start() for match in written.finditer(text, *span)]
    if len(places) == 2:
        first = text.count("\n", 0, places[0]) + 1
        about: dict[str, Any] = {"key": key, "first": first, "before": _shown(before), "value": _shown(value)}
        yield from drafts(release, RULE, word_at(text, places[1], f'"{key}"'), form="JSON", file=file, **about)


def _shown(value: Any) -> str:
    written = json.dumps(value)
    return written if len(written) <= LONGEST_VALUE else f"{written[: LONGEST_VALUE - 3]}..."
