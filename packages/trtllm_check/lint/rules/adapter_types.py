"""LoRA adapters that hf_lora_convert.py stores in another type than the model's: the runtime refuses their weights."""

from collections.abc import Iterator
from itertools import pairwise
from typing import Any

from trtllm_check.lint.document import Document
from trtllm_check.lint.finding import Draft, Platform, drafts
from trtllm_check.lint.shell.words import ShellCommand, Word, file_name

RULE, CONVERTS = "adapter-type", "hf_lora_convert.py"
STORED = ("--storage-type", "-t", "--storage_type")
TYPES = ("float16", "bfloat16", "float32")
OF_THE_MODEL = {"convert_checkpoint.py": "--dtype", "quantize.py": "--dtype", "trtllm-build": "--lora_plugin"}
FIRST_WORDS = 8


def check(document: Document, platform: Platform) -> Iterator[Draft]:
    """All drafts of the family."""
    stored = [(command, word) for command in document.commands if (word := _stored(command)) is not None]
    if not stored:
        return
    given = [
        (one, word)
        for one in document.of(*OF_THE_MODEL)
        for word in one.values(OF_THE_MODEL[one.tool])[-1:]
        if word.text in TYPES
    ]
    if len({word.text for _, word in given}) != 1:
        return  # of several models, which one the adapter is for is not told
    one, wanted = given[0]
    for command, word in stored:
        if word.text != wanted.text:
            known: dict[str, Any] = {"given": word.text, "wanted": wanted.text, "line": wanted.line, "tool": one.tool}
            yield from drafts(platform.release.name, RULE, word, file=command.file, **known)


def _stored(command: ShellCommand) -> Word | None:
    """The type that the adapter is stored in, where the command says it."""
    names = [file_name(word.text) for word in command.words[:FIRST_WORDS]]
    if CONVERTS not in names:
        return None
    for flag, value in pairwise(command.words):
        if flag.text in STORED and value.text in TYPES:
            return value
        name, sign, text = value.text.partition("=")
        if sign and name in STORED and text in TYPES:
            return value.part(len(name) + 1)
    return None
