"""Pieces of Python on one page: what one of them imports, the later ones use without saying so."""

import re

from trtllm_check.lint.carriers.script import joined
from trtllm_check.lint.shell.words import Word

IMPORT = re.compile(
    r"^[ \t]*from (?P<module>(?:tensorrt_llm|vllm)[\w.]*) import (?P<names>\([^()]*\)|[^\n(#]+)", re.MULTILINE
)
NAME = re.compile(r"[A-Za-z_]\w*")
RENAMED = re.compile(r"\bas\b|\*")
OF_CLASSES = re.compile(r"[A-Z]\w*")
IMPORTS = re.compile(r"^[ \t]*(?:from[ ]+\S+[ ]+)?import[ ]+(?:\([^()]*\)|[^\n]+)", re.MULTILINE)
OURS, OTHERS = re.compile(r"tensorrt[-_]?llm|trtllm-\w", re.IGNORECASE), re.compile(r"vllm|sglang", re.IGNORECASE)
STARRED, MADE = re.compile(r"\bimport[ ]+\*"), re.compile(r"^[ \t]*(?:class|def)[ ]+(\w+)", re.MULTILINE)
PACKAGE = "tensorrt_llm"
STRANGE = re.compile(r"^[ \t]*(?:from (?!tensorrt_llm|vllm)\S+ import [^\n]*\bLLM\b|class LLM\b)", re.MULTILINE)
SUPPOSED = ("LLM", "SamplingParams")  # of a page that leaves out all imports and speaks of one engine only


def imported(page: str) -> dict[str, str]:
    """Class -> the module that the page imports it from; none under another name, and none on a page of two engines."""
    found: dict[str, set[str]] = {}
    matches = list(IMPORT.finditer(page)) if "import" in page else []
    if len({match["module"].partition(".")[0] for match in matches}) > 1:
        return {}
    for match in matches:
        if RENAMED.search(match["names"]):
            continue
        for name in NAME.findall(match["names"]):
            if OF_CLASSES.fullmatch(name):
                found.setdefault(name, set()).add(match["module"])
    is_ours = bool(matches) and matches[0]["module"].startswith(PACKAGE)
    is_alone = is_ours or (not matches and OURS.search(page) is not None and OTHERS.search(page) is None)
    if is_alone and STRANGE.search(page) is None:
        for name in SUPPOSED:
            found.setdefault(name, {PACKAGE})
    return {name: min(modules) for name, modules in found.items() if len(modules) == 1}


def with_imports(piece: Word, known: dict[str, str]) -> Word:
    """``piece`` behind the imports that it leaves to an earlier one; they stand at its first place."""
    if not known or STARRED.search(piece.text):
        return piece
    given = {name for match in IMPORTS.finditer(piece.text) for name in NAME.findall(match[0])}
    given |= set(MADE.findall(piece.text))
    used = [name for name in known if name not in given and re.search(rf"(?<![\w.]){name}\(", piece.text)]
    if not used:
        return piece
    lines = "".join(f"from {known[name]} import {name}\n" for name in used)
    place = piece.places[0] if piece.places else (piece.line, piece.column)
    return joined([Word(lines, *place, (place,) * len(lines)), piece])
