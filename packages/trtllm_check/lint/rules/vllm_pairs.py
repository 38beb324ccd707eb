"""Options of vLLM that exclude or want each other, as its own code refuses them: the table vllm_pairs.yml."""

import json
from collections.abc import Iterator
from typing import Any

from trtllm_check.lint.document import Document
from trtllm_check.lint.finding import Draft, Platform, drafts, rule_data
from trtllm_check.lint.rules.names import is_open
from trtllm_check.lint.rules.served import LMI, VLLM, ServedModel, served
from trtllm_check.lint.rules.vllm_table import release_for
from trtllm_check.releases.vllm import VllmRelease, vllm_facts

FAMILY = "vllm_pairs"
RULE = "vllm-options-together"
Entry = dict[str, Any]


def check(document: Document, platform: Platform) -> Iterator[Draft]:
    """All drafts of the family."""
    release = platform.release.name
    data = rule_data(FAMILY)
    for one in served(document):
        if one.engine != VLLM or one.tool == LMI:
            continue
        told = release_for(document, one.invocation)
        for kind in ("needs", "excludes", "order", "divides", "values"):
            for entry in data[kind]:
                if entry["option"] in one.options and _holds(entry, told):
                    yield from CHECKS[kind](one, entry, release)


def _holds(entry: Entry, told: VllmRelease | None) -> bool:
    """True where the release of the text, or today's, refuses it."""
    facts = vllm_facts()
    place = (told or facts.newest).place
    first = facts.release(entry["since"])
    last = facts.release(entry["until"]) if "until" in entry else None
    return first is not None and first.place <= place and (last is None or place < last.place)


def _say(one: ServedModel, entry: Entry, form: str, release: str, **known: Any) -> Iterator[Draft]:
    option = entry["option"]
    known = {"tool": one.tool, "flag": one.flag(option), "says": entry["says"].format(**known), **known}
    yield from drafts(release, RULE, one.place(option), form=form, invocation=one.invocation, file=one.file, **known)


def _is_on(one: ServedModel, name: str) -> bool:
    """True for an option that is given and not turned off; ``object.key`` is a setting of an object."""
    option, _, key = name.partition(".")
    if name in one.options or not key:
        return one.is_on(name)
    try:
        found = json.loads(one.options[option].text) if option in one.options else None
    except (ValueError, RecursionError):
        return False
    return isinstance(found, dict) and found.get(key) is not None


def _needs(one: ServedModel, entry: Entry, release: str) -> Iterator[Draft]:
    """An option without the other one, in a command that shows all of its words."""
    start = one.invocation
    if start is None or any(is_open(word.text) for word in start.arguments) or start.has("--config"):
        return
    if _is_on(one, entry["option"]) and not any(_is_on(one, name) for name in entry["needs"]):
        other = entry["needs"][0].replace("_", "-")
        yield from _say(one, entry, "needs", release, other=f"--{other}")


def _excludes(one: ServedModel, entry: Entry, release: str) -> Iterator[Draft]:
    least = one.number(entry["option"]) if "over" in entry else None
    if least is not None and least <= entry["over"]:
        return
    if _is_on(one, entry["option"]) and _is_on(one, entry["other"]):
        other = one.flags.get(entry["other"].partition(".")[0], entry["other"])
        setting = entry["other"].partition(".")[2]
        yield from _say(one, entry, "", release, other=f"{setting} of {other}" if setting else other)


def _order(one: ServedModel, entry: Entry, release: str) -> Iterator[Draft]:
    """An option that may be no more than another one, or has to be below it."""
    value, most = one.number(entry["option"]), one.number(entry["other"])
    if most is None and entry["other"] not in one.options:
        most = entry.get("default")
    if value is None or most is None:
        return
    if value > most or (entry.get("below") and value == most):
        known = {"value": value, "most": most, "other": one.flags.get(entry["other"], entry["other"])}
        yield from _say(one, entry, "order", release, **known)


def _divides(one: ServedModel, entry: Entry, release: str) -> Iterator[Draft]:
    value, other = one.number(entry["option"]), one.number(entry["other"])
    if other is None and entry["other"] not in one.options:
        other = entry.get("default")
    if value and other and other % value:
        known = {"value": value, "most": other, "other": one.flags.get(entry["other"], entry["other"])}
        yield from _say(one, entry, "divides", release, **known)


def _values(one: ServedModel, entry: Entry, release: str) -> Iterator[Draft]:
    value = one.number(entry["option"])
    if value is not None and value not in entry["values"]:
        listed = ", ".join(map(str, entry["values"]))
        yield from _say(one, entry, "values", release, value=value, listed=listed)


CHECKS = {"needs": _needs, "excludes": _excludes, "order": _order, "divides": _divides, "values": _values}
