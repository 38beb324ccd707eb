"""Values of an LMI container that its front end cannot read, or that the vLLM of its version does not take."""

import re
from collections.abc import Iterator, Mapping
from difflib import get_close_matches
from typing import Any, NamedTuple

from trtllm_check.lint.document import Document
from trtllm_check.lint.finding import Draft, Platform, drafts, rule_data
from trtllm_check.lint.rules.lmi_keys import NAMED, OLD_ENGINES
from trtllm_check.lint.rules.lmi_pairs import SETTING
from trtllm_check.lint.rules.names import is_open
from trtllm_check.lint.shell.words import Word
from trtllm_check.releases.models import vllm_of_lmi
from trtllm_check.releases.sagemaker import numbers
from trtllm_check.releases.vllm import choices, options_of, vllm_facts

FAMILY, RULE = "lmi_values", "lmi-value"
VLLM_BATCHES = ("vllm", "lmi-dist")
OPEN_BATCHES = ("", "auto", "disable")
OPTION, VARIABLE = "option.", "OPTION_"
WORKERS = ("", "gpu.", "cpu.")
JUDGED_FROM = "0.28.0"  # whose facts name the values of these keys
LISTED_UNTIL = "0.31.0"  # their option.quantize
OF_ANOTHER_HANDLER = "int8"  # a dtype of the one without a batch
RANKS = "max_lora_rank"
SAID_ELSEWHERE = (RANKS, "lora_dtype", "tokenizer_mode")  # where no release of vLLM takes the value: lmi_pairs.py


class LmiSettings(NamedTuple):
    """The settings of one container by their key, and the version of LMI and its kind where the text names them."""

    settings: Mapping[str, Word]
    written: Mapping[str, str]
    file: str
    version: str
    kind: str

    @property
    def batch(self) -> str:
        """vllm or lmi-dist; empty for another one, and where nothing tells."""
        batch = self.settings.get("option.rolling_batch")
        written = batch.text if batch is not None else ""
        if written == "disable" and numbers(self.version) < numbers("0.33.0"):
            return ""  # the handler of transformers
        if written in VLLM_BATCHES or written not in OPEN_BATCHES or self.kind != "lmi":
            return written if written in VLLM_BATCHES else ""
        return "lmi-dist" if numbers(self.version) < numbers("0.33.0") else "vllm"


def check(document: Document, platform: Platform) -> Iterator[Draft]:
    """All drafts of the family."""
    if not document.properties and not document.lmi_environment:
        return
    release = platform.release.name
    for one in _containers(document):
        yield from _whole_numbers(one, release)
        yield from _workers(one, release)
        if one.batch:
            yield from _quantize(one, release)
            yield from _dtype(one, release)
            yield from _passed_on(one, release)
            yield from _together(one, release)


def _together(one: LmiSettings, release: str) -> Iterator[Draft]:
    """Options that the container of the text's version refuses together."""
    if not one.version:
        return
    here = numbers(one.version)
    for entry in rule_data(FAMILY)["together"]:
        value = one.settings.get(entry["at"])
        if value is None or one.batch not in entry["batches"]:
            continue
        others = {
            name: one.settings[name].text.lower() if name in one.settings else "" for name in entry.get("when", ())
        }
        is_so = all(others[name] in values for name, values in entry.get("when", {}).items())
        fits = re.fullmatch(entry.get("form", ".*"), value.text) is not None
        if is_so and fits and numbers(entry["since"]) <= here <= numbers(entry["last"]):
            known: dict[str, Any] = {"where": f"LMI {one.version}", "says": entry["says"], "right": entry["fix"]}
            yield from drafts(release, RULE, value, form="together", file=one.file, **known)
    for entry in rule_data(FAMILY)["conflicts"]:
        ours, theirs = one.settings.get(entry["lmi"]), one.settings.get(entry["vllm"])
        if ours is None or theirs is None or ours.text == theirs.text or here < numbers(entry["since"]):
            continue
        if ours.text.isdecimal() and theirs.text.isdecimal():
            known = {"where": f"LMI {one.version}", "right": f"leave {entry['vllm']} out"}
            known["says"] = (
                f"Both the DJL {entry['lmi']} and vLLM {entry['vllm']} configs have been set with conflicting values"
            )
            yield from drafts(release, RULE, theirs, form="together", file=one.file, **known)


def _containers(document: Document) -> Iterator[LmiSettings]:
    version, kind = _image(document)
    for file in document.properties:
        found: dict[str, Word] = {}
        for match in SETTING.finditer(file.text):
            line = file.line_at(match.start("value"))
            found[match["key"]] = Word(match["value"].partition(" #")[0].rstrip(), line, 1)
        engine = found.get("engine")
        if engine is None or engine.text not in OLD_ENGINES:
            yield LmiSettings(found, {}, file.path, version, kind)
    variables = rule_data(FAMILY)["variables"]
    found, written = {}, {}
    for name, value in document.lmi_environment.items():
        key = variables.get(name) or (f"{OPTION}{name[len(VARIABLE) :].lower()}" if name.startswith(VARIABLE) else "")
        if key:
            found[key], written[key] = value, name
    if found:
        yield LmiSettings(found, written, "", version, kind)


def _image(document: Document) -> tuple[str, str]:
    """The version and the kind of the one image that the text names; empty for none and for several."""
    found = {(match["version"], match["kind"]) for _, text in document.texts for match in NAMED.finditer(text)}
    return found.pop() if len(found) == 1 else ("", "")


