"""Values that vLLM takes by name, release by release: of options that plugins may add to, and of variables."""

from collections.abc import Iterator, Mapping
from difflib import get_close_matches
from functools import cache
from typing import Any

from trtllm_check.lint.document import Document
from trtllm_check.lint.finding import Draft, Edit, Platform, Put, drafts, rule_data
from trtllm_check.lint.rules.names import is_open
from trtllm_check.lint.rules.near_names import is_slip
from trtllm_check.lint.rules.served import LMI, VLLM, served
from trtllm_check.lint.rules.settings import NamedValue, settings
from trtllm_check.lint.rules.vllm_table import absence, release_for
from trtllm_check.lint.shell.words import Word
from trtllm_check.releases.vllm import Changes, VllmRelease, choices, in_words, options_of, vllm_facts

FAMILY = "vllm_named"
RULE = "vllm-named-value"
OPTIONS = ("quantization", "load_format", "tokenizer_mode", "attention_backend", "kv_cache_dtype")
VARIABLES = {"VLLM_ATTENTION_BACKEND": "attention_backend"}  # whose values are those of an option
SWITCH, DECIMAL = "switch", "decimal"
KINDS = {"whole": "a whole number", SWITCH: "0 or 1", DECIMAL: "a number"}
NEAR = 0.86
MOST = 12  # values that a message lists


def check(document: Document, platform: Platform) -> Iterator[Draft]:
    """All drafts of the family."""
    release = platform.release.name
    for one in served(document):
        if one.engine != VLLM or one.tool == LMI:
            continue
        told = release_for(document, one.invocation)
        for option in OPTIONS:
            word = one.options.get(option)
            if word is None or _is_said_elsewhere(option, word.text, told, is_command=one.invocation is not None):
                continue
            flag = one.flag(option)
            for form, known in _wrong(option, word.text, told):
                is_flag = flag.startswith("-") and one.invocation is not None
                edits: tuple[Edit, ...] = (Put(flag, known["instead"]),) if is_flag and known["instead"] else ()
                about: dict[str, Any] = {"tool": one.tool, "name": flag, "value": word.text, **known}
                about["instead"] = known["instead"] or "one of them"
                yield from drafts(
                    release, RULE, word, form=form, edits=edits, invocation=one.invocation, file=one.file, **about
                )
    said: set[tuple[str, Word]] = set()
    for setting in settings(document):
        if (setting.file, setting.place) not in said:
            said.add((setting.file, setting.place))
            yield from _variable(setting, document, release)


def _is_said_elsewhere(option: str, value: str, told: VllmRelease | None, *, is_command: bool) -> bool:
    """True for what is open, and for what the rules on choices and on other programs' names speak of."""
    if is_open(value) or value in ("None", "none") or "." in value or "/" in value:
        return True
    if value.lower() in {str(one) for one in rule_data("vllm_values")["wrong"].get(option, {})}:
        return True
    changes = options_of("serve").get(option.replace("_", "-"))
    kind = changes.at((told or vllm_facts().newest).place) if changes else ""
    return is_command and bool(choices(kind))


def _wrong(option: str, value: str, told: VllmRelease | None) -> Iterator[tuple[str, dict[str, str]]]:
    """The form of the rule and what it tells; nothing for what the release has, or nobody can tell."""
    table = vllm_facts().table("values", option)
    here = _known(table, told)
    if not here:  # before the first release whose values were read
        here, told = list(table), None
    same = {_plain(name): name for name in table}
    changes = table.get(value) or table.get({name.lower(): name for name in table}.get(value.lower(), ""))
    listed = ", ".join(sorted(here)[:MOST]) + (" ..." if len(here) > MOST else "")
    if changes is None:
        meant = same.get(_plain(value), "")
        close = [meant] if meant and meant.lower() != value.lower() else get_close_matches(value, here, 1, NEAR)
        close = close or [name for name in here if is_slip(value, name)][:1]
        if close and close[0].lower() != value.lower():
            yield "", {"instead": close[0], "listed": listed}
        return
    lacking = absence(changes, told) if told is not None else None
    if lacking is not None and told is not None:
        yield "of a release", {"instead": "", "listed": listed, "version": told.written, "has": in_words(changes)}


def _known(table: Mapping[str, Changes], told: VllmRelease | None) -> list[str]:
    """The values of a release; none for one before those whose values were read."""
    place = (told or vllm_facts().newest).place
    return [name for name, changes in table.items() if changes.at(place)]


def _plain(name: str) -> str:
    return name.replace("-", "").replace("_", "").lower()


def _variable(setting: NamedValue, document: Document, release: str) -> Iterator[Draft]:
    """``VLLM_ATTENTION_BACKEND=FLASHINFR``, ``NCCL_DEBUG=INFOO``."""
    name, value = setting.name, setting.value.strip("\"'")
    others = rule_data(FAMILY)["variables"]
    if not value or is_open(value) or "$" in value:
        return
    if name in others:
        words = others[name].split()
        close = [] if value.upper() in words else get_close_matches(value.upper(), words, 1, NEAR)
        found = [("variable", {"instead": close[0], "listed": ", ".join(words)})] if close else []
    elif name.startswith("VLLM_") and (kind := _numbers().get(name)):
        yield from _no_number(setting, kind, value, release_for(document, None), release)
        return
    elif name.startswith("VLLM_"):
        told, option = release_for(document, None), VARIABLES.get(name, name)
        is_read = option != name or bool(_known(vllm_facts().table("values", name), told))
        found = list(_wrong(option, value, told)) if is_read else []
        if is_read and not found and told is not None and option == name and not _is_any(name, value):
            listed = ", ".join(sorted(_known(vllm_facts().table("values", name), told)))
            found = [("", {"instead": "", "listed": listed})]  # env_with_choices refuses it
    else:
        return
    for form, known in found:
        about = {"tool": "the program", "name": name, "value": value, **known}
        about["instead"] = known["instead"] or "one of them"
        yield from drafts(release, RULE, setting.place, form=form, file=setting.file, **about)


def _is_any(name: str, value: str) -> bool:
    return value.lower() in {one.lower() for one in vllm_facts().table("values", name)}


@cache
def _numbers() -> Mapping[str, str]:
    return {name: kind for kind, names in rule_data(FAMILY)["numbers"].items() for name in names.split()}


def _no_number(setting: NamedValue, kind: str, value: str, told: VllmRelease | None, release: str) -> Iterator[Draft]:
    """``VLLM_USE_V1=true``, ``VLLM_RPC_TIMEOUT=60s``."""
    changes = vllm_facts().table("names", "variables").get(setting.name)
    is_there = changes is not None and bool(changes.at((told or vllm_facts().newest).place))
    if told is not None and not is_there:
        return
    try:
        float(value) if kind == DECIMAL else int(value)
    except ValueError:
        instead = "0 or 1" if kind == SWITCH else "the number alone"
        known: dict[str, Any] = {"name": setting.name, "value": value, "instead": instead, "listed": KINDS[kind]}
        function = "float" if kind == DECIMAL else "int"
        for draft in drafts(release, RULE, setting.place, form="number", file=setting.file, function=function, **known):
            at_start = setting.name in rule_data(FAMILY)["read_at_start"].split()
            yield draft if at_start and is_there else draft._replace(severity="warning")
