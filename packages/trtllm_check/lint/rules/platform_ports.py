"""Ports that a platform asks, and the server that a text starts there: Modal, SageMaker, and the models of NIM."""

import re
from collections.abc import Iterator
from typing import Any

from trtllm_check.lint.document import Document
from trtllm_check.lint.endpoints import ServerAddress
from trtllm_check.lint.finding import Draft, Platform, drafts
from trtllm_check.lint.rules.box import Box, boxes
from trtllm_check.lint.rules.names import is_open
from trtllm_check.lint.rules.openai_page import Server, page_servers
from trtllm_check.lint.shell.words import Word, word_at

MODAL = re.compile(
    r"^[ \t]*@modal\.web_server\([ \t\n]*(?:port[ ]*=[ ]*)?(?P<port>\d{2,5}|[A-Z][A-Z0-9_]*)", re.MULTILINE
)
LOOPBACK = ("127.0.0.1", "localhost", "::1")
ASKED = 8080  # by SageMaker, at /ping and /invocations
OWN_REGISTRY = re.compile(r"\.dkr\.ecr\.")
OF_AWS = re.compile(r"\b(?:763104351884|djl-inference|huggingface-\w+)\b")
BEHIND = re.compile(r"nginx|proxy|SAGEMAKER_BIND_TO_PORT|flask|uvicorn|serve\.py|\bsocat\b", re.IGNORECASE)
NIM = re.compile(r"nvcr\.io/nim/(?P<model>[\w-]+/[\w.-]+)(?::|@|$)")
RENAMED = ("NIM_SERVED_MODEL_NAME", "NIM_MODEL_NAME", "NIM_FT_MODEL", "NIM_PEFT_SOURCE")


def check(document: Document, platform: Platform) -> Iterator[Draft]:
    """All drafts of the family."""
    release = platform.release.name
    for file, text in document.texts:
        if "@modal.web_server" in text:
            yield from _modal(document, file, text, release)
    yield from _sagemaker(document, release)
    yield from _nim(document, release)


def _modal(document: Document, file: str, text: str, release: str) -> Iterator[Draft]:
    """``@modal.web_server(8000)`` above a server of another port, or of the loopback."""
    found = list(MODAL.finditer(text))
    servers = [one for one in page_servers(document) if one.start.file == file]
    if len(found) != 1 or len(servers) != 1:
        return
    told = found[0]["port"]
    if not told.isdecimal():
        match = re.search(rf"^{told}[ ]*=[ ]*(?P<port>\d{{2,5}})\b", text, re.MULTILINE)
        told = match["port"] if match else ""
    (server,) = servers
    has_port = "port" not in server.start.options or server.start.number("port") is not None
    if told and has_port and int(told) != server.port:
        place = word_at(text, found[0].start("port"), found[0]["port"])
        known: dict[str, Any] = {"port": server.port, "published": told}
        yield from drafts(release, "server-port-not-published", place, form="Modal", file=file, **known)
    host = server.start.options.get("host")
    if host is not None and host.text in LOOPBACK:
        about: dict[str, Any] = {"host": host.text, "tool": server.start.tool}
        yield from drafts(release, "server-on-loopback", host, file=file, **about)


def _sagemaker(document: Document, release: str) -> Iterator[Draft]:
    """An image of one's own whose server does not listen where SageMaker asks."""
    texts = [text for _, text in document.texts]
    is_own = any(one.name in ("create_model", "Model") for one in document.aws_calls) and any(
        map(OWN_REGISTRY.search, texts)
    )
    if not is_own or any(OF_AWS.search(text) or BEHIND.search(text) for text in texts):
        return
    built = [one for one in page_servers(document) if _is_built(one)]
    if len(built) == 1 and built[0].start.number("port") != ASKED and len(page_servers(document)) == 1:
        server = built[0]
        if "port" in server.start.options and server.start.number("port") is None:
            return
        place = server.start.options.get("port") or server.start.at
        known: dict[str, Any] = {"port": server.port, "published": ASKED}
        yield from drafts(
            release, "server-port-not-published", place, form="SageMaker", file=server.start.file, **known
        )


def _is_built(one: Server) -> bool:
    """True for a server that a Dockerfile starts."""
    start = one.start.invocation
    return start is not None and bool(start.command.image) and one.docker is None and not one.is_in_cluster


def _nim(document: Document, release: str) -> Iterator[Draft]:
    """Another name than the one under which a NIM serves its model."""
    found: list[tuple[Box, str]] = [
        (box, match["model"]) for box in boxes(document) if (match := NIM.search(box.image))
    ]
    names = {name for _, name in found}
    if len(names) != 1 or any(name in box.settings for box, _ in found for name in RENAMED) or page_servers(document):
        return
    (name,) = names
    ports = {host for box, _ in found for host, _ in box.ports} | {8000}
    for asked, word, file in _asked(document, ports):
        is_other = asked.lower() != name and "/" in asked and not is_open(asked)
        if is_other and asked.rpartition("/")[2].lower().replace("meta-", "") == name.rpartition("/")[2]:
            known: dict[str, Any] = {"asked": asked, "name": name}
            yield from drafts(release, "openai-model", word, form="NIM", file=file, **known)


def _asked(document: Document, ports: set[int]) -> Iterator[tuple[str, Word, str]]:
    """The models that requests and clients of the host ask for."""
    for request in document.requests:
        target = ServerAddress.of(request.url)
        model = (request.fields or {}).get("model")
        if target.is_local and target.port in ports and isinstance(model, str):
            yield model, request.at("model"), request.file
    for call in document.calls:
        given = dict(call.values) if call.api == "openai" else {}
        base = given.get("base_url")
        if base is not None and "model" in given and ServerAddress.of(base.text).port in ports:
            yield given["model"].text, given["model"], call.file
