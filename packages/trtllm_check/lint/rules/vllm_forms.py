"""The form of the values of vLLM's options by release: numbers, switches, JSON, choices, names of classes, parsers."""

import json
import re
from collections.abc import Iterator
from difflib import get_close_matches
from functools import cache
from typing import Any

from packaging.version import Version

from trtllm_check.lint.document import Document
from trtllm_check.lint.finding import Draft, Drop, Edit, Platform, Put, Swap, drafts, rule_data
from trtllm_check.lint.held_arguments import is_held
from trtllm_check.lint.invocations import Invocation
from trtllm_check.lint.programs import Given
from trtllm_check.lint.rules.vllm import Release
from trtllm_check.lint.rules.vllm_table import absence, command_of, kinds_of, release_for
from trtllm_check.lint.shell.words import Word, lines_of
from trtllm_check.releases.vllm import Changes, choices, in_words, options_of, vllm_facts

FAMILY = "vllm_forms"
RULE = "vllm-form"
WHOLE = re.compile(r"[+-]?\d[\d_]*|None")
DECIMAL = re.compile(r"[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?")
UNIT = re.compile(r"\d+(?:\.\d+)?\s*(?:[kKmMgGtT]i?[bB]?|[bB]|%)")
LONG = re.compile(r"[+-]?\d[\d_]*|None|\d+(?:\.\d+)?[kKmMgGtT][iI]?[bB]?|auto")
FILLED_IN = re.compile(r"[$<>`%]|\{\{|\.\.\.|…|^[A-Z][A-Z_]*$|^x+$|^\{|\}$|^\[|\]$")
TEXTS = re.compile(r"true|false|yes|no|on|off|enabled?|disabled?|[01]", re.IGNORECASE)
OFF = re.compile(r"false|no|off|disabled?|0", re.IGNORECASE)
TO_BE_FILLED = re.compile(r"(?:your|my|some) ", re.IGNORECASE)  # your length here
OPEN_IN_JSON = re.compile(r"\$|\.\.\.|…|<\w[^<>]*>|\{\{|%\w+%")
IN_JSON = re.compile(r"\$\{?\w+\}?")  # a variable in the place of a value
EMPTY_PLACE = re.compile(r",(?=\s*[,}\]])")
PYTHON_WORDS = re.compile(r"(?<=[\s:\[,])(True|False|None)(?=[\s,}\]])")
JSON_WORDS = {"True": "true", "False": "false", "None": "null"}
CLASS_NAME = re.compile(r"[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)+")
SHOWN = 60
MARKS = re.compile(r"[-_.]")
NEAR = 0.8
MODULE, MODULE_WITH_A_WORD = "vllm.entrypoints", "0.9.1"  # from here on it takes the model as a word, too
ROLES = ("kv_producer", "kv_consumer", "kv_both")


VALUED = frozenset({"text", "whole", "amount", "decimal", "json", "choice", "list"})
SWITCHES = frozenset({"switch", "toggle"})
PARSERS = {"tool_call_parser": "tool_parser_plugin", "reasoning_parser": "reasoning_parser_plugin"}
MAY_BE_BARE = ("enable", "disable", "guided_decoding_disable", "optimization_level")
BEHIND = 3  # lines, in which the next option stands


def check(document: Document, platform: Platform) -> Iterator[Draft]:
    """All drafts of the family."""
    if any(EDITED.search(text) for _, text in document.texts):
        return
    for one in document.of("vllm"):
        command = command_of(one)
        if command in ("", "bench serve"):
            continue
        told = release_for(document, one)
        for given in one.given:
            if given.name == "--config" and "=" in given.word.text and given.values:
                yield from _say(one, given, given.word, "config", platform.release.name, value=given.values[0].text)
            elif given.name == "--config" and any(word.text.endswith((".py", ".sh")) for word in one.positional):
                continue  # of a script that the image's entry point takes for a model
            elif given.name == "--config" and given.values and OTHER_FILE.search(given.values[0].text):
                yield from _say(one, given, given.values[0], "kind", platform.release.name, value=given.values[0].text)
            elif given.flag.startswith("--"):
                yield from _option(document, one, given, command, told, platform.release.name)


