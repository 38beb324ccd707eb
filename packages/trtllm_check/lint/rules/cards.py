"""What a GPU of the text is too old for: ways of quantization, a KV cache in FP8, checkpoints in FP8 and FP4."""

import re
from collections.abc import Iterator
from typing import Any

from trtllm_check.lint.document import Document
from trtllm_check.lint.finding import Draft, Edit, Platform, Put, drafts, rule_data
from trtllm_check.lint.gpu_labels import gpu_told
from trtllm_check.lint.machines import capability
from trtllm_check.lint.rules.served import MAKERS, TENSORRT_LLM, VLLM, ServedModel, served
from trtllm_check.lint.rules.vllm_refusals import holds
from trtllm_check.lint.rules.vllm_table import release_for
from trtllm_check.lint.shell.words import Word
from trtllm_check.releases.vllm import vllm_facts

FAMILY = "cards"
RULE = "card-too-old"
CACHE, METHOD = "kv_cache_dtype", "quantization"
E4M3 = ("fp8", "fp8_e4m3")
OTHERWISE = re.compile(r"FLASHINFER|FLASH_?INFER|XFORMERS", re.IGNORECASE)
OURS = ("trtllm-serve", "trtllm-bench", "LLM")


def check(document: Document, platform: Platform) -> Iterator[Draft]:
    """All drafts of the family."""
    starts = [
        one
        for one in served(document)
        if one.engine in (VLLM, TENSORRT_LLM) and one.tool not in MAKERS and not one.is_part
    ]
    machine = gpu_told(document) if starts else None
    here = capability(machine) if machine is not None else 0
    if machine is None or not here:
        return
    card = machine.name or machine.gpu or machine.instance
    for one in starts:
        if one.engine == VLLM:
            yield from _method(document, one, here, card, platform.release.name)
            yield from _cache(document, one, here, card, platform.release.name)
        elif one.tool in OURS:
            yield from _checkpoint(one, here, card, platform.release.name)


def _method(document: Document, one: ServedModel, here: int, card: str, release: str) -> Iterator[Draft]:
    """A way of quantization that no release has for such a card, asked for or told by the checkpoint's name."""
    data = rule_data(FAMILY)
    word = one.options.get(METHOD)
    method = word.text.lower() if word is not None else ""
    place = one.place(METHOD if word is not None else "model")
    if not method:
        marks = [name for pattern, name in data["by_name"].items() if re.search(pattern, one.weights, re.IGNORECASE)]
        method = marks[0] if len(marks) == 1 else ""
    least = data["methods"].get(method, 0)
    told = release_for(document, one.invocation) if word is not None else None
    spans = (entry for entry in data["earlier"] if told is not None and entry["method"] == method)
    least = next((int(entry["least"]) for entry in spans if holds(entry, told)), least)
    if here < least:
        known: dict[str, Any] = {"method": method, "least": _written(least)}
        yield from _say(one, "method", place, here, card, release, **known)


def _cache(document: Document, one: ServedModel, here: int, card: str, release: str) -> Iterator[Draft]:
    """FP8 of the kind E4M3 in the cache, for which the kernels of the engine need Ada or Hopper."""
    word, data = one.options.get(CACHE), rule_data(FAMILY)
    if word is None or word.text not in E4M3 or here >= data["e4m3"]["least"]:
        return
    told, first = release_for(document, one.invocation), vllm_facts().release(data["e4m3"]["since"])
    if told is not None and first is not None and told.place < first.place:
        return
    if any(OTHERWISE.search(text) for _, text in document.texts):
        return
    flag = one.flag(CACHE)
    edits: tuple[Edit, ...] = (Put(flag, "auto"),) if one.invocation is not None and flag.startswith("-") else ()
    yield from _say(one, "cache", word, here, card, release, edits=edits, value=word.text, flag=flag)


def _checkpoint(one: ServedModel, here: int, card: str, release: str) -> Iterator[Draft]:
    """A checkpoint of ModelOpt whose format begins with a later generation of GPUs."""
    for kind, entry in rule_data(FAMILY)["checkpoints"].items():
        if here < entry["least"] and re.search(entry["name"], one.weights, re.IGNORECASE):
            known: dict[str, Any] = {"kind": kind, "first": entry["first"]}
            yield from _say(one, "checkpoint", one.place("model"), here, card, release, **known)
            return


def _written(capability_: int) -> str:
    return f"{capability_ // 10}.{capability_ % 10}"


def _say(
    one: ServedModel,
    form: str,
    place: Word,
    here: int,
    card: str,
    release: str,
    *,
    edits: tuple[Edit, ...] = (),
    **known: Any,
) -> Iterator[Draft]:
    yield from drafts(
        release,
        RULE,
        place,
        form=form,
        edits=edits,
        invocation=one.invocation,
        file=one.file,
        tool=one.tool,
        model=one.weights,
        card=card,
        here=_written(here),
        **known,
    )
