"""Engines of 0.5 to 0.7, which each model's build.py made: what Triton's in-flight batching wants of them."""

import re
from collections.abc import Iterator
from typing import Any

from trtllm_check.lint.document import Document
from trtllm_check.lint.finding import Draft, Platform, drafts
from trtllm_check.lint.rules.arguments import of_the_first_build
from trtllm_check.lint.shell.words import ShellCommand, file_name

RULE = "engine-limit"
BUILDER, FIRST_WORDS = "build.py", 12
OF_THE_ROAD = frozenset({"--use_gpt_attention_plugin", "--use_gemm_plugin", "--use_inflight_batching"})
INFLIGHT = "--use_inflight_batching"
PACKED = ("--remove_input_padding", "--paged_kv_cache")
IN_FLIGHT_FOLDER = re.compile(r"inflight_batcher_llm(?!/client)")
ONE_BY_ONE = re.compile(
    r"(?:gpt_model_type|batching_(?:strategy|type))\W[^\n]{0,60}V1|string_value:\s*\"V1\"", re.IGNORECASE
)


def check(document: Document, platform: Platform) -> Iterator[Draft]:
    """The one builder of a text that serves with in-flight batching; options of the first trtllm-build."""
    if platform.earlier:
        yield from of_the_first_build(document, platform)
    builders = [(command, at) for command in document.commands if (at := _builder(command)) is not None]
    texts = "\n".join(text for _, text in document.texts) if len(builders) == 1 else ""
    if len(builders) != 1 or not IN_FLIGHT_FOLDER.search(texts) or ONE_BY_ONE.search(texts):
        return
    command, at = builders[0]
    if not any(word.text.partition("=")[0] in OF_THE_ROAD for word in command.words):
        return
    given = {word.text.partition("=")[0] for word in command.words[at + 1 :]}
    given |= {PACKED[1]} if "--kv_cache_type" in given else set()
    missing = [flag for flag in PACKED if flag not in given]
    if INFLIGHT in given or not missing or any(name.startswith(("$", "@")) for name in given):
        return
    known: dict[str, Any] = {"flags": " ".join((*missing, INFLIGHT))}
    yield from drafts(platform.release.name, RULE, command.words[at], form="not in flight", file=command.file, **known)


def _builder(command: ShellCommand) -> int | None:
    return next((n for n, word in enumerate(command.words[:FIRST_WORDS]) if file_name(word.text) == BUILDER), None)
