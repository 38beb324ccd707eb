"""Lists of a server's arguments in YAML of a project's own form: an option and its value in one item."""

import re
from collections.abc import Iterator
from typing import Any

from trtllm_check.lint.document import Document
from trtllm_check.lint.finding import Draft, Platform, drafts
from trtllm_check.lint.shell.words import Word
from trtllm_check.releases.vllm import options_of

KEYS = re.compile(
    r"^\s*(?:-\s+)?[\"']?(?P<key>backend_parameters|extraArgs|extraCmdArgs|extra_args|engineArgs|engine_args|vllmArgs"
    r"|vllm_args|additionalArgs|serverArgs|server_args|extraParams)[\"']?\s*:",
    re.MULTILINE,
)
ONE_ITEM = re.compile(r"--(?P<name>[a-z][a-z0-9_-]*)[ ]+(?P<value>[^\s-]\S*)")
DEEPEST = 40


def check(document: Document, platform: Platform) -> Iterator[Draft]:
    """All drafts of the family."""
    for file, text in document.texts:
        if KEYS.search(text) and "--" in text:
            for key, item, place in _items(text):
                match = ONE_ITEM.fullmatch(item)
                if match and match["name"].replace("_", "-") in options_of("serve"):
                    known = {"key": key, "flag": f"--{match['name']}", "value": match["value"]}
                    yield from drafts(platform.release.name, "argument-in-one-item", place, file=file, **known)


def _items(text: str) -> Iterator[tuple[str, str, Word]]:
    """Every item of the lists, with the key that the list stands below."""
    import yaml

    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    try:
        nodes = list(yaml.compose_all(text, loader))
    except (yaml.YAMLError, ValueError, RecursionError):
        return
    for node in nodes:
        yield from _below(node, 0)


def _below(node: Any, depth: int) -> Iterator[tuple[str, str, Word]]:
    if node is None or node.id == "scalar" or depth > DEEPEST:
        return
    if node.id == "sequence":
        for one in node.value:
            yield from _below(one, depth + 1)
        return
    for key, value in node.value:
        if key.id == "scalar" and KEYS.match(f"{key.value}:") and value.id == "sequence":
            for one in value.value:
                if one.id == "scalar":
                    mark = one.start_mark
                    yield str(key.value), str(one.value), Word(str(one.value), int(mark.line) + 1, int(mark.column) + 1)
        else:
            yield from _below(value, depth + 1)
