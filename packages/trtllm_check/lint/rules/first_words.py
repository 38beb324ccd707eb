"""Commands whose first word is another program than was meant: :file:`first_words.yml`."""

import re
from collections import Counter
from collections.abc import Iterator
from functools import cache
from typing import Any, NamedTuple

from trtllm_check.lint.document import Document
from trtllm_check.lint.finding import Draft, Platform, drafts, rule_data
from trtllm_check.lint.programs import ALIASES
from trtllm_check.lint.rules.box import engines
from trtllm_check.lint.shell.words import ShellCommand, file_name

HELPER = "run"
FAMILY = "first_words"
MOST_WORDS = 60
FUNCTION = re.compile(r"^[ \t]*(?:function[ \t]+)?(?P<name>[A-Za-z_][\w-]*)[ \t]*\(\)[ \t\r\n]*\{", re.MULTILINE)
PROSE = re.compile(r"[.,;:]$|^(?:the|a|an|it|and|or|with|from|in|on|to|is|are|for|by|of|your|this)$", re.IGNORECASE)


class Mistaken(NamedTuple):
    """One entry of the table."""

    program: str
    then: re.Pattern[str]
    why: str
    instead: str
    source: str


@cache
def mistaken() -> tuple[Mistaken, ...]:
    entries: Any = rule_data(FAMILY)
    return tuple(
        Mistaken(one["program"], re.compile(one["then"]), one["why"], one["instead"], one["source"]) for one in entries
    )


def check(document: Document, platform: Platform) -> Iterator[Draft]:
    """All drafts of the family."""
    own = {match["name"] for _, text in document.texts for match in FUNCTION.finditer(text)}
    heads = Counter(command.words[0].text for command in document.commands if command.words)
    own |= {HELPER} if heads[HELPER] > 1 else set()  # of a script, which shows what it runs; it was left out
    for command in document.commands:
        if not command.words or command.words[0].text not in own:
            yield from _first(command, platform.release.name)


def _first(command: ShellCommand, release: str) -> Iterator[Draft]:
    words = command.words[1:] if command.words and command.words[0].text == "sudo" else command.words
    if any(
        (one.target.line, one.target.column) < (words[0].line, words[0].column) for one in command.redirects if words
    ):
        return  # ``> uv run ...``: the sign of somebody's prompt
    if not 1 < len(words) <= MOST_WORDS or [word.text for word in words[1:]] == ["-v"]:  # asks for the version
        return
    name = file_name(words[0].text)
    name = ALIASES.get(name, name)
    for one in mistaken():
        if one.program == name and one.then.fullmatch(words[1].text):
            if any(PROSE.search(word.text) for word in words[1:]) or _may_have_an_entry(command.image):
                return
            rest = " ".join(word.text for word in words[1:])
            known: dict[str, Any] = {"written": f"{words[0].text} {words[1].text}", "why": one.why}
            known["instead"] = one.instead.replace("{rest}", rest if len(rest) < 80 else f"{rest[:76]} ...")
            for draft in drafts(release, "another-program", words[0], file=command.file, **known):
                yield draft._replace(source=one.source)
            return


def _may_have_an_entry(image: str) -> bool:
    """True for an image of somebody's own: what it starts with its command is not known."""
    return bool(image) and not any(engine.image.search(image) for engine in engines())
