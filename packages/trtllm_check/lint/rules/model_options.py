"""Options of vLLM that want something of the model: Mistral's tokenizer, images, a draft of its family, adapters."""

import json
import re
from collections.abc import Iterator
from typing import Any

from serving_base.facts.published import published_model
from trtllm_check.lint.document import Document
from trtllm_check.lint.finding import Draft, Edit, Platform, Put, drafts
from trtllm_check.lint.rules.asked_of_models import WITH_IMAGES
from trtllm_check.lint.rules.served import LMI, VLLM, ServedModel, served

RULE = "vllm-mismatch"
OF_MISTRAL = re.compile(r"mi[sx]tral|codestral|pixtral|magistral|devstral|voxtral|mathstral", re.IGNORECASE)
# Families whose members have one vocabulary, and none that another family has.
FAMILIES = (
    re.compile(r"(?:^|/)(?:meta-)?llama-?3", re.IGNORECASE),
    re.compile(r"(?:^|/)(?:meta-)?llama-?2-", re.IGNORECASE),
    re.compile(r"(?:^|/)qwen(?:2|2\.5|3)-", re.IGNORECASE),
    re.compile(r"(?:^|/)mi[sx]tral-[78]", re.IGNORECASE),
    re.compile(r"(?:^|/)gemma-[23]-", re.IGNORECASE),
    re.compile(r"(?:^|/)phi-[34]", re.IGNORECASE),
)
DEFAULT_RANK = 16
# The rank of an adapter that a text makes or shows: adapter_config.json, and peft's LoraConfig.
RANKS = (
    re.compile(r"\"r\"\s*:\s*(?P<rank>\d+)(?=[^{}]*\"(?:peft_type|lora_alpha|base_model_name_or_path)\")"),
    re.compile(r"\"(?:peft_type|lora_alpha|base_model_name_or_path)\"[^{}]*\"r\"\s*:\s*(?P<rank>\d+)"),
    re.compile(r"\bLoraConfig\([^()]*\br\s*=\s*(?P<rank>\d+)"),
)


def check(document: Document, platform: Platform) -> Iterator[Draft]:
    """All drafts of the family."""
    release = platform.release.name
    ranks = {int(match["rank"]) for _, text in document.texts for one in RANKS for match in one.finditer(text)}
    for one in served(document):
        if one.engine != VLLM or one.tool == LMI:
            continue
        yield from _rank(one, ranks, release)
        model = published_model(one.weights) if one.weights else None
        if model is None or not model.official:
            continue
        word = one.options.get("tokenizer_mode")
        if word is not None and word.text == "mistral" and not OF_MISTRAL.search(one.weights):
            edits = (Put(one.flag("tokenizer_mode"), "auto"),)
            yield from _say(one, "tokenizer_mode", "tokenizer", release, edits=edits)
        if "limit_mm_per_prompt" in one.options and not WITH_IMAGES.search(one.weights):
            yield from _say(one, "limit_mm_per_prompt", "no images", release)
        yield from _draft(one, release)


def _draft(one: ServedModel, release: str) -> Iterator[Draft]:
    """A draft model of another family, whose words have other numbers."""
    words = [one.options[name] for name in ("speculative_model", "speculative_config") if name in one.options]
    for word in words:
        try:
            found = json.loads(word.text) if word.text.startswith("{") else {"model": word.text}
        except (ValueError, RecursionError):
            continue
        name = str(found.get("model", ""))
        here, there = ([family for family in FAMILIES if family.search(each)] for each in (one.weights, name))
        if here and there and here != there and not re.search(r"eagle|medusa|distill", name, re.IGNORECASE):
            option = "speculative_model" if "speculative_model" in one.options else "speculative_config"
            yield from _say(one, option, "draft", release, draft=name)


def _rank(one: ServedModel, ranks: set[int], release: str) -> Iterator[Draft]:
    """An adapter of a higher rank than the engine makes room for."""
    if len(ranks) != 1 or not one.is_on("enable_lora") or one.is_open:
        return
    (rank,) = ranks
    most = one.number("max_lora_rank") if "max_lora_rank" in one.options else DEFAULT_RANK
    if most is not None and rank > most:
        flag = "--max-lora-rank" if one.invocation else "max_lora_rank"
        edits = (Put(flag, str(rank)),) if one.invocation else ()
        place = "max_lora_rank" if "max_lora_rank" in one.options else "enable_lora"
        yield from _say(one, place, "rank", release, edits=edits, rank=rank, most=most, instead=flag)


def _say(
    one: ServedModel, option: str, form: str, release: str, *, edits: tuple[Edit, ...] = (), **known: Any
) -> Iterator[Draft]:
    yield from drafts(
        release,
        RULE,
        one.place(option),
        form=form,
        edits=edits if one.invocation is not None else (),
        invocation=one.invocation,
        file=one.file,
        tool=one.tool,
        flag=one.flag(option),
        model=one.weights,
        **known,
    )
