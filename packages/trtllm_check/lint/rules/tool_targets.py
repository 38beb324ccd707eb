"""Programs that load or test a server of the same text: the port that they ask, and the name of its model."""

import re
from collections.abc import Iterator
from typing import Any, NamedTuple

from trtllm_check.lint.document import Document
from trtllm_check.lint.endpoints import ServerAddress
from trtllm_check.lint.finding import Draft, Platform, drafts
from trtllm_check.lint.invocations import Invocation
from trtllm_check.lint.rules.names import is_open
from trtllm_check.lint.rules.openai_page import PORT, Page, is_of_another, page_of
from trtllm_check.lint.rules.served import VLLM
from trtllm_check.lint.shell.words import Word, lines_of

BENCH = ("vllm", "benchmark_serving.py")
OTHERS = {"genai-perf": ("--url", "-u"), "aiperf": ("--url", "-u"), "guidellm": ("--target",)}
KIND, OPENAI = "--endpoint-type", ("chat", "completions", "embeddings")
ARGUMENT = re.compile(r"(?P<name>model|base_url)=(?P<value>[^,\s]+)")
INSIDE = re.compile(
    r"\b(?:enter|inside|within|into|attach to)\b[^\n.]{0,20}\b\w*(?:ntainer|pod)\b"
    r"|\bexec\b[^\n]* -(?:it|ti)\b|进入[^\n]{0,8}容器",
    re.IGNORECASE,
)
ABOVE = 12  # lines
LOCAL = ("localhost", "127.0.0.1", "0.0.0.0")


class _Target(NamedTuple):
    """What one command asks: the port, at its word, and the model."""

    one: Invocation
    port: int | None
    place: Word
    model: Word | None


def check(document: Document, platform: Platform) -> Iterator[Draft]:
    """All drafts of the family."""
    page, release = page_of(document), platform.release.name
    if not page.servers:
        return
    if page.has_proxy or page.has_open_port or page.has_other_servers or not page.ports:
        return
    for target in (*_benches(document), *_tools(document), *_evaluations(document)):
        if target.one.image or _is_inside(document, target):
            continue
        if target.port in page.ports:
            yield from _model(page, target, release)
        elif target.port is not None and not is_of_another(page, target.port):
            command = target.one.command
            if not page.mentions_port(target.port, (command.file, command.line, command.end_line)):
                known: dict[str, Any] = {"port": target.port, "right": ", ".join(map(str, sorted(page.ports)))}
                yield from drafts(release, "wrong-port", target.place, form="OpenAI", invocation=target.one, **known)


def _is_inside(document: Document, target: _Target) -> bool:
    """True where the page says above the command to go into the container: the port of the host is none there."""
    command = target.one.command
    lines = lines_of(dict(document.texts).get(command.file, ""))
    return any(map(INSIDE.search, lines[max(command.line - 1 - ABOVE, 0) : command.line - 1]))


def _number(text: str | None) -> int | None:
    return int(text) if text and text.isascii() and text.isdecimal() and len(text) < 6 else None


def _benches(document: Document) -> Iterator[_Target]:
    """``vllm bench serve --port 8001``."""
    for one in document.of(*BENCH):
        if one.tool == "vllm" and [word.text for word in one.positional[:2]] != ["bench", "serve"]:
            continue
        base, host = one.value("--base-url"), one.value("--host") or "localhost"
        given = next(iter((*one.values("--base-url"), *one.values("--port"))), one.path)
        named = next(iter((*one.values("--served-model-name"), *one.values("--model"))), None)
        if base is not None:
            address = ServerAddress.of(base)
            if address.is_local:
                yield _Target(one, address.port, given, named)
        elif host in LOCAL and (not one.has("--port") or _number(one.value("--port"))):
            yield _Target(one, _number(one.value("--port")) or PORT, given, named)


def _tools(document: Document) -> Iterator[_Target]:
    """``genai-perf profile --endpoint-type chat --url localhost:8001``."""
    for tool, options in OTHERS.items():
        for one in document.of(tool):
            urls, kind = one.values(*options), one.value(KIND)
            is_openai = tool == "guidellm" or kind in OPENAI
            address = ServerAddress.of(urls[0].text) if urls else None
            if is_openai and address is not None and address.is_local:
                yield _Target(one, address.port, urls[0], next(iter(one.values("-m", "--model")), None))


def _evaluations(document: Document) -> Iterator[_Target]:
    """``lm_eval --model_args model=x,base_url=http://localhost:8001/v1/completions``."""
    for one in document.of("lm_eval", "lm-eval"):
        for word in one.values("--model_args"):
            given = {match["name"]: word.part(*match.span("value")) for match in ARGUMENT.finditer(word.text)}
            address = ServerAddress.of(given["base_url"].text) if "base_url" in given else None
            if address is not None and address.is_local:
                yield _Target(one, address.port, given["base_url"], given.get("model"))


def _model(page: Page, target: _Target, release: str) -> Iterator[Draft]:
    """A name that the server does not know."""
    own = [one for one in page.servers if target.port in one.ports and one.start.engine == VLLM]
    model = target.model
    if len(own) != 1 or not own[0].names or model is None or is_open(model.text) or not model.text:
        return
    if "served_model_name" in own[0].start.options and target.one.tool in (*BENCH, "genai-perf", "aiperf"):
        return  # bench_names.py says it
    if model.text not in own[0].names and not page.starts(model.text):
        known: dict[str, Any] = {"asked": model.text, "names": ", ".join(own[0].names)}
        yield from drafts(release, "openai-model", model, invocation=target.one, **known)
