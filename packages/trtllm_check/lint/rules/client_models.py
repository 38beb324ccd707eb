"""Clients in Python beside the server that the same text starts: the name of its model, its template, its port."""

from collections.abc import Iterator

from trtllm_check.lint.carriers.python_asks import ADDRESS, ASKS, MODEL
from trtllm_check.lint.carriers.python_calls import Call
from trtllm_check.lint.document import Document
from trtllm_check.lint.endpoints import ServerAddress
from trtllm_check.lint.finding import Draft, Platform
from trtllm_check.lint.rules.names import is_open
from trtllm_check.lint.rules.openai_clients import (
    BASES,
    no_template,
    wrong_model,
    wrong_port,
)
from trtllm_check.lint.rules.openai_page import page_of
from trtllm_check.lint.written_requests import WrittenRequest

CHAINS = {"ChatOpenAI": "/chat/completions", "VLLMOpenAI": "/completions"}
MODELS = (MODEL, "model_name")


def check(document: Document, platform: Platform) -> Iterator[Draft]:
    """All drafts of the family."""
    release = platform.release.name
    asked = [one for call in document.calls if call.api == "openai" for one in openai_requests(call)]
    if not asked:
        return
    page = page_of(document)
    if not page.servers or page.is_of_another or page.has_proxy:
        return
    ports = page.ports or {one.port for one in page.servers}
    seen: set[int] = set()
    for request in asked:
        target = ServerAddress.of(request.url)
        if not target.is_local or target.port is None:
            continue
        if target.port in ports:
            path = target.path.rstrip("/")
            yield from wrong_model(page, request, path, release)
            yield from no_template(page, request, path, release)
        elif target.port not in seen:
            seen.add(target.port)
            yield from wrong_port(page, request, target, release)


def openai_requests(call: Call) -> Iterator[WrittenRequest]:
    """What one call asks, as a request."""
    given = dict(call.values)
    path = call.name if call.name in ASKS.values() else CHAINS.get(call.name, "")
    base = next((given[name] for name in (ADDRESS, *BASES) if name in given), None)
    model = next((given[name] for name in MODELS if name in given), None)
    if path and base is not None and model is not None and not is_open(base.text) and not is_open(model.text):
        url = base.text.rstrip("/") + path
        yield WrittenRequest(url, {MODEL: model.text}, model, file=call.file, address=base)
