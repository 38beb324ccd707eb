"""Where a variable got what a command says with it: the place at which a reader changes the value."""

import re
from collections.abc import Sequence

from trtllm_check.lint.shell.words import Word, lines_of, word_at

SETS = re.compile(
    r"^[ \t]*(?:-[ ]+)?(?:(?:export|ARG|ENV|set|local|readonly|declare)[ \t]+)?[A-Za-z_][\w.-]*[ \t]*(?:[:?+]?=|:[ ])"
)


def where_set(word: Word, texts: Sequence[tuple[str, str]]) -> Word:
    """The word at the one line above that sets a variable to it; the word itself where its own line says it."""
    if len(texts) != 1 or len(word.text) < 2:
        return word
    text = texts[0][1]
    start = text.find(word.text)
    if start < 0 or text.find(word.text, start + 1) >= 0:
        return word
    found = word_at(text, start, word.text)
    if found.line >= word.line or not SETS.match(lines_of(text)[found.line - 1]):
        return word
    return found
