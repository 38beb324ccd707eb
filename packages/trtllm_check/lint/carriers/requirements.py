"""Files of requirements, and the dependencies of a pyproject.toml: what one pip install would be asked for."""

import re

from trtllm_check.lint.carriers.script import Carried, Script
from trtllm_check.lint.shell import Word

LINE = re.compile(
    r"^[ \t]*(?P<word>[A-Za-z0-9][\w.-]*(?:\[[\w, -]*\])?[ \t]*(?:(?:===?|[<>~!]=?)[ \t]*[\w.*+!-]+[ \t]*,?[ \t]*)*)"
    r"(?:;[^\n]*)?[ \t]*(?:[ \t]#[^\n]*)?\r?$",
    re.MULTILINE,
)
QUOTED = re.compile(r"[\"'](?P<word>[A-Za-z0-9][\w.-]*(?:\[[\w, -]*\])?[ \t]*(?:[<>=~!][^\"';]*)?)(?:;[^\"'\n]*)?[\"']")
DEPENDENCIES = re.compile(
    r"^[ \t]*dependencies[ \t]*=[ \t]*\[(?P<list>.*?)\n?[ \t]*\][ \t]*$", re.MULTILINE | re.DOTALL
)
PINNED = re.compile(r"[<>=~!]=?")
OPTION = re.compile(r"^[ \t]*(?:-|#|$|git\+|https?:|\./)")
ENOUGH = 2


def is_requirements(text: str) -> bool:
    """True where each line is a requirement, an option of pip or a comment, and several say a version."""
    lines = [line for line in text.split("\n") if not OPTION.match(line)]
    pinned = [line for line in lines if PINNED.search(line)]
    return len(pinned) >= ENOUGH and all(LINE.fullmatch(line) for line in lines)


def carried(word: Word) -> Carried:
    """One pip install of all requirements."""
    match = DEPENDENCIES.search(word.text)
    if match is not None:
        found = [one.span("word") for one in QUOTED.finditer(word.text, match.start("list"), match.end("list"))]
    else:
        found = [one.span("word") for one in LINE.finditer(word.text)]
    if not found:
        return Carried()
    words = [word.part(start, end) for start, end in found]
    place = (words[0].line, words[0].column)
    script = Script()
    begin = [Word(text, *place, (place,) * len(text)) for text in ("pip", "install")]
    script.words([*begin, *(_without_blanks(one) for one in words)])
    return Carried(scripts=((script.word(), ""),))


def _without_blanks(word: Word) -> Word:
    kept = [(letter, place) for letter, place in zip(word.text, word.places, strict=True) if not letter.isspace()]
    return Word("".join(letter for letter, _ in kept), word.line, word.column, tuple(place for _, place in kept))