OTHER_FILE = re.compile(r"\w\.(?:json|toml|ini|conf|cfg|env|txt|py|properties|config|jsonc)$", re.IGNORECASE)
EDITED = re.compile(r"\bvllm/engine/arg_utils\.py\b")
"""A text that edits the parser of its own clone, which then has other choices."""


@cache
def _names(kind: str) -> frozenset[str]:
    found = rule_data(FAMILY)[kind]
    return frozenset(found.split() if isinstance(found, str) else found)


def _option(
    document: Document, serve: Invocation, given: Given, command: str, told: Release, release: str
) -> Iterator[Draft]:
    name, _, setting = given.name.lstrip("-").partition(".")
    name = name.replace("-", "_")
    if setting:
        if not given.values:
            yield from _say(serve, given, given.word, "setting", release)
        return
    known = options_of(command)
    changes = known.get(name.replace("_", "-"))
    negated = known.get(name.removeprefix("no_").replace("_", "-")) if changes is None else None
    if changes is None and negated is None:
        return
    kinds = kinds_of(changes or negated or Changes(()), told)
    if kinds & (SWITCHES | {"boolean"}) and kinds <= SWITCHES | {"boolean"}:
        yield from _switch(serve, given, kinds, told, release)
        return
    if changes is None:
        return
    if not given.values:
        is_named = is_held(serve.arguments)  # a line of a list of options, without a command
        bare = kinds <= VALUED and not name.startswith(MAY_BE_BARE) and not is_named
        if bare and _stands_bare(document, serve, given):
            yield from _say(serve, given, given.word, "no value", release)
        return
    yield from _value(document, serve, given, name, changes, told, release)


def _value(
    document: Document, serve: Invocation, given: Given, name: str, changes: Changes, told: Release, release: str
) -> Iterator[Draft]:
    kinds, value = kinds_of(changes, told), given.values[0]
    if TO_BE_FILLED.match(value.text):
        return
    if "choice" in kinds and name not in PARSERS and not _is_named_wrong(name, value.text):
        yield from _choice(serve, given, value, changes, told, release)
    if name in _names("lists"):
        yield from _list(serve, given, name, release)
    if kinds == {"decimal"}:
        yield from _decimal(serve, given, value, release)
    number = WHOLE if kinds == {"whole"} else LONG if kinds <= {"whole", "amount"} else None
    if number is not None:
        found = list(_number(serve, given, value, number, release))
        yield from found if found and _is_written(document, value) else ()
    elif "json" in kinds or name.replace("_", "-") in rule_data("vllm")["json"]:
        yield from _json(serve, given, name, told, release)
    elif name == "logits_processors":
        for word in given.values:
            if CLASS_NAME.fullmatch(word.text):
                module, _, last = word.text.rpartition(".")
                edits = (Swap(word, f"{module}:{last}"),)
                yield from _say(serve, given, word, "class", release, edits=edits, instead=f"{module}:{last}")
    elif name in PARSERS:
        yield from _parser(serve, given, name, value, told, release)


def _is_named_wrong(name: str, value: str) -> bool:
    """True for a value of which the rule on values itself says what is meant."""
    return value.lower() in {str(one) for one in rule_data("vllm_values")["wrong"].get(name, {})}


def _parser(serve: Invocation, given: Given, name: str, value: Word, told: Release, release: str) -> Iterator[Draft]:
    """A parser that the release of the text, or none, has, and that no plugin brings."""
    plugin = PARSERS[name].replace("_", "-")
    known = vllm_facts().table("names", name)
    changes = known.get(value.text)
    if serve.has(f"--{plugin}") or FILLED_IN.search(value.text) or _is_named_wrong(name, value.text):
        return
    if changes is None:
        yield from _no_parser(serve, given, value, list(known), release)
        return
    lacking = absence(changes, told)
    if lacking is not None and (told is not None or lacking.gone):
        about: dict[str, Any] = {"since": lacking.edge, "has": lacking.has}
        about["version"] = told.written if told else "today"
        form = "parser left" if told is None else "parser gone" if lacking.gone else "parser"
        yield from _say(serve, given, value, form, release, **about)


def _no_parser(serve: Invocation, given: Given, value: Word, known: list[str], release: str) -> Iterator[Draft]:
    """A name that differs from a parser's in marks and capitals, or by a slip."""
    plain = {MARKS.sub("", one).lower(): one for one in known}
    same = plain.get(MARKS.sub("", value.text).lower(), "")
    close = [same] if same else get_close_matches(value.text, known, 1, NEAR)
    for meant in close:
        form = "parser never" if same else "parser never, perhaps"
        yield from _say(serve, given, value, form, release, edits=(Put(given.name, meant),), instead=meant)


