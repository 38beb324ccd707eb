"""The Python APIs of TensorRT-LLM and vLLM: arguments that no version takes, or the release no longer."""

import re
from collections.abc import Iterator
from typing import Any

from trtllm_check.flows.options import check_options, have, option_releases
from trtllm_check.lint.carriers.python_calls import Call
from trtllm_check.lint.carriers.used_names import asks_version
from trtllm_check.lint.document import Document
from trtllm_check.lint.finding import Draft, Platform, drafts, rule_data
from trtllm_check.lint.rules.llm_options import draft_options
from trtllm_check.lint.rules.python_names import Told, told_version
from trtllm_check.lint.rules.vllm import argument_changes, engine_arguments
from trtllm_check.lint.rules.vllm_table import absence, instead_of, release_for
from trtllm_check.lint.shell.words import Word
from trtllm_check.lint.supposing import supposed
from trtllm_check.lint.vllm_release import is_of_a_month
from trtllm_check.releases.nearest import nearest
from trtllm_check.releases.python_names import NameVerdict, PythonPackage, python_package
from trtllm_check.releases.vllm import vllm_facts

FAMILY = "calls"
OURS = "tensorrt_llm"
OPTION = re.compile(r"--(?P<name>[\w.-]+)")
NEAR = 0.8
SHORT_TYPES = {"fp16": "float16", "bf16": "bfloat16", "fp32": "float32", "half": "float16"}
QUANTIZED_TYPES = {
    "fp8": "FP8",
    "float8": "FP8",
    "int8": "W8A16",
    "int4": "W4A16",
    "nvfp4": "NVFP4",
    "fp4": "NVFP4",
    "float8_e4m3fn": "FP8",
    "fp8_e4m3": "FP8",
    "e4m3": "FP8",
    "w8a8": "W8A8_SQ_PER_CHANNEL",
    "w4a16": "W4A16",
    "int4_awq": "W4A16_AWQ",
    "awq": "W4A16_AWQ",
    "w4a16_awq": "W4A16_AWQ",
    "gptq": "W4A16_GPTQ",
    "int4_gptq": "W4A16_GPTQ",
    "int8_sq": "W8A8_SQ_PER_CHANNEL",
    "w4a8_awq": "W4A8_AWQ",
    "mxfp4": "W4A8_MXFP4_FP8",
}
PASSED_ON = {"LLM": "EngineArgs"}  # who gets the keywords that a call does not take
NESTED = {"KvCacheConfig": "kv_cache_config", "CudaGraphConfig": "cuda_graph_config", "MoeConfig": "moe_config"}


def check(document: Document, platform: Platform) -> Iterator[Draft]:
    """Every argument that is none."""
    for call in document.calls:
        if call.tried:
            continue
        api = rule_data(FAMILY).get(call.api, {"takes": ()})
        if call.name in NESTED and call.api == OURS:
            yield from _options(call, platform)
        if call.api == OURS and call.name in rule_data(FAMILY)[OURS]["meant_of"]:
            yield from _of_another_engine(call, platform)
        if call.name == "LLM" and call.api == OURS:
            yield from _quantized_type(call, platform.release.name)
        known = _takes(api, call) if call.name in api["takes"] else None
        for word in call.arguments:
            if word.text.startswith("_"):
                continue  # of the package's own use, which no table names
            if known is not None and word.text not in known:
                yield from _unknown(call, word, api, known, platform)
                continue
            if word.text in api.get("meant_of", {}).get(call.name, ()):
                continue  # _of_another_engine says it
            found = list(_gone(call, word, api.get("gone", {}), platform)) if known is not None else []
            if known is not None and call.api == "vllm":
                found += _left(call, word, document, platform)
            yield from found or _by_release(call, word, document, platform)
        if known is not None and call.api == OURS and "." not in call.name:
            yield from _fields(call, known, api, platform)


def _fields(call: Call, known: set[str], api: dict[str, Any], platform: Platform) -> Iterator[Draft]:
    """``build_config.precision = "fp8"``: a field that the class has in no version."""
    meant = {**api["means"].get(call.name, {}), **api["meant_of"].get(call.name, {})}
    for word in call.later:
        if word.text in known or word.text.startswith("_"):
            continue
        close = meant.get(word.text) or nearest(word.text, frozenset(known), NEAR)
        for draft in drafts(
            platform.release.name,
            "python-argument",
            word,
            form="no field",
            file=call.file,
            call=call.name,
            name=word.text,
            instead=f"write {close}" if close else f"leave {word.text} out",
        ):
            yield draft._replace(source=api["source"])


def _options(call: Call, platform: Platform) -> Iterator[Draft]:
    """A class that is also a part of the options' YAML."""
    release = platform.release.name
    if release in option_releases():
        for word in call.arguments:
            if word.text in rule_data(FAMILY)[OURS]["meant_of"].get(call.name, ()):
                continue
            for problem in check_options(f"{NESTED[call.name]}:\n  {word.text}: null\n", release):
                if problem.option.endswith(f".{word.text}"):
                    yield from draft_options(problem, release, word, call.file, certain=False)


