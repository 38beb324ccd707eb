"""Addresses of a model's page, where a tool wants the model's name."""

from collections.abc import Iterator
from typing import Any

from trtllm_check.lint.carriers.python_uses import PAGE
from trtllm_check.lint.document import Document
from trtllm_check.lint.finding import Draft, Platform, Swap, drafts
from trtllm_check.lint.rules.served import served
from trtllm_check.lint.shell.words import Word

RULE = "model-address"
HUB = ("hf", "huggingface-cli")


def check(document: Document, platform: Platform) -> Iterator[Draft]:
    """All drafts of the family."""
    release = platform.release.name
    for one in served(document):
        if one.model:
            yield from _said(one.place("model"), one.model, one.tool, one.file, release)
    for invocation in document.of(*HUB):
        words = invocation.arguments
        if len(words) > 1 and words[0].text == "download":
            yield from _said(words[1], words[1].text, f"{invocation.tool} download", invocation.command.file, release)


def _said(place: Word, model: str, tool: str, file: str, release: str) -> Iterator[Draft]:
    match = PAGE.fullmatch(model)
    if match is not None:
        known: dict[str, Any] = {"value": model, "tool": tool, "right": match["name"]}
        edits = (Swap(place, match["name"]),) if place.text == model else ()
        yield from drafts(release, RULE, place, file=file, edits=edits, **known)
