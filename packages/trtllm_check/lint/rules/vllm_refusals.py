"""Options of vLLM that its own code refuses by their values: the conditions and bounds of vllm_refusals.yml."""

import json
from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any, NamedTuple

from serving_base.facts.published import published_model
from trtllm_check.lint.bounds import is_within, range_of
from trtllm_check.lint.document import Document
from trtllm_check.lint.finding import Draft, Platform, drafts, rule_data
from trtllm_check.lint.rules.names import is_open
from trtllm_check.lint.rules.served import LMI, VLLM, ServedModel, served
from trtllm_check.lint.rules.settings import settings
from trtllm_check.lint.rules.vllm_table import release_for
from trtllm_check.releases.models import named_model
from trtllm_check.releases.vllm import VllmRelease, vllm_facts

FAMILY = "vllm_refusals"
RULE = "vllm-refusal"
VARIABLE = "$"
OFF = ("false", "0", "no")
TARGET, EXPERTS = "tensor_parallel_size", "enable_expert_parallel"
NEURON = "override_neuron_config"  # of AWS's own edition
NO = "no_"  # in front of a switch of argparse that is turned off
Entry = dict[str, Any]


class GivenOptions(NamedTuple):
    """What one start is given. ``variables``: those of the text, each with its only value."""

    one: ServedModel
    variables: Mapping[str, str]

    def value(self, name: str) -> str | None:
        """The text of an option, of a setting of an object, or of a variable; None where it is not given."""
        if name.startswith(VARIABLE):
            return self.variables.get(name.removeprefix(VARIABLE))
        if name in self.one.options:
            return self.one.options[name].text
        option, _, key = name.partition(".")
        if key:
            found = _settings(self.one.options[option].text).get(key) if option in self.one.options else None
            return None if found is None else str(found)
        return "false" if f"{NO}{name}" in self.one.options else None

    def holds(self, name: str, condition: Any) -> bool:
        text = self.value(name)
        if text is None or condition == "given":
            return text is not None
        if isinstance(condition, list):
            return text.lower() in condition
        if is_open(text):
            return False
        if condition in ("set", "unset"):
            return bool((text.lower() in OFF) == (condition == "unset"))
        number = _number(text)
        return number is not None and bool(
            number > condition["over"] if "over" in condition else number < condition["under"]
        )

    def may_hold(self, name: str, condition: Any) -> bool:
        """True where the condition holds, and where what it asks for is open."""
        text = self.value(name)
        option = self.one.options.get(name.partition(".")[0])
        is_unread = "." in name and option is not None and not _settings(option.text)
        return is_unread or (text is not None and is_open(text)) or self.holds(name, condition)

    @property
    def is_whole(self) -> bool:
        """True for a start that shows all of its options."""
        start = self.one.invocation
        if start is None:
            return not self.one.is_open
        return not (self.one.is_open or any(is_open(word.text) for word in start.arguments) or start.has("--config"))


def check(document: Document, platform: Platform) -> Iterator[Draft]:
    """All drafts of the family."""
    release = platform.release.name
    data = rule_data(FAMILY)
    variables: Mapping[str, str] | None = None
    for one in served(document):
        if one.engine != VLLM or one.tool == LMI or not one.options or NEURON in one.options:
            continue
        if variables is None:
            variables = _variables(document)
        given = GivenOptions(one, variables)
        told = release_for(document, one.invocation)
        for entry in data["clauses"]:
            if entry["at"] in one.options and holds(entry, told) and _fits(given, entry):
                known: dict[str, Any] = {"says": entry["says"], "instead": entry["fix"]}
                yield from _say(one, entry["at"], "", release, **known)
        yield from _order(given, told, release)
        yield from _no_experts(one, told, release)
        for name, bound in data["bounds"].items():
            number = _number(given.value(name) or "")
            if number is not None and not is_within(number, bound) and holds(bound, told):
                known = {"name": name, "value": given.value(name), "range": range_of(bound)}
                yield from _say(one, name, "bound", release, **known)


def _order(given: GivenOptions, told: VllmRelease | None, release: str) -> Iterator[Draft]:
    """A number above the one that it goes with; ranks of a draft that are neither 1 nor the target's."""
    data = rule_data(FAMILY)
    for entry in data["order"]:
        value, most = (_number(given.value(entry[name]) or "") for name in ("option", "other"))
        if value is not None and most is not None and value > most and holds(entry, told):
            says = entry["says"].format(value=int(value), most=int(most))
            yield from _say(given.one, entry["option"], "", release, says=says, instead=f"write {int(most)} or less")
    for entry in data["draft_ranks"]:
        value, ranks = _number(given.value(entry["option"]) or ""), given.one.number(TARGET) or 1
        is_told = TARGET in given.one.options or given.is_whole
        if value is not None and value > 1 and value != ranks and is_told and holds(entry, told):
            says = f"speculative_draft_tensor_parallel_size={int(value)} cannot be other value than 1 or {ranks}"
            yield from _say(given.one, entry["option"], "", release, says=says, instead=f"write 1 or {ranks}")


def _no_experts(one: ServedModel, told: VllmRelease | None, release: str) -> Iterator[Draft]:
    """``--enable-expert-parallel`` for a published model that has no experts."""
    if (
        not one.is_on(EXPERTS)
        or not one.weights
        or "hf_overrides" in one.options
        or not holds({"since": "0.8.0"}, told)
    ):
        return
    model, known = published_model(one.weights), named_model(one.weights)
    is_dense = known is not None and known.architecture in rule_data(FAMILY)["dense"].split()
    if is_dense and model is not None and model.official:
        yield from _say(one, EXPERTS, "experts", release, model=one.weights)


def _say(one: ServedModel, at: str, form: str, release: str, **known: Any) -> Iterator[Draft]:
    option = at if at in one.options else at.partition(".")[0]
    place, flag = one.place(option), one.flag(option)
    known = {"tool": one.tool, "flag": flag, **known}
    yield from drafts(release, RULE, place, form=form, invocation=one.invocation, file=one.file, **known)


def _fits(given: GivenOptions, entry: Entry) -> bool:
    if "call" in entry and given.one.tool != entry["call"]:
        return False
    if not all(given.holds(name, condition) for name, condition in entry["when"].items()):
        return False
    without = entry.get("without", {})
    if not without:
        return True
    of_object = all("." in name for name in without)  # an object shows all of its settings itself
    return (of_object or given.is_whole) and not any(given.may_hold(name, one) for name, one in without.items())


def holds(entry: Entry, told: VllmRelease | None) -> bool:
    """True where the release of the text, or today's, refuses it."""
    facts = vllm_facts()
    place = (told or facts.newest).place
    first, last = facts.release(entry["since"]), facts.release(entry["until"]) if "until" in entry else None
    return first is not None and first.place <= place and (last is None or place < last.place)


def _variables(document: Document) -> Mapping[str, str]:
    """The variables that the text sets to one value alone."""
    found: dict[str, set[str]] = {}
    for one in settings(document):
        found.setdefault(one.name, set()).add(one.value.strip("\"'"))
    return {name: next(iter(values)) for name, values in found.items() if len(values) == 1}


@cache
def _settings(text: str) -> Mapping[str, Any]:
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def _number(text: str) -> float | None:
    try:
        return float(text) if text[-1:].isdecimal() else None
    except ValueError:
        return None
