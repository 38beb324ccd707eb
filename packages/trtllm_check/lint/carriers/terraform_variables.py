"""Variables of Terraform: what ``var.NAME`` is where nobody gives another value, the default of its block."""

import re

from trtllm_check.lint.carriers.script import joined
from trtllm_check.lint.shell.words import Word

BLOCK = re.compile(r"^variable[ \t]+\"(?P<name>\w+)\"[ \t]*\{(?P<body>[^{}]*(?:\{[^{}]*\}[^{}]*)*)\}", re.MULTILINE)
DEFAULT = re.compile(
    r"^[ \t]*default[ \t]*=[ \t]*(?:\"(?P<text>[^\"\\\n$]+)\"|(?P<plain>-?\d+(?:\.\d+)?|true|false))[ \t]*(?:#.*)?$",
    re.MULTILINE,
)
ONE_LINE = re.compile(r"\bdefault[ \t]*=[ \t]*(?:\"(?P<text>[^\"\\\n$]+)\"|(?P<plain>-?\d+(?:\.\d+)?))[ \t]*$")
USE = re.compile(r"\$\{var\.(?P<inside>\w+)\}|(?<![\w.${\"])var\.(?P<bare>\w+)(?![\w.\[(\"])")


def with_defaults(word: Word) -> Word:
    """The text with the defaults in place of the variables, each at the place of its variable."""
    known: dict[str, tuple[str, bool]] = {}
    for block in BLOCK.finditer(word.text):
        found = DEFAULT.search(block["body"]) or ONE_LINE.search(block["body"])
        if found is not None:
            known[block["name"]] = (found["text"] or found["plain"], found["text"] is not None)
    if not known:
        return word
    parts: list[Word] = []
    position = 0
    for match in USE.finditer(word.text):
        value, is_text = known.get(match["inside"] or match["bare"], ("", False))
        if value:
            place = word.part(match.start(), match.start() + 1)
            value = f'"{value}"' if match["bare"] and is_text else value
            spot = (place.line, place.column)
            parts += [word.part(position, match.start()), Word(value, *spot, (spot,) * len(value))]
            position = match.end()
    return joined([*parts, word.part(position)]) if parts else word
