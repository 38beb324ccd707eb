"""Values of trtllm-build that do not go, or not beside each other, and that its arguments' table takes one by one."""

import posixpath
from collections.abc import Iterator
from typing import Any

from trtllm_check.lint.document import Document
from trtllm_check.lint.finding import Draft, Platform, Put, drafts, rule_data
from trtllm_check.lint.invocations import Invocation
from trtllm_check.lint.rules.arguments import is_checked
from trtllm_check.lint.rules.engine_limits import BUILD, number_of

FAMILY = "build_values"
RULE = "build-value"
MODULES, PAGES, TOKENS, BEST = "--lora_target_modules", "--tokens_per_block", "--max_num_tokens", "--opt_num_tokens"
CACHE, PAGED, SWITCH = "--kv_cache_type", "paged", "--paged_kv_cache"
ENCODER, OF_ENCODERS, OTHERS = "encoder", "enc_dec", ("whisper", "multimodal", "audio")


def check(document: Document, platform: Platform) -> Iterator[Draft]:
    """All drafts of the family."""
    release = platform.release.name
    for build in document.of(BUILD):
        if is_checked(build, platform.release):
            yield from _modules(build, release)
            yield from _numbers(build, release)
            yield from _cache(build, release)
        yield from _encoder(build, document, release)


def _modules(build: Invocation, release: str) -> Iterator[Draft]:
    """Layers under the names that PEFT has of them."""
    for word in build.values(MODULES):
        meant = rule_data(FAMILY)["modules"].get(word.text)
        if meant:
            known: dict[str, Any] = {"value": word.text, "meant": meant}
            yield from drafts(release, RULE, word, form="module", invocation=build, **known)


def _numbers(build: Invocation, release: str) -> Iterator[Draft]:
    """Pages whose size is no power of two; tuning for more tokens than a step has."""
    page, pages = number_of(build.value(PAGES)), build.find(PAGES)
    if pages is not None and page and page & (page - 1):
        edits = (Put(PAGES, "64"),)
        yield from drafts(release, RULE, pages.word, form="page", edits=edits, invocation=build, value=page)
    best, most, given = number_of(build.value(BEST)), number_of(build.value(TOKENS)), build.find(BEST)
    if given is not None and best and most and best > most:
        known: dict[str, Any] = {"value": best, "most": most}
        yield from drafts(release, RULE, given.word, form="tokens", invocation=build, **known)


def _cache(build: Invocation, release: str) -> Iterator[Draft]:
    """``--kv_cache_type`` and the flag that it came for, in two minds."""
    kind, paged, given = build.value(CACHE), build.value(SWITCH), build.find(SWITCH)
    if given is not None and kind and paged in ("enable", "disable") and (kind.lower() == PAGED) != (paged == "enable"):
        known: dict[str, Any] = {"kind": kind, "value": paged}
        yield from drafts(release, RULE, given.word, form="cache", invocation=build, **known)


def _encoder(build: Invocation, document: Document, release: str) -> Iterator[Draft]:
    """The encoder of an encoder-decoder model: its prompt is its whole sequence."""
    folder = build.value("--checkpoint_dir") or ""
    prompt, whole = (number_of(build.value(flag)) for flag in ("--max_input_len", "--max_seq_len"))
    given = build.find("--max_seq_len")
    if posixpath.basename(folder.rstrip("/")) != ENCODER or given is None or not prompt or not whole or prompt == whole:
        return
    texts = [text for file, text in document.texts if file == build.command.file]
    if any(OF_ENCODERS in text for text in texts) and not any(one in text.lower() for text in texts for one in OTHERS):
        known: dict[str, Any] = {"prompt": prompt, "whole": whole}
        edits = (Put("--max_seq_len", str(prompt)),)
        yield from drafts(release, RULE, given.word, form="encoder", edits=edits, invocation=build, **known)
