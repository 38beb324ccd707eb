"""Fields of requests to vLLM's server by release: those that it reads no more, or not yet."""

import re
from collections.abc import Iterator, Sequence
from typing import Any

from trtllm_check.lint.document import Document
from trtllm_check.lint.endpoints import ServerAddress
from trtllm_check.lint.finding import Draft, Platform, drafts
from trtllm_check.lint.rules.vllm_table import absence, instead_of
from trtllm_check.lint.shell.words import Word
from trtllm_check.lint.vllm_release import OTHERS, vllm_told
from trtllm_check.lint.written_requests import WrittenRequest
from trtllm_check.releases.vllm import VllmRelease, vllm_facts

RULE = "vllm-request-field"
SERVED = re.compile(r"(?:^|/)v1/(?P<path>[a-z/]+?)/?$")
EXTRA = re.compile(r"\bextra_body\s*=\s*\{")
CREATE = re.compile(r"\.(?P<path>chat\.completions|completions|embeddings|responses)\.(?:create|parse)\(")
TOKEN = re.compile(r"\"(?:[^\"\\\n]|\\.)*\"|'(?:[^'\\\n]|\\.)*'|[\[\]{}()]|:")
SHAPES = (("messages", "chat/completions"), ("prompt", "completions"))
MOST = 200  # keys of a body


def check(document: Document, platform: Platform) -> Iterator[Draft]:
    """All drafts of the family, where the text is of vLLM and of no other server."""
    texts = [text for _, text in document.texts]
    if not any("vllm" in text.lower() for text in texts) or any(OTHERS.search(text) for text in texts):
        return
    evidence = vllm_told(document)
    told = evidence.release if evidence else None
    release = platform.release.name
    for request in document.requests:
        path = _path(request)
        for name in request.fields or ():
            yield from _field(name, path, request.at(name), request.file, told, release)
    for file, text in document.texts:
        for path, word in _extra(text):
            yield from _field(word.text, path, word, file, told, release)


def _path(request: WrittenRequest) -> str:
    """The path below /v1; of a body alone, by what it holds."""
    if request.url:
        match = SERVED.search(ServerAddress.of(request.url).path)
        return match["path"] if match else ""
    fields = request.fields or {}
    return next((path for name, path in SHAPES if name in fields and "model" in fields), "")


def _extra(text: str) -> Iterator[tuple[str, Word]]:
    """The keys of ``extra_body={...}`` of OpenAI's client, with the path of the call that it stands in."""
    for match in EXTRA.finditer(text):
        calls: Sequence[re.Match[str]] = list(CREATE.finditer(text, 0, match.start()))
        if not calls:
            continue
        path = calls[-1]["path"].replace(".", "/")
        for start, end in _keys(text, match.end()):
            line = text.count("\n", 0, start) + 1
            yield path, Word(text[start:end], line, start - text.rfind("\n", 0, start))


def _keys(text: str, start: int) -> Iterator[tuple[int, int]]:
    """Where the keys of the dictionary stand that opens in front of ``start``, without their quotes."""
    depth, last, found = 1, None, 0
    for token in TOKEN.finditer(text, start):
        if token[0] in "([{":
            depth += 1
        elif token[0] in ")]}":
            depth -= 1
        elif token[0] == ":" and depth == 1 and last is not None:
            yield last.start() + 1, last.end() - 1
            found += 1
        last = token if token[0][0] in "\"'" and depth == 1 else None
        if depth == 0 or found > MOST:
            return


def _field(name: str, path: str, place: Word, file: str, told: VllmRelease | None, release: str) -> Iterator[Draft]:
    """A field that the release of the text, or today's, does not read."""
    changes = vllm_facts().table("requests", path).get(name)
    lacking = absence(changes, told) if changes else None
    if lacking is None or (told is None and not lacking.gone):
        return
    facts = vllm_facts()
    at = told or facts.newest
    refused = facts.table("requests", "unknown")["field"].at(at.place) == "refused"
    known: dict[str, Any] = {"name": name, "path": f"/v1/{path}", "has": lacking.has, "since": lacking.edge}
    known |= {"version": at.written, "instead": instead_of("requests", name) if lacking.gone else ""}
    if told is None:
        form = "gone, perhaps"
    elif refused:
        form = "refused"
        known["instead"] = known["instead"] or f"leave it out, or take vLLM {lacking.edge} or later"
    else:
        form = ("" if name in facts.instead["requests"] else "gone") if lacking.gone else "not yet"
    yield from drafts(release, RULE, place, form=form, file=file, **known)
