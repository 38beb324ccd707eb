"""Chat templates that a container of vLLM is told to take from its examples and does not have."""

import re
from collections.abc import Iterator
from difflib import get_close_matches
from itertools import pairwise
from typing import Any

from trtllm_check.lint.document import Document
from trtllm_check.lint.finding import Draft, Platform, drafts, rule_data
from trtllm_check.lint.rules.box import Box, boxes
from trtllm_check.lint.shell.words import Word

FAMILY = "chat_templates"
OPTION = "--chat-template"
IN_THE_IMAGE = re.compile(r"(?:/vllm-workspace/|\./)?examples/(?P<name>[\w.-]+)\.jinja")
OF_VLLM = re.compile(r"(?:^|/)vllm[\w-]*(?::|@|$)")
NEAR = 0.85


def check(document: Document, platform: Platform) -> Iterator[Draft]:
    """All drafts of the family."""
    for box in boxes(document):
        if OF_VLLM.search(box.image):
            for word in _templates(box):
                yield from _absent(box, word, platform.release.name)


def _templates(box: Box) -> Iterator[Word]:
    for word, value in pairwise(box.words):
        if word.text == OPTION:
            yield value
    for word in box.words:
        if word.text.startswith(f"{OPTION}="):
            yield word.part(len(OPTION) + 1)


def _absent(box: Box, word: Word, release: str) -> Iterator[Draft]:
    match = IN_THE_IMAGE.fullmatch(word.text)
    if match is None or any(mount.rstrip("/").endswith("examples") for mount in box.mounts):
        return
    data, name = rule_data(FAMILY), match["name"]
    known: dict[str, Any] = {"path": word.text, "image": box.image}
    if name in data["gone"]:
        yield from drafts(release, "template-not-in-image", word, file=box.file, instead=data["gone"][name], **known)
        return
    names = data["known"].split()
    close = [] if name in names else get_close_matches(name, names, 1, NEAR)
    for near in close:
        instead = f"write examples/{near}.jinja"
        yield from drafts(release, "template-not-in-image", word, file=box.file, instead=instead, **known)
