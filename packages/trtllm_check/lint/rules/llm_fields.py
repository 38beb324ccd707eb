"""Fields of the LLM API's classes that it refuses by their values, or beside each other: in YAML and in Python.

Names that no class has are the matter of :mod:`trtllm_check.lint.rules.llm_options` and of ``calls``.
"""

import json
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

from serving_base.errors import NotYaml
from trtllm_check.flows.options import UNKNOWN, option_releases, written_options
from trtllm_check.lint.carriers.python_calls import Call
from trtllm_check.lint.document import ConfigFile, Document
from trtllm_check.lint.finding import Draft, Platform, drafts, rule_data
from trtllm_check.lint.rules.llm_options import READERS, option_place
from trtllm_check.lint.rules.serving import ENGINE_BACKENDS
from trtllm_check.lint.shell.words import Word
from trtllm_check.releases.load import in_range

FAMILY = "llm_fields"
RULE = "llm-field-refused"
OURS, TOP, SPECULATION, PLUGINS = "tensorrt_llm", "LLM", "speculative_config", "plugin_config"
SCHEDULE, LENGTH = "draft_len_schedule", "max_draft_len"
SCHEDULE_SINCE = "1.3.0rc1"
ENGINES = "_tensorrt_engine"  # the module whose LLM builds engines
LIST = re.compile(r"\[-?\d+(?:, -?\d+)*\]")
LISTED = 128  # sizes up to here are in every version's list alike


class FieldsGiven(NamedTuple):
    """What is given to one object of a class: ``values`` by name, as far as they are told, and where a name stands.

    ``is_open``: more may come from elsewhere; ``is_yaml``: what llm_options.py and speculative.py look into, too.
    """

    name: str
    values: Mapping[str, Any]
    at: Callable[[str], Word]
    whole: Word
    file: str
    is_open: bool = False
    is_yaml: bool = False


def check(document: Document, platform: Platform) -> Iterator[Draft]:
    """All drafts of the family."""
    release = platform.release.name
    of_engines = any(one.value("--backend") in ENGINE_BACKENDS for one in document.of(*READERS))
    if release in option_releases() and not of_engines:
        for file in document.option_files:
            for fields in () if file.places else _of_yaml(file):
                yield from _judge(fields, platform)
                yield from _engines_only(fields, release)
    engines = {file for file, text in document.texts if ENGINES in text}
    named = {one.file for one in document.calls if one.api == OURS and one.name == TOP}
    torch = named - engines
    for call in document.calls:
        if call.api == OURS and not call.tried:
            fields = _of_call(call)
            yield from _judge(fields, platform)
            yield from _plugins(fields, release) if call.name == PLUGINS else ()
            if call.file in engines and call.file not in named:
                yield from _type_of_cache(fields, release)
            for draft in _engines_only(fields, release) if call.file in torch else ():
                yield draft._replace(severity="warning") if platform.guessed else draft


def _of_yaml(file: ConfigFile) -> Iterator[FieldsGiven]:
    """The options at the top, and those below the options that have a class."""
    try:
        written = written_options(file.text)
    except NotYaml:
        return
    facts = rule_data(FAMILY)
    below = {option: (name, written.get(option)) for option, name in facts["classes"].items()}
    speculation = written.get(SPECULATION)
    if isinstance(speculation, dict):
        below[SPECULATION] = (facts["kinds"].get(speculation.get("decoding_type"), ""), speculation)
    for option, (name, inner) in {"": (TOP, written), **below}.items():
        if not name or not isinstance(inner, dict):
            continue
        prefix = f"{option}." if option else ""

        def at(field: str, prefix: str = prefix) -> Word:
            return option_place(file, f"{prefix}{field}")

        values = {str(field): value for field, value in inner.items()}
        whole = option_place(file, option) if option else Word("", file.line, 1)
        yield FieldsGiven(name, values, at, whole, file.path, is_yaml=True)


