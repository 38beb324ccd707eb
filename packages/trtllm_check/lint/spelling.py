"""How a text spells the words of a command: a variable that it sets stays a variable in what is corrected.

The rules judge values. Whoever pastes a correction back into a script wants the names: what a run sets from outside
still counts, and no key or placeholder stands there in place of a variable.
"""

import re
from collections import Counter, defaultdict
from collections.abc import Sequence
from itertools import groupby

from trtllm_check.lint.shell.words import Place, Word, lines_of

VARIABLE = re.compile(r"\$(?:(?P<name>[A-Za-z_]\w*)|\{[A-Za-z_]\w*(?::?[-=][^{}$`\"']*)?\})")


def spelled(words: Sequence[Word], text: str) -> dict[str, str]:
    """How ``text`` spells those of ``words`` that hold values of variables, by what they are."""
    lines = lines_of(text)
    held = Counter(place for word in words for place in set(word.places))
    found: dict[str, set[str]] = defaultdict(set)
    for word in words:
        found[word.text].add(_spelling(word, lines, held))
    # Where two words are the same and are spelled in two ways, a corrected one may be either.
    return {value: written for value, (written, *others) in found.items() if not others and written != value}


def _spelling(word: Word, lines: Sequence[str], held: Counter[Place]) -> str:
    """``word`` with its variables; a value that makes several words (``$ARGS``) stays as it is."""
    if len(word.places) != len(word.text):
        return word.text
    parts: list[str] = []
    for place, group in groupby(zip(word.places, word.text, strict=True), key=lambda pair: pair[0]):
        value = "".join(character for _, character in group)
        line, column = place
        match = VARIABLE.match(lines[line - 1], column - 1) if 0 < line <= len(lines) else None
        is_value = match is not None and held[place] == 1 and not value.startswith("$")
        parts.append((f"${{{match['name']}}}" if match["name"] else match[0]) if match and is_value else value)
    return "".join(parts)
