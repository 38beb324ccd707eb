"""Helm's templates as Go's parser reads them: blanks before a dash, actions without an end, ends of nothing."""

import re
from collections.abc import Iterator

from trtllm_check.lint.carriers.faults import FormFault
from trtllm_check.lint.shell import Word

OF_HELM = re.compile(r"\{\{[^{}\n]*(?:\.Values\b|\.Release\.|\.Chart\.|\binclude \"|\btoYaml\b)")
BLANK_BEFORE_DASH = re.compile(r"\{\{[ \t]+-[ \t]*(?=[A-Za-z$./(])")
DASH_WITHOUT_BLANK = re.compile(r"\{\{-(?=[A-Za-z$.(])|(?<=[\w\")])-\}\}")
ACTION = re.compile(
    r"\{\{-?[ \t\n]*+(?:/\*(?:.|\n)*?\*/[ \t\n]*+|(?P<word>[a-z]++)?(?>\"(?:\\.|[^\"\\])*+\"|`[^`]*`|.|\n)*?)-?\}\}"
)
UNCLOSED = re.compile(r"\{\{(?!\{|-?\s*/\*)(?:(?!\}\}|\{\{)[^\n])*(?:\n(?=[ \t]*(?:- )?[\w.-]+:[ \n])|\Z)")
OPENS = ("if", "with", "range", "define", "block")


def faults(word: Word, is_file: bool) -> Iterator[FormFault]:
    """The first slip that Go refuses a template of Helm for."""
    text = word.text
    if not OF_HELM.search(text):
        return
    for form, pattern in (("blank", BLANK_BEFORE_DASH), ("glued", DASH_WITHOUT_BLANK), ("unclosed", UNCLOSED)):
        if match := pattern.search(text):
            shown = " ".join(text[match.start() : match.start() + 40].split("\n")[0].split())
            yield FormFault("template-does-not-parse", word.part(match.start(), match.end()), form, (("text", shown),))
            return
    if is_file:
        yield from _balance(word)


def _balance(word: Word) -> Iterator[FormFault]:
    """An ``end`` too many, or an action that has none."""
    opened: list[re.Match[str]] = []
    for match in ACTION.finditer(word.text):
        if match["word"] in OPENS:
            opened.append(match)
        elif match["word"] == "end" and opened:
            opened.pop()
        elif match["word"] in ("end", "else") and not opened:
            known = (("text", match["word"]),)
            yield FormFault("template-does-not-parse", word.part(match.start(), match.end()), "end", known)
            return
    for match in opened[-1:]:
        shown = " ".join(match[0].split())[:60]
        yield FormFault("template-does-not-parse", word.part(match.start(), match.end()), "open", (("text", shown),))
