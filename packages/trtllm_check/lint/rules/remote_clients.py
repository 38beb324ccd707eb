"""Clients of a vLLM that the text does not start: told by the name of its host, or by what its /v1/models lists."""

import re
from collections.abc import Iterator
from typing import Any

from trtllm_check.lint.document import Document
from trtllm_check.lint.endpoints import ServerAddress
from trtllm_check.lint.finding import Draft, Platform, drafts, rule_data
from trtllm_check.lint.rules.client_models import openai_requests
from trtllm_check.lint.rules.names import is_open
from trtllm_check.lint.rules.openai_clients import OF_OPENAI, SPEAKS_OPENAI
from trtllm_check.lint.rules.openai_page import OTHER_SERVERS, page_servers
from trtllm_check.lint.rules.openai_paths import NEAR_PATHS
from trtllm_check.lint.rules.told_addresses import ELSEWHERE, FAMILY, LONGEST, PREFIXED, asked_model, told_addresses
from trtllm_check.lint.shell.words import Word, lines_of, word_at

# NAME: http://..., NAME=http://..., "name": "http://...", and name: NAME with value: http://... below it.
BASE = re.compile(
    r"(?<![\w$-])(?P<name>[A-Za-z][\w-]*)[\"']?(?:[ \t]*[:=]|[ \t]*\r?\n[ \t]*value[ \t]*:)[ \t]*[\"']?"
    r"(?P<url>http://(?P<host>[\w.-]+)(?P<port>:\d{2,5})?/?)(?=[\"'\s,)}]|$)",
    re.MULTILINE,
)
OF_VLLM = re.compile(r"(?:^|[.-])vllm(?:$|[.-])", re.IGNORECASE)
IN_FRONT = re.compile(r"proxy|gateway|nginx|ingress|litellm|envoy", re.IGNORECASE)
HOSTED = "hosted_vllm/"
OF_LITELLM = re.compile(r"[\"']?(?:hosted_vllm|openai|text-completion-openai)/[\w./:-]+")
AROUND = 300  # characters of one entry
PRINTS = re.compile(r"[ \t]*(?:echo|printf|print\()[^\n]*\bcurl\b")
COMMENT = re.compile(r"[ \t]*(?:#|//)")
# An entry of /v1/models, as JSON and as the client in Python prints it.
LISTED = re.compile(
    r"\{\s*[\"']id[\"']\s*:\s*[\"'](?P<json>[^\"'\s]+)[\"'][^{}]{0,200}[\"']owned_by[\"']\s*:\s*[\"']vllm[\"']"
    r"|\bModel\(id=[\"'](?P<python>[^\"'\s]+)[\"'][^()]{0,200}owned_by=[\"']vllm[\"']"
)


def check(document: Document, platform: Platform) -> Iterator[Draft]:
    """All drafts of the family."""
    release = platform.release.name
    has_servers = bool(page_servers(document))
    for file, text in document.texts:
        if "http://" in text and len(text) <= LONGEST:
            yield from _bases(document, file, text, release, has_servers=has_servers)
    if not has_servers:
        yield from _listed(document, release)
        yield from _printed(document, release)


def _bases(document: Document, file: str, text: str, release: str, *, has_servers: bool) -> Iterator[Draft]:
    """``api_base: http://vllm-service:8000``, to which a client adds /chat/completions."""
    compose = [one for one in document.workloads if one.file == file and one.kind == "compose"]
    names = rule_data(FAMILY)["openai_bases"].split()
    for match in BASE.finditer(text):
        name = re.sub(r"[^a-z]", "", match["name"].lower())
        if name not in names or IN_FRONT.search(match["host"]):
            continue
        line = text.count("\n", 0, match.start("url")) + 1
        begin = text.rfind("\n", 0, match.start("url")) + 1
        if COMMENT.match(text, begin) or any(one.first <= line <= one.last for one in compose):
            continue
        target = ServerAddress.of(match["url"])
        entry = _entry(text, match.start())
        by_prefix = OF_LITELLM.search(entry) is not None
        is_vllm = OF_VLLM.search(match["host"]) is not None or (HOSTED in entry and match["port"] is not None)
        if not is_vllm or not (by_prefix or name.startswith("openai")) or (target.is_local and has_servers):
            continue
        url = match["url"].rstrip("/")
        place = word_at(text, match.start("url"), match["url"])
        yield from drafts(release, "openai-path", place, form="host", file=file, path=url, instead=f"{url}/v1")


