"""Bodies of requests that no server reads: no content type, no JSON, a quote too few, a client's wrong argument."""

import json
import re
from collections.abc import Iterator, Sequence
from functools import cached_property

from trtllm_check.lint.document import Document
from trtllm_check.lint.finding import Draft, Platform, drafts
from trtllm_check.lint.invocations import Invocation
from trtllm_check.lint.rules.names import is_open
from trtllm_check.lint.rules.vllm_forms import OPEN_IN_JSON, repaired
from trtllm_check.lint.shell.words import Word
from trtllm_check.lint.written_requests import BODY_FLAGS

OPENAI = re.compile(r"/v1/(?:chat/completions|completions|embeddings|responses)/?$")
SERVED = re.compile(r"/v1/|/v2/models/|/generate|/invocations")
OTHERS = re.compile(
    r"openai_frontend|litellm|ollama|llama-server|sglang|text-generation-inference|gateway", re.IGNORECASE
)
FORM_FLAGS = ("-d", "--data", "--data-raw", "--data-binary", "--data-ascii")
APOSTROPHE = re.compile(
    r"(?:-d|--data(?:-raw|-binary)?)[ =]+'"
    r"(?P<body>\{[^'`$]{0,1500}[a-z]'(?:s|t|re|m|ll|d|ve) [^'`$]{0,1500}\}\s*)'(?=\s|$)"
)
OPENS_BODY = (" '{", "='{")
CREATE = re.compile(r"(?P<chat>\.chat)?\.completions\.create\(")
POST = re.compile(r"\brequests\.post\(")
ARGUMENT = r"(?:^|[(,\s]){name}\s*="
QUOTED_VARIABLE = re.compile(r"[\"'](?P<name>\$\{?[A-Za-z_]\w*\}?)[\"']")
UNESCAPED = re.compile(r"[\s=]?\"\{\s*\"\w+\"\s*:")
SWITCHED = re.compile(r"'\"?$")
SHOWN = 60


def check(document: Document, platform: Platform) -> Iterator[Draft]:
    """All drafts of the family."""
    release = platform.release.name
    starts = any(not one.positional or one.positional[0].text == "serve" for one in document.of("vllm", "trtllm-serve"))
    is_server = starts and not any(OTHERS.search(text) for _, text in document.texts)
    texts = {file: text.split("\n") for file, text in document.texts}
    for curl in document.of("curl"):
        yield from _curl(curl, texts.get(curl.command.file, []), release, is_server=is_server)
    for file, text in document.texts:
        source = _Source(text)
        yield from _apostrophes(source, file, release)
        if "import" in text:
            yield from _clients(source, file, release)


class _Source:
    """A text with the place of each of its characters."""

    def __init__(self, text: str) -> None:
        self.text = text

    @cached_property
    def starts(self) -> list[int]:
        return [0, *(match.end() for match in re.finditer(r"\n", self.text))]

    def word(self, start: int, end: int) -> Word:
        line = self.text.count("\n", 0, start) + 1
        return Word(self.text[start:end], line, start - self.starts[line - 1] + 1)

    def call(self, start: int) -> str:
        """What stands in the brackets that open in front of ``start``; "" where they do not close."""
        depth = 1
        for match in re.finditer(r"\"\"\".*?\"\"\"|\"[^\"\n]*\"|'[^'\n]*'|[(\[{]|[)\]}]", self.text[start:], re.DOTALL):
            depth += (match[0] in "([{") - (match[0] in ")]}") if len(match[0]) == 1 else 0
            if not depth:
                return self.text[start : start + match.start()]
        return ""


def _single_quotes(curl: Invocation, body: Word, lines: Sequence[str], release: str) -> Iterator[Draft]:
    """``-d '{"model": "$MODEL"}'``: what the shell does not fill in."""
    line = lines[body.line - 1] if body.line <= len(lines) else ""
    if line[body.column - 1 : body.column] != "'" and line[body.column - 2 : body.column - 1] != "'":
        return
    for match in QUOTED_VARIABLE.finditer(body.text):
        place = body.part(match.start("name"), match.end("name"))
        line = lines[place.line - 1] if place.line <= len(lines) else ""
        if SWITCHED.search(line[: place.column - 1]) or line.startswith("$(", place.column - 1):
            continue  # the single quotes end in front of it, or make fills it in
        name = match["name"].replace("{", "").replace("}", "")
        yield from drafts(release, "request-body", place, form="single quotes", invocation=curl, name=name)
        return