def _stands_bare(document: Document, serve: Invocation, given: Given) -> bool:
    """True where another option, or the end, stands behind the option in the text itself, and no empty variable."""
    text = next((text for name, text in document.texts if name == serve.command.file), "")
    behind = "\n".join(lines_of(text)[given.word.line - 1 : given.word.line + BEHIND])
    return re.search(rf"{re.escape(given.flag)}[ \t]*(?:\\?\r?\n\s*)?(?:-{{1,2}}[A-Za-z]|\Z)", behind) is not None


def _is_written(document: Document, word: Word) -> bool:
    """False for what only the reading of variables and templates has put together."""
    return any(word.text in text for _, text in document.texts)


def _say(
    serve: Invocation,
    given: Given,
    place: Word,
    form: str,
    release: str,
    *,
    edits: tuple[Edit, ...] = (),
    **known: str,
) -> Iterator[Draft]:
    value = known.pop("value", place.text)
    shown = value if len(value) < SHOWN else f"{value[: SHOWN - 3]}..."
    known = {"flag": given.name, "value": shown, **known}
    yield from drafts(release, RULE, place, form=form, edits=edits, invocation=serve, **known)


def _list(serve: Invocation, given: Given, name: str, release: str) -> Iterator[Draft]:
    """Several values with commas, where blanks tell them apart; one that is JSON may hold commas."""
    for word in given.values:
        parts = [part.strip() for part in word.text.split(",")]
        if len(parts) < 2 or word.text.startswith(("{", "[", "$")) or OPEN_IN_JSON.search(word.text):
            continue
        if name == "lora_modules" and not all("=" in part for part in parts):
            continue
        instead = " ".join(part for part in parts if part)
        form = "list of numbers" if name in _names("number_lists") else "list"
        yield from _say(serve, given, word, form, release, edits=(Swap(word, instead),), instead=instead)


def _decimal(serve: Invocation, given: Given, value: Word, release: str) -> Iterator[Draft]:
    """A number with a unit; of a share in percent the rule of its own speaks."""
    text = value.text.strip()
    if not text.endswith("%") and UNIT.fullmatch(text) and not DECIMAL.fullmatch(text):
        yield from _say(serve, given, value, "unit", release)


def _keys(serve: Invocation, given: Given, name: str, settings: object, told: Release, release: str) -> Iterator[Draft]:
    """Settings that no release has and that look like one, and those that the release of the text has not."""
    known = vllm_facts().table("objects", name)
    for key, setting in settings.items() if isinstance(settings, dict) and known else ():
        if key == "pass_config":
            yield from _keys(serve, given, "pass_config", setting, told, release)
        if key in known:
            lacking = absence(known[key], told) if told is not None else None
            if lacking is not None and told is not None:
                about: dict[str, Any] = {"version": told.written, "has": lacking.has}
                yield from _say(serve, given, given.values[0], "key of a release", release, value=key, **about)
            continue
        close = get_close_matches(key, known, 1, NEAR)
        if close:
            yield from _say(serve, given, given.values[0], "key", release, value=key, instead=close[0])
    if name == "kv_transfer_config" and isinstance(settings, dict):
        role = settings.get("kv_role")
        if isinstance(role, str) and role not in ROLES and not OPEN_IN_JSON.search(role):
            listed = ", ".join(ROLES)
            yield from _say(serve, given, given.values[0], "role", release, value=role, known=listed)


def _choice(
    serve: Invocation, given: Given, value: Word, changes: Changes, told: Release, release: str
) -> Iterator[Draft]:
    """A value that the release of the text, or today's, does not have; each value of a list of choices."""
    text = value.text
    facts = vllm_facts()
    kind = changes.at((told or facts.newest).place)
    listed = choices(kind)
    if not listed or text in listed or FILLED_IN.search(text) or "." in text or ":" in text or "," in text:
        return
    earlier = any(text in choices(one) for _, one in changes.steps)
    name = given.name.lstrip("-").replace("_", "-")
    instead = facts.instead["values"].get(f"{name}.{text}", "") or f"write one of {', '.join(listed)}"
    edits = (Put(given.name, instead),) if " " not in instead else ()
    known: dict[str, Any] = {"known": ", ".join(listed), "instead": instead if " " in instead else f"write {instead}"}
    if told is not None:
        known |= {"version": told.written}
        yield from _say(serve, given, value, "choice of a release", release, edits=edits, **known)
    elif earlier:
        known |= {"has": in_words(Changes(tuple(_steps_of(changes, text))))}
        yield from _say(serve, given, value, "choice left", release, edits=edits, **known)
    else:
        yield from _say(serve, given, value, "choice", release, **known)


