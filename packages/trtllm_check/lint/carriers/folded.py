"""Commands over several lines in texts whose lines YAML joins: a backslash at an end escapes the blank behind it.

``script: - vllm serve X \\`` without a block's ``|`` is one line, and ``\\ --port`` in it is a word that begins with a
blank. Lines of a ``>`` that are indented further stay lines of their own, and are right.
"""

import re
from collections.abc import Iterator
from typing import Any

from trtllm_check.lint.carriers.faults import FormFault
from trtllm_check.lint.carriers.settings import Place
from trtllm_check.lint.carriers.workloads import fields_of
from trtllm_check.lint.shell.words import Word

RULE = "backslash-in-folded"
# Keys whose values a shell reads.
KEYS = frozenset(
    {
        *("script", "before_script", "after_script", "run", "setup", "command", "commands", "cmd", "args"),
        *("entrypoint", "start_command", "shell", "build"),
    }
)
OURS = re.compile(r"vllm|trtllm|tensorrt|tritonserver|convert_checkpoint|quantize\.py|djl|docker run|sglang|helm ")
ESCAPED = re.compile(r"(?<!\\)\\ +(?P<option>-{1,2}[A-Za-z][\w-]*)")
SHELL = re.compile(r"(?:^|\s)-[a-z]*c\s|\bsh\b")
DEEPEST = 60


def faults(node: Any, place: Place) -> Iterator[FormFault]:
    """Those of one document; of compose's plain commands another rule speaks."""
    is_compose = "services" in fields_of(node)
    for key, scalar in _scalars(node, "", 0, set()):
        value = str(scalar.value)
        if key not in KEYS or scalar.style == '"' or "\\ " not in value or not OURS.search(value):
            continue
        if scalar.start_mark.line == scalar.end_mark.line or (is_compose and not SHELL.search(value)):
            continue
        match = ESCAPED.search(value)
        if match is not None and not _is_quoted(value, match.start()):
            word: Word = place(scalar)
            known = (("option", match["option"]), ("key", key))
            yield FormFault(RULE, word.part(match.start(), match.end()), "", known)


def _scalars(node: Any, key: str, depth: int, seen: set[int]) -> Iterator[tuple[str, Any]]:
    """Every scalar with the key that it, or its list, stands under."""
    if node is None or depth > DEEPEST or id(node) in seen:
        return
    seen.add(id(node))
    if node.id == "scalar":
        yield key, node
    elif node.id == "sequence":
        for one in node.value:
            yield from _scalars(one, key, depth + 1, seen)
    else:
        for name, value in node.value:
            yield from _scalars(value, str(name.value) if name.id == "scalar" else "", depth + 1, seen)


def _is_quoted(value: str, position: int) -> bool:
    """True inside quotes, where the shell keeps the backslash or another reads it."""
    before = value[:position]
    return before.count("'") % 2 == 1 or before.count('"') % 2 == 1