def _double_quotes(curl: Invocation, body: Word, lines: Sequence[str], release: str) -> Iterator[Draft]:
    """``-d "{"prompt": "x"}"``: the shell takes the quotes away, and parts the body at its spaces."""
    line = lines[body.line - 1] if body.line <= len(lines) else ""
    if UNESCAPED.match(line[max(body.column - 2, 0) :]):
        yield from drafts(release, "request-body", body, form="double quotes", invocation=curl)


def _curl(curl: Invocation, lines: Sequence[str], release: str, *, is_server: bool) -> Iterator[Draft]:
    urls = [word.text for word in (*curl.values("--url"), *curl.positional)]
    bodies = [word for word in curl.values(*BODY_FLAGS) if not word.text.startswith("@")]
    if not urls or not bodies or not SERVED.search(urls[0]):
        return
    headers = [word.text for word in curl.values("-H", "--header")]
    is_form = curl.has(*FORM_FLAGS) and not curl.has("--json", "-F", "--form")
    is_told = any(is_open(text) or text.lower().startswith("content-type") for text in headers) or _spreads(curl)
    if is_server and is_form and OPENAI.search(urls[0]) and not is_told:
        yield from drafts(release, "request-body", bodies[0], form="content type", invocation=curl, path=urls[0])
    yield from _single_quotes(curl, bodies[0], lines, release)
    yield from _double_quotes(curl, bodies[0], lines, release)
    body = bodies[0].text.strip()
    if body.startswith("{") and not OPEN_IN_JSON.search(body) and (found := repaired(body)):
        slip, right = found
        shown = right if len(right) < SHOWN else f"{right[: SHOWN - 3]}..."
        yield from drafts(release, "request-body", bodies[0], form="JSON", invocation=curl, slip=slip, instead=shown)


def _spreads(curl: Invocation) -> bool:
    """True where a word may hold headers that nobody sees."""
    return any(word.text.startswith(("$", '"$')) or "[@]" in word.text for word in curl.arguments)


def _apostrophes(source: _Source, file: str, release: str) -> Iterator[Draft]:
    """``'{"content": "What's new"}'``: the shell ends the quotes at the apostrophe."""
    if file.endswith((".py", ".ipynb", ".json")) or not any(quote in source.text for quote in OPENS_BODY):
        return
    for match in APOSTROPHE.finditer(source.text):
        try:
            json.loads(match["body"])
        except (ValueError, RecursionError):
            continue
        place = source.word(match.start("body"), match.end("body"))
        yield from drafts(release, "request-body", place, form="apostrophe", file=file)


def _clients(source: _Source, file: str, release: str) -> Iterator[Draft]:
    """The arguments of a client of OpenAI's, and requests that sends a dictionary as a form."""
    for match in CREATE.finditer(source.text) if ".completions.create(" in source.text else ():
        call = source.call(match.end())
        wanted, given = ("messages", "prompt") if match["chat"] else ("prompt", "messages")
        if call and not _has(call, wanted) and _has(call, given) and "**" not in call:
            place = source.word(match.start(), match.end() - 1)
            right = "chat.completions" if given == "messages" else "completions"
            yield from drafts(
                release, "request-body", place, form="client", file=file, wanted=wanted, given=given, instead=right
            )
    for match in POST.finditer(source.text) if "requests.post(" in source.text else ():
        call = source.call(match.end())
        found = re.search(r"(?:^|[(,\s])data\s*=\s*(?P<value>\{|[A-Za-z_]\w*\s*(?:,|$))", call)
        if not found or _has(call, "json") or not SERVED.search(call):
            continue
        name = found["value"].rstrip(" ,\n")
        is_dictionary = name == "{" or re.search(rf"^\s*{re.escape(name)}\s*=\s*\{{", source.text, re.MULTILINE)
        dumped = name != "{" and re.search(rf"\b{re.escape(name)}\s*=\s*json\.dumps", source.text)
        if is_dictionary and not dumped:
            place = source.word(match.start(), match.end() - 1)
            yield from drafts(release, "request-body", place, form="form", file=file)


def _has(call: str, name: str) -> bool:
    return re.search(ARGUMENT.replace("{name}", name), call) is not None
