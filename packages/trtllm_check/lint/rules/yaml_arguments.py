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
OPTION = re.compile(r"\s+--[a-z][\w.-]*(?:[ =].*|\s*\\?\s*)$")
BLOCK = re.compile(r"\s*(?:-\s+)?[\w.\"-]+:\s*[|>][+-]?\s*$")
DEEPEST = 40


def check(document: Document, platform: Platform) -> Iterator[Draft]:
    """All drafts of the family."""
    read = {(one.command.file, word.line) for one in document.of("vllm") for word in one.arguments if " " in word.text}
    for file, text in document.texts:
        if "--" in text and not text.lstrip().startswith("{"):
            yield from _cut(text, file, platform.release.name)
        if KEYS.search(text) and "--" in text:
            for key, item, place in _items(text):
                match = ONE_ITEM.fullmatch(item)
                if (file, place.line) in read:
                    continue  # a list that is read as a command: option-in-one-word says it
                if match and match["name"].replace("_", "-") in options_of("serve"):
                    known: dict[str, Any] = {"key": key, "flag": f"--{match['name']}", "value": match["value"]}
                    yield from drafts(platform.release.name, "argument-in-one-item", place, file=file, **known)


def _cut(text: str, file: str, release: str) -> Iterator[Draft]:
    """Lines of options with a backslash at their end, but for one between them."""
    lines = text.split("\n")
    for number, line in enumerate(lines[1:-1], 1):
        if not lines[number - 1].rstrip().endswith("\\") or line.rstrip().endswith("\\") or not OPTION.match(line):
            continue
        after = lines[number + 1]
        is_alike = OPTION.match(lines[number - 1]) and OPTION.match(after)
        if is_alike and after.rstrip().endswith("\\") and _indent(after) == _indent(line):
            key = _key(lines, number)
            lost = after.strip().removesuffix("\\").strip()
            place = Word(line.strip(), number + 1, _indent(line) + 1)
            if key:
                yield from drafts(release, "line-cut", place, form="list", file=file, tool=key, lost=lost)


def _indent(line: str) -> int:
    return len(line) - len(line.lstrip())


def _key(lines: list[str], number: int) -> str:
    """The key of the block that a line stands in, where all of it is options; "" for a script."""
    for line in reversed(lines[:number]):
        if BLOCK.match(line):
            return line.strip().partition(":")[0].strip("-'\" ")
        if not OPTION.match(line):
            return ""
    return ""


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