def _of_call(call: Call) -> FieldsGiven:
    """What is told of a call's arguments; a value that the code does not tell is there, and unknown."""
    places = {word.text: word for word in call.arguments}
    told = {name: _value(word.text) for name, word in call.values if name in places}
    values = {**dict.fromkeys(places, "$"), **told}
    whole = next(iter(call.arguments), Word("", 1, 1))
    at = {**places, **dict(call.values)}
    return FieldsGiven(
        call.name, values, lambda name: at.get(name, whole), whole, call.file, call.is_open or not places
    )


def _is_off(value: Any) -> bool:
    return value is None or value is False or value == ""


def _value(text: str) -> Any:
    if text in ("True", "False"):
        return text == "True"
    if text.startswith("[") and text.endswith("]"):
        return [int(one) for one in text[1:-1].split(",")] if LIST.fullmatch(text) else text
    try:
        return float(text) if "." in text else int(text)
    except ValueError:
        return text


def _judge(fields: FieldsGiven, platform: Platform) -> Iterator[Draft]:
    facts, release = rule_data(FAMILY), platform.release.name
    for field, bound in facts["bounds"].get(fields.name, {}).items():
        yield from _bound(fields, field, bound, release)
    for field, word in facts["words"].get(fields.name, {}).items():
        yield from _word(fields, field, word, release)
    for pair in facts["needs"]:
        said = fields.is_yaml and pair.get("said")
        if pair["class"] == fields.name and in_range(release, pair["since"], "") and not fields.is_open and not said:
            field = pair.get("field", "")
            lacks = all(_is_off(fields.values.get(name)) for name in pair["needs"])
            if lacks and (not field or not _is_off(fields.values.get(field))):
                place = fields.at(field) if field else fields.whole
                yield from _say(fields, place, release, "needs", missing=pair["needs"][0], says=pair["says"])
    for pair in facts["excludes"]:
        if pair["class"] == fields.name and in_range(release, pair["since"], ""):
            given = [fields.values.get(name) for name in (pair["field"], *([pair["other"]] if "other" in pair else []))]
            if not any(map(_is_off, given)):
                yield from _say(
                    fields, fields.at(pair["field"]), release, "pair", name=pair["field"], says=pair["says"]
                )
    if in_range(release, SCHEDULE_SINCE, ""):
        yield from _schedule(fields, release)
    if fields.name == "CudaGraphConfig" and in_range(release, facts["same_list"]["since"], ""):
        whole = not platform.guessed and in_range(release, **facts["same_list"])
        yield from _graphs(fields, release, whole=whole)


def _say(fields: FieldsGiven, place: Word, release: str, form: str, **known: Any) -> Iterator[Draft]:
    yield from drafts(release, RULE, place, form=form, file=fields.file, owner=fields.name, **known)


def _bound(fields: FieldsGiven, field: str, bound: Mapping[str, Any], release: str) -> Iterator[Draft]:
    """A number, or one of a list, outside of what the class takes."""
    value = fields.values.get(field)
    beside = bound.get("with")
    if not in_range(release, bound["since"], "") or (beside and _is_off(fields.values.get(beside))):
        return
    numbers = value if isinstance(value, list) else [value]
    for number in numbers:
        if isinstance(number, bool) or not isinstance(number, int | float):
            continue
        if not bound["least"] <= number <= bound.get("most", number):
            most = f" and at most {bound['most']}" if "most" in bound else ""
            wanted = f"at least {bound['least']}{most}"
            yield from _say(fields, fields.at(field), release, "", name=field, value=number, wanted=wanted)
            return


def _word(fields: FieldsGiven, field: str, word: Mapping[str, Any], release: str) -> Iterator[Draft]:
    value = fields.values.get(field)
    if not isinstance(value, str) or UNKNOWN.search(value) or "$" in value:
        return
    meant = value.lower() if word.get("any_case") else value
    if meant not in word["takes"] and in_range(release, word["since"], word.get("until", "")):
        wanted = "one of " + ", ".join(word["takes"])
        yield from _say(fields, fields.at(field), release, "", name=field, value=json.dumps(value), wanted=wanted)