def _steps_of(changes: Changes, text: str) -> Iterator[tuple[int, str]]:
    """Where a value was among the choices: the steps of an option, as those of its value."""
    for start, kind in changes.steps:
        yield start, "has" if text in choices(kind) else "gone"


def _number(serve: Invocation, given: Given, value: Word, number: re.Pattern[str], release: str) -> Iterator[Draft]:
    text = value.text.strip()
    if text and not number.fullmatch(text) and not FILLED_IN.search(text):
        yield from _say(serve, given, value, "number", release)


def _switch(serve: Invocation, given: Given, kinds: frozenset[str], told: Release, release: str) -> Iterator[Draft]:
    """``--trust-remote-code true``; a word behind a switch that is none of these may be the model."""
    value = given.values[0] if given.values else None
    if value is None or not TEXTS.fullmatch(value.text) or kinds == {"boolean"}:
        return
    form = "switch, not certain" if "boolean" in kinds else "switch"
    is_free = told is None or Version(told.written) >= Version(MODULE_WITH_A_WORD)
    if (
        form == "switch"
        and is_free
        and serve.path.text.startswith(MODULE)
        and all(one == value for one in serve.positional)
    ):
        form = "switch of the module"
    is_off = OFF.fullmatch(value.text) is not None
    edits: tuple[Edit, ...] = (Drop(given.name),) if is_off else (Drop(given.name), Put(given.name))
    instead = f"--no-{given.name.removeprefix('--')}, or leave it out" if is_off else f"{given.name} alone"
    yield from _say(serve, given, value, form, release, edits=edits, instead=instead)


def _json(serve: Invocation, given: Given, name: str, told: Release, release: str) -> Iterator[Draft]:
    """An object that only a slip keeps from being JSON; what is wrong otherwise is vllm-json's."""
    value = " ".join(word.text for word in given.values).strip()
    if _is_json(value):
        yield from _keys(serve, given, name, json.loads(value), told, release)
        return
    if not value.startswith("{") or OPEN_IN_JSON.search(value):
        filled = IN_JSON.sub("0", value)
        if _is_json(filled):
            yield from _keys(serve, given, name, json.loads(filled), told, release)
        return
    until = rule_data(FAMILY)["python_before"].get(name)
    may_be_python = until is not None and (told is None or Version(told.written) <= Version(until))
    if found := repaired(value):
        slip, right = found
        form = "JSON, not certain" if may_be_python and slip != "an empty place" else "JSON"
        yield from _say(serve, given, given.values[0], form, release, value=value, slip=slip, instead=right)


def repaired(value: str) -> tuple[str, str] | None:
    """What keeps ``value`` from being JSON, and the JSON that is meant; None where it is JSON, or nobody can tell."""
    if _is_json(value):
        return None
    return next(((slip, right) for slip, right in _repairs(value) if _is_json(right)), None)


def _repairs(value: str) -> Iterator[tuple[str, str]]:
    """What may be wrong, and the object without it."""
    places = EMPTY_PLACE.sub("", value)
    words = PYTHON_WORDS.sub(lambda match: JSON_WORDS[match[1]], places)
    quotes = words.replace("'", '"')
    yield "an empty place", places
    yield "a word of Python (True, False, None)", words
    yield "single quotes", quotes
    if "\n" in value or ":" not in value or value.endswith(("{", ",", ":")):
        return  # a part of it may be lost where the text was taken apart
    missing = value.count("{") - value.count("}")
    if missing > 0:
        yield "a missing }", value + "}" * missing
    elif missing < 0 and value.endswith("}" * -missing):
        yield "a } too many", value[:missing]


def _is_json(value: str) -> bool:
    try:
        json.loads(value)
    except (ValueError, RecursionError):
        return False
    return True
