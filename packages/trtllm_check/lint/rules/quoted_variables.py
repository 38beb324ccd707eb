"""Variables that no shell fills in: in an address in single quotes, and in a body behind a quoted mark."""

import re
from collections.abc import Iterator
from typing import Any

from trtllm_check.lint.document import Document
from trtllm_check.lint.finding import Draft, Platform, drafts
from trtllm_check.lint.invocations import Invocation
from trtllm_check.lint.shell.words import Word, lines_of, word_at

ADDRESS = re.compile(r"'(?P<address>(?:https?://|localhost[:/])[^'\s]*?(?P<name>\$\{?[A-Za-z_]\w*\}?)[^'\s]*)'")
BODY = re.compile(
    r"<<-?[ \t]*(?P<quote>['\"])(?P<mark>[A-Za-z_]\w*)(?P=quote)[^\n]*\n(?P<body>[ \t]*\{.*?)\n[ \t]*(?P=mark)\b", re.S
)
VALUE = re.compile(r"\"(?P<name>\$\{?(?P<plain>[A-Za-z_]\w*)\}?)\"")
SLIP = re.compile(r"^[^#'\"\n]*\S[ \t]+(?P<slip>&<)[ \t]*(?P<file>[\w./$~-]+)", re.MULTILINE)
FILLS = re.compile(r"envsubst|\bsed\b|\beval\b|\bjq\b|printf|\bgomplate\b")
LONGEST = 100_000


def check(document: Document, platform: Platform) -> Iterator[Draft]:
    """All drafts of the family."""
    release = platform.release.name
    texts = dict(document.texts)
    for curl in document.of("curl"):
        yield from _address(curl, lines_of(texts.get(curl.command.file, "")), release)
    commanded: dict[str, set[int]] = {}
    for one in document.commands:
        commanded.setdefault(one.file, set()).add(one.line)
    for file, text in document.texts:
        if len(text) > LONGEST or file not in commanded:
            continue
        if "<<" in text:
            yield from _body(text, file, release)
        for match in SLIP.finditer(text) if "&<" in text else ():
            if text.count("\n", 0, match.start("slip")) + 1 in commanded[file]:
                place = word_at(text, match.start("slip"), match["slip"])
                yield from drafts(release, "shell-quotes", place, form="operator", file=file, name=match["file"])


def _address(curl: Invocation, lines: tuple[str, ...], release: str) -> Iterator[Draft]:
    """``curl 'http://localhost:$PORT/v1/models'``."""
    for number in range(curl.command.line, min(curl.command.end_line, len(lines)) + 1):
        line = lines[number - 1]
        for match in ADDRESS.finditer(line):
            if line.count('"', 0, match.start()) % 2 == 0 and line.count("'", 0, match.start()) % 2 == 0:
                place = Word(match["name"], number, match.start("name") + 1)
                yield from drafts(
                    release, "request-body", place, form="single quotes", invocation=curl, name=match["name"]
                )
                return


def _body(text: str, file: str, release: str) -> Iterator[Draft]:
    """``cat <<'EOF'`` with ``"model": "$MODEL"`` in it, where the script sets MODEL."""
    for match in BODY.finditer(text):
        value = VALUE.search(match["body"])
        line = text[text.rfind("\n", 0, match.start()) + 1 : match.end()].partition("\n")[0]
        if value is None or FILLS.search(text):
            continue
        is_sent = "curl" in line or re.search(r"=\$\(\s*cat|\bcat\b[^\n]*>[^\n]*\.json|\bread\b", line)
        is_set = re.search(rf"^[ \t]*(?:export[ ]+|local[ ]+)?{value['plain']}=", text[: match.start()], re.MULTILINE)
        if is_sent and is_set:
            known: dict[str, Any] = {"name": value["name"], "mark": match["mark"]}
            place = word_at(text, match.start("body") + value.start("name"), value["name"])
            yield from drafts(release, "request-body", place, form="quoted mark", file=file, **known)