def _schedule(fields: FieldsGiven, release: str) -> Iterator[Draft]:
    """``draft_len_schedule`` begins with a batch of one, at max_draft_len."""
    schedule, longest = fields.values.get(SCHEDULE), fields.values.get(LENGTH)
    if not isinstance(schedule, dict) or not schedule:
        return
    first = schedule.get(1, schedule.get("1"))
    if first is None:
        says = "draft_len_schedule must include batch_size=1"
    elif isinstance(longest, int) and first != longest:
        says = "draft_len_schedule[1] must equal max_draft_len for consistency"
    else:
        return
    yield from _say(fields, fields.at(SCHEDULE), release, "pair", name=SCHEDULE, says=says)


def _graphs(fields: FieldsGiven, release: str, *, whole: bool) -> Iterator[Draft]:
    """Both ``batch_sizes`` and ``max_batch_size``; ``whole``: one has to be the list that the other gives."""
    sizes, most = fields.values.get("batch_sizes"), fields.values.get("max_batch_size")
    if not isinstance(sizes, list) or not sizes or not isinstance(most, int) or most < 1:
        return
    largest, padded = max(map(_size, sizes)), fields.values.get("enable_padding") is True
    made = [1, 2, 4, *range(8, LISTED + 1, 8)] if padded else [*range(1, 33), 64, LISTED]
    wanted = {*(size for size in made if size <= most), *([most] if most <= LISTED else [])}
    differs = largest == most and whole and {size for size in sizes if _size(size) <= LISTED} != wanted
    if differs or (largest != most and not fields.is_yaml):
        says = "Please don't set both cuda_graph_config.batch_sizes and cuda_graph_config.max_batch_size"
        yield from _say(fields, fields.at("max_batch_size"), release, "pair", name="max_batch_size", says=says)


def _size(value: Any) -> int:
    return value if isinstance(value, int) else 0


def _type_of_cache(fields: FieldsGiven, release: str) -> Iterator[Draft]:
    """``KvCacheConfig(dtype="fp8")`` for an engine, whose checkpoint says the type."""
    only = rule_data(FAMILY)["auto_only"]
    kind = fields.values.get("dtype", "auto")
    if fields.name == "KvCacheConfig" and kind not in ("auto", "$") and in_range(release, **only):
        says = "KvCacheConfig.dtype is not supported by the TensorRT backend"
        yield from _say(fields, fields.at("dtype"), release, "pair", name="dtype", says=says)


def _plugins(fields: FieldsGiven, release: str) -> Iterator[Draft]:
    """``plugin_config.gemm_plugin = True`` and ``plugin_config.use_paged_context_fmha = "enable"``."""
    facts = rule_data(FAMILY)["plugins"]
    if not in_range(release, facts["since"], facts["until"]):
        return
    for name, value in fields.values.items():
        if name in facts["switches"] and not isinstance(value, bool):
            wanted = "True or False"
        elif name in facts["types"] and value not in (takes := [*facts["takes"], *facts["also"].get(name, ())]):
            wanted = f"one of {', '.join(takes)} or None"
        else:
            continue
        yield from _say(fields, fields.whole, release, "", name=name, value=json.dumps(value), wanted=wanted)


def _engines_only(fields: FieldsGiven, release: str) -> Iterator[Draft]:
    """A way of speculation that only engines have, asked of the PyTorch backend."""
    only = rule_data(FAMILY)["engines_only"]
    if fields.name in only["classes"] and in_range(release, only["since"], ""):
        kind = fields.name.removesuffix("DecodingConfig")
        yield from _say(fields, fields.whole, release, "backend", kind=kind)