def _whole_numbers(one: LmiSettings, release: str) -> Iterator[Draft]:
    for key, least in rule_data(FAMILY)["whole"].items():
        value = one.settings.get(key)
        if value is None or not value.text or is_open(value.text) or "$" in value.text:
            continue
        known: dict[str, Any] = {"key": one.written.get(key, key), "value": value.text, "least": least}
        if not value.text.lstrip("-").isdecimal():
            form = "timeout" if key.startswith(OPTION) else "number"
            yield from drafts(release, RULE, value, form=form, file=one.file, **known)
        elif int(value.text) < least:
            form = "queue" if key == "job_queue_size" else "least"
            yield from drafts(release, RULE, value, form=form, file=one.file, **known)


def _workers(one: LmiSettings, release: str) -> Iterator[Draft]:
    for prefix in WORKERS:
        least, most = (one.settings.get(f"{prefix}{name}") for name in ("minWorkers", "maxWorkers"))
        if least and most and least.text.isdecimal() and most.text.isdecimal() and int(least.text) > int(most.text):
            known: dict[str, Any] = {"least": least.text, "most": most.text}
            yield from drafts(release, RULE, least, form="workers", file=one.file, **known)


def _is_judged(one: LmiSettings) -> bool:
    """True for an image whose facts name these values: lmi.py says it then."""
    return bool(one.version) and numbers(one.version) >= numbers(JUDGED_FROM)


def _quantize(one: LmiSettings, release: str) -> Iterator[Draft]:
    """An enumeration of the container's own; later the words of its vLLM."""
    is_listed = _is_judged(one) and numbers(one.version) < numbers(LISTED_UNTIL)  # by the image's facts
    value = None if is_listed else one.settings.get("option.quantize")
    if value is None or not value.text or is_open(value.text):
        return
    listed = tuple(rule_data(FAMILY)["quantize"].get(one.version, "").split())
    if not listed and one.version and numbers(one.version) < numbers("0.31.0"):
        return
    listed = listed or _of_vllm("quantization", one.version)
    beside = rule_data(FAMILY)["beside"]["quantize"].split() if listed else ()
    yield from _refused(one, "option.quantize", value, (*listed, *beside), release)


def _dtype(one: LmiSettings, release: str) -> Iterator[Draft]:
    value, listed = one.settings.get("option.dtype"), rule_data(FAMILY)["dtype"]
    if value is None or (_is_judged(one) and value.text != OF_ANOTHER_HANDLER):
        return
    fitting = [words for since, words in listed.items() if one.version and numbers(since) <= numbers(one.version)]
    words = (fitting[-1:] or [" ".join(listed.values())])[0].split()
    yield from _refused(one, "option.dtype", value, tuple(dict.fromkeys(words)), release)


def _passed_on(one: LmiSettings, release: str) -> Iterator[Draft]:
    data = rule_data(FAMILY)
    for name, since in data["passed_on"][one.batch].items():
        value = one.settings.get(f"{OPTION}{name}")
        if value is None or (one.version and numbers(one.version) < numbers(since)):
            continue
        listed = _ranks(one.version) if name == RANKS else _of_vllm(name.replace("_", "-"), one.version)
        if not listed or (name in SAID_ELSEWHERE and value.text not in _of_any_release(name)):
            continue
        beside = data["beside"].get(name, "").split()
        yield from _refused(one, f"{OPTION}{name}", value, (*listed, *beside), release)


def _ranks(version: str) -> tuple[str, ...]:
    """The ranks that the vLLM of a version takes, as its LoRAConfig checks them."""
    found = vllm_facts().release(vllm_of_lmi(version)) if version else None
    if found is None:
        return ()
    for entry in rule_data("vllm_pairs")["values"]:
        since, until = (vllm_facts().release(entry[name]) for name in ("since", "until"))
        if entry["option"] == RANKS and since and until and since.place <= found.place < until.place:
            return tuple(str(value) for value in entry["values"])
    return ()


def _of_vllm(option: str, version: str) -> tuple[str, ...]:
    """The words of an option in the vLLM of a version of LMI, or in any release where none is told."""
    changes = options_of("serve").get(option)
    if changes is None:
        return ()
    if version:
        found = vllm_facts().release(vllm_of_lmi(version))
        return choices(changes.at(found.place)) if found is not None else ()
    if any(not choices(kind) for kind in changes.kinds):
        return ()
    return tuple(dict.fromkeys(word for _, kind in changes.steps for word in choices(kind)))


def _of_any_release(name: str) -> frozenset[str]:
    steps = options_of("serve")[name.replace("_", "-")].steps
    return frozenset(word for _, kind in steps for word in choices(kind))


def _refused(one: LmiSettings, key: str, value: Word, listed: tuple[str, ...], release: str) -> Iterator[Draft]:
    text = value.text
    if not listed or not text or text in listed or text.lower() in listed or is_open(text) or "$" in text:
        return
    if text.lower() in ("none", "null"):
        return
    close = get_close_matches(text.lower(), listed, 1, 0.6)
    higher = [word for word in listed if word.isdecimal() and text.isdecimal() and int(word) >= int(text)]
    right = close[0] if close and not text.isdecimal() else (higher or [f"one of {', '.join(listed)}"])[0]
    known: dict[str, Any] = {
        "key": one.written.get(key, key),
        "value": text,
        "listed": ", ".join(listed),
        "right": right,
        "where": f"LMI {one.version}" if one.version else "LMI",
    }
    yield from drafts(release, RULE, value, form="word", file=one.file, **known)
