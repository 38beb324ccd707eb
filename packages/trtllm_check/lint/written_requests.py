"""Requests to servers of models: of curl and programs like it, and of pages that show one as it goes over HTTP."""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

from trtllm_check.lint.invocations import Invocation
from trtllm_check.lint.shell.words import ShellCommand, Word, file_name

BODY_FLAGS = ("-d", "--data", "--data-raw", "--data-binary", "--data-ascii", "--json")
SERVER_PATH = re.compile(r"/(?:v1|v2|invocations|predictions|ping|generate|generate_stream|health|metrics)(?:[/?]|$)")
OTHERS = ("wget", "hey", "oha")  # what sends one body: its manual, -d and --post-data
BY_ITEMS = ("http", "https", "xh", "xhs")  # HTTPie's: a field for each word
FIELD = re.compile(r"(?P<name>[a-z_]\w*)(?P<sign>:?=)(?P<value>[^=@].*|)", re.DOTALL)
OF_OTHERS = re.compile(r"--(?:post-data|body-data)=")
ADDRESS = re.compile(r"https?://\S+|[\w.-]+:\d+/\S*")
MESSAGE = re.compile(
    r"^[ \t>]*(?P<method>POST|PUT)[ \t]+(?P<url>(?:https?://[^\s/]+)?/[^\s{]*)(?:[ \t]+HTTP/[\d.]+)?[ \t]*\r?\n"
    r"(?:[ \t>]*[A-Za-z][\w-]*:[ \t][^\n]*\n)*(?:[ \t>\r]*\n)*[ \t]*(?=\{)",
    re.MULTILINE,
)
FROM_CAT = re.compile(r"(?P<name>[A-Za-z_]\w*)=\$\(\s*cat\s*<<")
LONGEST = 20_000

REQUEST_FIELDS = frozenset({"text_input", "inputs", "prompt", "messages", "input_ids", "parameters", "instances"})


class WrittenRequest(NamedTuple):
    """One request to a server. ``fields``: the JSON body, None if there is none or it is no JSON object.

    ``place``: the body as written (the URL if there is no body); ``method`` is empty where curl chooses.
    ``address``: where a program has the URL.
    """

    url: str
    fields: Mapping[str, Any] | None
    place: Word
    method: str = ""
    file: str = ""
    address: Word | None = None

    def at(self, name: str) -> Word:
        """Where the field ``name`` stands, the whole body if it does not."""
        found = re.search(rf"([\"']){re.escape(name)}\1", self.place.text)
        return self.place if found is None else self.place.part(found.start(), found.end())


class HttpMessage(NamedTuple):
    """A request as it goes over HTTP; the spans are of the page."""

    method: str
    url: str
    fields: dict[str, Any]
    url_span: tuple[int, int]
    body_span: tuple[int, int]


def json_object(text: str) -> dict[str, Any] | None:
    """The object that a text is; None for anything else."""
    try:
        content = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return content if isinstance(content, dict) else None


def of_curl(curl: Invocation, files: Mapping[str, Word]) -> WrittenRequest | None:
    """The request of one curl; ``files``: what the text writes into files, which ``-d @file`` sends."""
    urls = [*curl.values("--url"), *curl.positional]
    if not urls:
        return None
    given = curl.values(*BODY_FLAGS)
    bodies = [files.get(word.text, word) for word in given if not word.text.startswith("@")]
    if any(word.text == "@-" for word in given):
        bodies += [one.target for one in curl.command.redirects if one.operator in ("<<", "<<<")]
    bodies += [files[name] for word in given if (name := word.text[1:]) in files and word.text.startswith("@")]
    if not bodies and not SERVER_PATH.search(urls[0].text):
        return None
    fields = json_object(bodies[0].text) if bodies else None
    place = bodies[0] if bodies else urls[0]
    return WrittenRequest(urls[0].text, fields, place, curl.value("-X", "--request") or "", curl.command.file)


def of_others(commands: Sequence[ShellCommand]) -> Iterator[WrittenRequest]:
    """``wget --post-data='{...}' URL``, ``hey -m POST -d '{...}' URL``."""
    for command in commands:
        words = command.words
        if words and file_name(words[0].text) in BY_ITEMS and (sent := _by_items(command)) is not None:
            yield sent
        if not words or file_name(words[0].text) not in OTHERS:
            continue
        url = next((word for word in words[1:] if ADDRESS.fullmatch(word.text)), None)
        bodies = [behind for word, behind in pairwise(words) if word.text == "-d"]
        bodies += [word.part(match.end()) for word in words if (match := OF_OTHERS.match(word.text))]
        fields = json_object(bodies[0].text) if bodies else None
        if url is not None and fields is not None:
            yield WrittenRequest(url.text, fields, bodies[0], "POST", command.file)


def _by_items(command: ShellCommand) -> WrittenRequest | None:
    """``http POST URL prompt=Hi max_tokens:=20``."""
    url = next((word for word in command.words[1:] if ADDRESS.fullmatch(word.text)), None)
    items = [(word, match) for word in command.words[1:] if (match := FIELD.fullmatch(word.text))]
    if url is None or not items or not SERVER_PATH.search(url.text):
        return None
    fields: dict[str, Any] = {}
    for _, match in items:
        try:
            fields[match["name"]] = json.loads(match["value"]) if match["sign"] == ":=" else match["value"]
        except ValueError:
            fields[match["name"]] = f"${{{match['name']}}}"
    return WrittenRequest(url.text, fields, items[0][0], "POST", command.file, url)


def written_files(commands: Sequence[ShellCommand]) -> dict[str, Word]:
    """``cat > body.json <<EOF``: the files that here-documents become, by their names."""
    found: dict[str, Word] = {}
    for number, command in enumerate(commands):
        for word in command.assignments if not command.words else ():
            match = FROM_CAT.match(word.text)
            inner = [one for one in commands[max(number - 2, 0) : number + 2] if _is_cat_within(one, command)]
            if match is not None and len(inner) == 1:
                found[f"${{{match['name']}}}"] = inner[0].redirects[0].target
        if command.words[:1] and command.words[0].text == "read" and command.redirects[:1]:
            found[f"${{{command.words[-1].text}}}"] = command.redirects[0].target
        bodies = [one.target for one in command.redirects if one.operator == "<<"]
        names = [one.target.text for one in command.redirects if one.operator in (">", ">|")]
        if bodies and command.words[:1] and command.words[0].text in ("cat", "tee"):
            names += [word.text for word in command.words[1:]]
            found |= dict.fromkeys(names, bodies[0])
    return found


def _is_cat_within(one: ShellCommand, around: ShellCommand) -> bool:
    is_cat = [word.text for word in one.words] == ["cat"] and [each.operator for each in one.redirects] == ["<<"]
    return is_cat and one.file == around.file and around.line <= one.line <= around.end_line


def http_messages(text: str) -> Iterator[HttpMessage]:
    """``POST /v1/chat/completions`` with its headers and a JSON body, as pages and files of REST clients show it."""
    for match in MESSAGE.finditer(text):
        try:
            fields, end = json.JSONDecoder().raw_decode(text[match.end() : match.end() + LONGEST])
        except (ValueError, RecursionError):
            continue
        if isinstance(fields, dict) and SERVER_PATH.search(match["url"]):
            span = (match.end(), match.end() + end)
            yield HttpMessage(match["method"], match["url"], fields, match.span("url"), span)


def is_request(fields: Mapping[str, Any] | None) -> bool:
    """True for a body that some server of a model takes."""
    return fields is not None and bool(REQUEST_FIELDS & fields.keys())
