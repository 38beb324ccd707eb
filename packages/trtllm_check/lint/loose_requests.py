"""Requests to Triton of programs whose calls no reader knows: an address, and the body next to it.

``fetch(url, {body: JSON.stringify({...})})``, ``http.Post(url, type, ...)`` of Go, ``jq -n '{...}' | curl -d @- URL``.
"""

import re
from collections.abc import Iterator, Sequence
from typing import Any

import yaml

from trtllm_check.lint.shell.words import whole_text
from trtllm_check.lint.written_requests import WrittenRequest, is_request

ADDRESS = re.compile(
    r"(?:https?://[\w.${}-]+(?::[\w${}]+)?)?/v2/models/[\w${}-]+/(?:versions/\d+/)?(?:generate(?:_stream)?|infer)(?![\w/])"
)
BEHIND, BEFORE = 600, 500  # characters between an address and its body
OPENED = re.compile(r"\{(?=\s*[\"']?[a-z_]+[\"']?\s*:)")
MOST = 6  # braces that are tried, and addresses of one text
LONGEST_BODY, LONGEST = 20_000, 400_000


def loose_requests(sources: Sequence[tuple[str, str]]) -> Iterator[WrittenRequest]:
    """Each address with the object behind it, or with the one before it."""
    for file, text in sources:
        if len(text) > LONGEST:
            continue
        whole = None
        for match in [*ADDRESS.finditer(text)][:MOST]:
            found = _first(text, match.end(), match.end() + BEHIND) or _last(text, match.start())
            if found is None:
                continue
            whole = whole or whole_text(text)
            fields, start, end = found
            yield WrittenRequest(match[0], fields, whole.part(start, end), "POST", file, whole.part(*match.span()))


_Found = tuple[dict[str, Any], int, int]


def _first(text: str, start: int, end: int) -> _Found | None:
    for opened in [*OPENED.finditer(text, start, min(end, len(text)))][:MOST]:
        found = _body(text, opened.start())
        if found is not None:
            return found
    return None


def _last(text: str, end: int) -> _Found | None:
    for opened in [*OPENED.finditer(text, max(end - BEFORE, 0), end)][-MOST:]:
        found = _body(text, opened.start())
        if found is not None and found[2] <= end:
            return found
    return None


def _body(text: str, start: int) -> _Found | None:
    """The object that opens at ``start``, as JSON, JavaScript and Python write one."""
    end = _closed(text, start)
    written = text[start:end]
    try:
        fields = yaml.safe_load(written) if end else None
    except (yaml.YAMLError, RecursionError, ValueError):
        return None
    if not isinstance(fields, dict) or not all(isinstance(name, str) for name in fields) or not is_request(fields):
        return None
    return {name: _known(value, written) for name, value in fields.items()}, start, end


def _known(value: Any, written: str) -> Any:
    """A word without quotes is a name of the program's, whose value is unknown."""
    is_name = isinstance(value, str) and f'"{value}"' not in written and f"'{value}'" not in written
    return f"${{{value}}}" if is_name else value


def _closed(text: str, start: int) -> int:
    """Where the braces from ``start`` on are closed again, 0 for nowhere."""
    depth, quote = 0, ""
    for index in range(start, min(start + LONGEST_BODY, len(text))):
        letter = text[index]
        if quote:
            quote = "" if letter == quote and text[index - 1] != "\\" else quote
        elif letter in "\"'":
            quote = letter
        elif letter in "{}":
            depth += 1 if letter == "{" else -1
            if not depth:
                return index + 1
    return 0