def _entry(text: str, start: int) -> str:
    """The settings beside an address: the lines of the same depth, or deeper, around its own."""
    begin = max(start - AROUND, 0)
    before, after = text[begin:start].split("\n"), text[start : start + AROUND].split("\n")
    own = before.pop() + after.pop(0)
    depth = _depth(own)
    found = [own]
    for lines, is_first in ((reversed(before), "- " not in own[:depth]), (after, False)):
        for line in lines:
            if not line.strip() or _depth(line) < depth or (line.lstrip().startswith("- ") and not is_first):
                break
            found.append(line)
            if line.lstrip().startswith("- "):
                break
    return "\n".join(found)


def _depth(line: str) -> int:
    """Where the text of a line begins, behind the dash of a list."""
    return len(line) - len(line.lstrip(" \t-"))


def _listed(document: Document, release: str) -> Iterator[Draft]:
    """The name of a model that is not in the answer of /v1/models on the same page."""
    found = [match for _, text in document.texts if "vllm" in text for match in LISTED.finditer(text)]
    names = list(dict.fromkeys(match["json"] or match["python"] for match in found))
    others = any(OTHER_SERVERS.search(text) or ELSEWHERE.search(text) for _, text in document.texts)
    if not names or others:
        return
    said: set[tuple[str, int]] = set()
    for asked, instead, place, file in _asked(document, names[0]):
        if asked not in names and not is_open(asked) and (file, place.line) not in said:
            said.add((file, place.line))
            known: dict[str, Any] = {"asked": asked, "names": ", ".join(names), "instead": instead}
            yield from drafts(release, "openai-model", place, form="listed", file=file, **known)


def _printed(document: Document, release: str) -> Iterator[Draft]:
    """``echo 'curl http://localhost:30080/completions ...'`` of a script that has a chart start vLLM."""
    others = any(OTHER_SERVERS.search(text) for _, text in document.texts)
    if others or not any(SPEAKS_OPENAI.search(text) for _, text in document.texts):
        return
    read = {(one.file, (one.address or one.place).line) for one in document.requests}
    texts = {file: lines_of(text) for file, text in document.texts}
    for one in told_addresses(document):
        line = texts[one.file][one.word.line - 1]
        is_near = one.path in NEAR_PATHS and OF_OPENAI.search(one.path) is not None
        if is_near and (one.file, one.word.line) not in read and PRINTS.match(line):
            known: dict[str, Any] = {"path": one.path, "instead": NEAR_PATHS[one.path]}
            yield from drafts(release, "openai-path", one.word, form="perhaps", file=one.file, **known)


def _asked(document: Document, name: str) -> Iterator[tuple[str, str, Word, str]]:
    """What clients ask for: the model as it is sent, what to write for ``name``, the place and its file."""
    for file, text in document.texts:
        for match in PREFIXED.finditer(text):
            asked = asked_model(match["value"])
            prefix = match["value"].removesuffix(asked)
            yield asked, f"{prefix}{name}", word_at(text, match.start("value"), match["value"]), file
    calls = [one for call in document.calls if call.api == "openai" for one in openai_requests(call)]
    for request in (*document.requests, *calls):
        given = (request.fields or {}).get("model")
        if isinstance(given, str) and given and "/v1/" in request.url and asked_model(given) == given:
            yield given, name, request.at("model"), request.file