def _of_another_engine(call: Call, platform: Platform) -> Iterator[Draft]:
    """``LLM(tp_size=4, gpu_memory_utilization=0.9)``: keywords of vLLM or of a command, which no release takes here."""
    meant = rule_data(FAMILY)[OURS]["meant_of"][call.name]
    for word in call.arguments:
        if word.text in meant and platform.release.name not in have(word.text, NESTED.get(call.name, "")):
            for draft in drafts(
                platform.release.name,
                "python-argument",
                word,
                form="of another",
                file=call.file,
                call=call.name,
                name=word.text,
                instead=f"write {meant[word.text]}",
            ):
                yield draft._replace(source=rule_data(FAMILY)[OURS]["source"])


def _quantized_type(call: Call, release: str) -> Iterator[Draft]:
    """``LLM(dtype="fp8")``: the type of the activations, which no quantization is."""
    word = dict(call.values).get("dtype")
    if word is not None and word.text in SHORT_TYPES:
        right = SHORT_TYPES[word.text]
        yield from drafts(
            release, "python-argument", word, form="short type", file=call.file, value=word.text, right=right
        )
    if word is not None and word.text.lower() in QUANTIZED_TYPES:
        known: dict[str, Any] = {"value": word.text, "algorithm": QUANTIZED_TYPES[word.text.lower()]}
        yield from drafts(release, "python-argument", word, form="quantized type", file=call.file, **known)


def _by_release(call: Call, word: Word, document: Document, platform: Platform) -> Iterator[Draft]:
    """A keyword that the told release does not take, or no longer today, by the tables of names."""
    package = python_package(call.api)
    if call.api == "vllm" and is_of_a_month(document) and release_for(document, None) is None:
        return
    if package is None or any(asks_version(text, call.api) for file, text in document.texts if file == call.file):
        return
    told = told_version(document, call.api, package, platform)
    verdict = None if told.many else _keyword(package, call, word.text, told)
    is_known = bool(package.near_releases(told.version))
    if verdict is None or (verdict.kind in ("later", "absent") and not is_known):
        return
    never = "never" if verdict.near else "never at all"
    form = never if verdict.kind == "never" else verdict.kind if is_known else "gone today"
    for draft in drafts(
        platform.release.name,
        "python-keyword",
        word,
        form=form,
        file=call.file,
        call=call.name,
        name=word.text,
        version=told.version,
        since=verdict.since,
        last=verdict.last,
        near=verdict.near,
        do=f"leave {word.text} out",
    ):
        yield draft._replace(source=package.source)


def _keyword(package: PythonPackage, call: Call, name: str, told: Told) -> NameVerdict | None:
    own = package.judge_keyword(call.name, name, told.version, PASSED_ON.get(call.name, ""))
    closed = call.name in rule_data(FAMILY).get(call.api, {}).get("closed", ())
    is_certain = own is not None and (own.kind != "never" or own.near or closed)
    return own if is_certain else None


def _takes(api: dict[str, Any], call: Call) -> set[str]:
    own = set(api["takes"][call.name].split())
    if call.api == "vllm":
        own |= {*vllm_facts().table("names", call.name)}
    return own | engine_arguments() if call.name in api.get("engine", ()) else own


def _unknown(call: Call, word: Word, api: dict[str, Any], known: set[str], platform: Platform) -> Iterator[Draft]:
    meant = api["means"].get(call.name, {}).get(word.text, "")
    close = nearest(word.text, frozenset(known), NEAR)
    instead = f"write {meant or close}" if meant or close else f"leave {word.text} out"
    for draft in drafts(
        platform.release.name,
        "python-argument",
        word,
        form="" if meant or close else "not certain",
        file=call.file,
        call=call.name,
        name=word.text,
        instead=instead,
    ):
        yield draft._replace(source=api["source"])


def _gone(call: Call, word: Word, gone: dict[str, Any], platform: Platform) -> Iterator[Draft]:
    """One that earlier releases took: a warning where nobody says which release is meant."""
    from packaging.version import Version

    instead = gone.get(call.name, {}).get(word.text, "")
    is_asked = call.api == OURS and bool(supposed(OURS))  # with another release than today's
    if not instead or (not is_asked and Version(platform.release.name) < Version(gone["since"])):
        return
    yield from drafts(
        platform.release.name,
        "python-argument",
        word,
        form="gone, perhaps" if platform.guessed or is_asked else "gone",
        file=call.file,
        call=call.name,
        name=word.text,
        since=gone["since"],
        instead=instead,
    )


def _left(call: Call, word: Word, document: Document, platform: Platform) -> Iterator[Draft]:
    """One that the release of vLLM has not: an error where the text tells it, a warning where today's is meant."""
    told = release_for(document, None)
    if call.name == "SamplingParams":
        changes, section = vllm_facts().table("names", "SamplingParams").get(word.text), "python"
    else:
        changes, section = argument_changes(word.text), "options"
    lacking = absence(changes, told) if changes else None
    if lacking is None or (told is None and (not lacking.gone or is_of_a_month(document))):
        return
    name = word.text.replace("_", "-") if section == "options" else word.text
    yield from drafts(
        platform.release.name,
        "python-argument",
        word,
        form="not yet in vLLM" if not lacking.gone else "gone from vLLM" if told else "gone from vLLM, perhaps",
        file=call.file,
        call=call.name,
        name=word.text,
        since=lacking.edge,
        version=told.written if told else "",
        instead=_in_python(instead_of(section, name)) if lacking.gone else "leave it out, or take that release",
    )


def _in_python(instead: str) -> str:
    """``write max_loras`` for ``write --max-loras``."""
    return OPTION.sub(lambda match: match["name"].replace("-", "_"), instead)
