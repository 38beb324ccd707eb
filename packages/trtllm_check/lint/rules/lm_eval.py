"""lm_eval with vLLM or a server of it: --model_args, the address of the endpoint, and the chat's template."""

import re
from collections.abc import Iterator
from difflib import get_close_matches
from typing import Any

from trtllm_check.lint.document import Document
from trtllm_check.lint.endpoints import ServerAddress
from trtllm_check.lint.finding import Draft, Edit, Platform, Put, drafts, rule_data
from trtllm_check.lint.invocations import Invocation
from trtllm_check.lint.rules.names import is_open
from trtllm_check.lint.rules.vllm import engine_arguments
from trtllm_check.lint.shell.words import Word

FAMILY = "lm_eval"
RULE = "lm-eval"
TOOLS = ("lm_eval", "lm-eval")
PAIR = re.compile(r"(?P<name>[A-Za-z_]\w*)\s*=")
OLD = re.compile(
    r"lm[-_]eval(?:uation-harness)?(?:\[[^\]\n]*\])?(?:\.git)?(?:==|@v|/tree/v|[ ]v?)0\.(?:[0-3]\.|4\.\d(?!\d))"
)
PATHS = {"local-completions": "/v1/completions", "local-chat-completions": "/v1/chat/completions"}
VLLM = ("vllm", "vllm-vlm")
NEAR = 0.8


def check(document: Document, platform: Platform) -> Iterator[Draft]:
    """All drafts of the family."""
    for one in document.of(*TOOLS):
        model = one.value("--model", "-M") or ""
        given = one.find("--model_args", "-a")
        values = given.values if given else ()
        if not values or is_open(model) or any(word.text.startswith(("{", "$")) for word in values):
            continue
        names_old = any(OLD.search(text) for _, text in document.texts)
        is_slip = values[0].line == values[-1].line  # over several lines it is a style, which today's lm_eval takes
        for draft in _apart(one, values, platform.release.name):
            yield draft if is_slip or names_old else draft._replace(severity="info")
        if model in VLLM:
            yield from _names(one, values, platform.release.name)
        elif model in PATHS:
            yield from _endpoint(one, model, values, platform.release.name)


def _say(
    one: Invocation, place: Word, form: str, release: str, *, edits: tuple[Edit, ...] = (), **known: Any
) -> Iterator[Draft]:
    yield from drafts(release, RULE, place, form=form, edits=edits, invocation=one, tool=one.tool, **known)


def _apart(one: Invocation, values: tuple[Word, ...], release: str) -> Iterator[Draft]:
    """A blank behind a comma."""
    if any(word.column == 1 for word in values[1:]):
        return  # the shell joins what begins a line to what ends in a backslash
    if len(values) > 1 and values[0].text.endswith(",") and not any(is_open(word.text) for word in values):
        whole = "".join(word.text for word in values)
        edits = (Put("--model_args", whole),)
        yield from _say(one, values[1], "apart", release, edits=edits, word=values[1].text, whole=whole)


def _names(one: Invocation, values: tuple[Word, ...], release: str) -> Iterator[Draft]:
    """Names that neither lm_eval's model nor vLLM's engine takes."""
    data = rule_data(FAMILY)
    known = {*data["own"].split(), *engine_arguments()}
    names = list(_pairs(values))
    for name, place in names:
        meant = data["means"].get(name, "")
        close = [] if name in known else get_close_matches(name, known, 1, NEAR)
        if (meant and name not in known) or close or name in data["means"]:
            yield from _say(one, place, "name", release, name=name, instead=meant or close[0])
    if names and not any(name in ("pretrained", *data["means"]) for name, _ in names):
        yield from _say(one, values[0], "no model", release)


def _pairs(values: tuple[Word, ...]) -> Iterator[tuple[str, Word]]:
    for word in values:
        depth = start = 0
        for number, letter in enumerate(f"{word.text},"):
            depth += (letter in "{[(") - (letter in "}])")
            if letter == "," and depth == 0:
                match = PAIR.match(word.text, start, number)
                if match:
                    yield match["name"], word.part(start, number)
                start = number + 1


def _endpoint(one: Invocation, model: str, values: tuple[Word, ...], release: str) -> Iterator[Draft]:
    """The whole address stands in base_url, with its path."""
    for name, place in _pairs(values):
        address = place.text.partition("=")[2].strip("\"'")
        if name != "base_url" or is_open(address) or "$" in address:
            continue
        path = ServerAddress.of(address).path.rstrip("/")
        if path != PATHS[model] and (path in ("", "/v1") or path in PATHS.values()):
            yield from _say(one, place, "endpoint", release, model=model, path=path or "/", instead=PATHS[model])
    if model == "local-chat-completions" and not one.has("--apply_chat_template"):
        edits = (Put("--apply_chat_template"),)
        yield from _say(one, one.path, "template", release, edits=edits, model=model)
