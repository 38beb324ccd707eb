"""Fields of a body for vLLM's server that it refuses together, or one without the other: request_pairs.yml."""

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from trtllm_check.lint.carriers.python_asks import OPEN
from trtllm_check.lint.document import Document
from trtllm_check.lint.endpoints import ServerAddress
from trtllm_check.lint.finding import Draft, Platform, drafts, rule_data
from trtllm_check.lint.rules.openai_page import PROXIES
from trtllm_check.lint.rules.openai_paths import CHAT, TEXT
from trtllm_check.lint.rules.served import VLLM, ServedModel, served
from trtllm_check.lint.rules.vllm_refusals import holds
from trtllm_check.lint.rules.vllm_table import release_for
from trtllm_check.lint.shell.words import Word
from trtllm_check.releases.vllm import VllmRelease

FAMILY = "request_pairs"
RULE = "request-fields"
OTHERS = re.compile(
    r"sglang|ollama|litellm|lmdeploy|llama[-_.]?cpp|text-generation-inference|tritonserver|trtllm|openrouter",
    re.IGNORECASE,
)
SPEAKS = re.compile(r"\bvllm\b", re.IGNORECASE)
LOGPROBS = {CHAT: "top_logprobs", TEXT: "logprobs"}
Entry = dict[str, Any]


class Body(NamedTuple):
    """``fields`` by name, each at ``places``; ``is_open``: more fields may come from elsewhere."""

    path: str
    fields: Mapping[str, Any]
    places: Mapping[str, Word]
    file: str
    is_open: bool = False

    def value(self, name: str) -> Any:
        outer, _, inner = name.partition(".")
        found = self.fields.get(outer)
        return found if not inner else found.get(inner) if isinstance(found, dict) else None

    def is_set(self, name: str) -> bool:
        return self.value(name) not in (None, False, "")

    def holds(self, name: str, condition: Any) -> bool:
        value = self.value(name)
        if condition == "empty":
            return isinstance(value, list) and not value
        if not self.is_set(name):
            return False
        if condition == "set":
            return True
        if isinstance(condition, list):
            return value in condition
        return isinstance(value, int | float) and not isinstance(value, bool) and bool(value > condition["over"])


def check(document: Document, platform: Platform) -> Iterator[Draft]:
    """All drafts of the family."""
    bodies = list(_bodies(document))
    if not bodies or any(OTHERS.search(text) or PROXIES.search(text) for _, text in document.texts):
        return
    starts = list(served(document))
    if any(one.engine != VLLM for one in starts):
        return
    if not starts and not any(SPEAKS.search(text) for _, text in document.texts):
        return
    told = release_for(document, starts[0].invocation if starts else None)
    for body in bodies:
        for draft in _refused(body, told, starts, platform.release.name):
            yield draft if starts else draft._replace(severity="warning")


def _bodies(document: Document) -> Iterator[Body]:
    for request in document.requests:
        path = ServerAddress.of(request.url).path.rstrip("/") if request.url else ""
        if path in (CHAT, TEXT) and request.fields:
            places = {name: request.at(name) for name in request.fields}
            yield Body(path, request.fields, places, request.file)
    for call in document.calls:
        path = f"/v1{call.name}"
        if call.api == "openai" and path in (CHAT, TEXT):
            places = dict(call.values)
            yield Body(path, {name: _read(word.text) for name, word in call.values}, places, call.file, OPEN in places)


def _read(text: str) -> Any:
    """A value as JSON has it; a text for what is none."""
    try:
        return json.loads({"True": "true", "False": "false"}.get(text, text))
    except (ValueError, RecursionError):
        return text


def _refused(body: Body, told: VllmRelease | None, starts: list[ServedModel], release: str) -> Iterator[Draft]:
    data = rule_data(FAMILY)
    for entry in data["refusals"]:
        if holds(entry, told) and _fits(body, entry):
            yield from _say(body, entry["at"], "", release, says=entry["says"], instead=entry["fix"])
    for entry in data["guides"]:
        given = [name for name in entry["fields"] if body.is_set(name)]
        if len(given) > 1 and holds(entry, told):
            first, second = (name.rpartition(".")[2] for name in given[:2])
            says = f"You can only use one kind of guided decoding ({first}, {second})"
            instead = f"leave {first} or {second} out"
            yield from _say(body, given[1].partition(".")[0], "", release, says=says, instead=instead)
    name, most = LOGPROBS[body.path], data["most_logprobs"]
    gives = len(starts) == 1 and "max_logprobs" not in starts[0].options and not starts[0].is_open
    if gives and body.holds(name, {"over": most}):
        says = f"Requested sample logprobs of {body.value(name)}, which is greater than max allowed: {most}"
        instead = f"write {most} or less, or start the server with --max-logprobs {body.value(name)}"
        yield from _say(body, name, "", release, says=says, instead=instead)


def _fits(body: Body, entry: Entry) -> bool:
    without = entry.get("without", ())
    return (
        body.path == f"/v1/{entry.get('path', body.path.removeprefix('/v1/'))}"
        and all(body.holds(name, condition) for name, condition in entry["when"].items())
        and not (without and body.is_open)
        and not any(body.is_set(name) for name in without)
    )


def _say(body: Body, name: str, form: str, release: str, **known: Any) -> Iterator[Draft]:
    yield from drafts(release, RULE, body.places[name], form=form, file=body.file, name=name, **known)
