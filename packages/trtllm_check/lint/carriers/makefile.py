"""Makefiles: the recipes, with the variables that the file sets."""

import re

from trtllm_check.lint.carriers.script import Carried, Script
from trtllm_check.lint.shell import Word

ASSIGNMENT = re.compile(r"[ ]*(?:export[ ]+)?(?P<name>[A-Za-z_]\w*)[ \t]*(?P<sign>[:?+]?:?=)[ \t]*(?P<value>.*)")
REFERENCE = re.compile(r"\$\$|\$\((?P<round>[^()\n]*(?:\([^()\n]*\)[^()\n]*)*)\)|\$\{(?P<curly>[A-Za-z_]\w*)\}")
MARGIN = re.compile(r"\t")
PREFIX = re.compile(r"\t[@+-]*[ \t]*")
INLINE = re.compile(r"[\w.-]+:[^=;]*;(?P<recipe>.*)")
NAME = re.compile(r"[A-Za-z_]\w*")


def carried(word: Word) -> Carried:
    """All recipes as one script: make's variables are the shell's, what make computes is unknown."""
    script = Script()
    position = 0
    continued = ""
    for line in word.text.split("\n"):
        piece = word.part(position, position + len(line))
        position += len(line) + 1
        goes_on = continued == "recipe"  # where a dash is an option's, and no sign for make
        kind = continued or _kind(line)
        continued = kind if line.rstrip().endswith("\\") else ""
        if kind == "recipe":
            begin = MARGIN.match(line) if goes_on else PREFIX.match(line)
            inline = INLINE.match(line)
            start = begin.end() if begin else inline.start("recipe") if inline else 0
            _take(script, piece.part(start))
            script.end()
        elif kind == "variable" and (match := ASSIGNMENT.match(line)):
            value = piece.part(match.start("value"), len(line.rstrip().rstrip("\\")))
            script.add(f'{match["name"]}="', (piece.line, piece.column))
            _take(script, value)
            script.add('"', (piece.line, piece.column))
            script.end()
    found = script.word()
    return Carried(scripts=((found, ""),)) if found.text else Carried()


def _kind(line: str) -> str:
    if line.startswith("\t") or INLINE.match(line):
        return "recipe"
    return "variable" if ASSIGNMENT.match(line) else "other"


def _take(script: Script, piece: Word) -> None:
    """``$$x`` is the shell's ``$x``, ``$(X)`` make's own variable, any other ``$(...)`` unknown."""
    position = 0
    for match in REFERENCE.finditer(piece.text):
        script.take(piece.part(position, match.start()))
        place = piece.part(match.start(), match.start() + 1)
        if match[0] == "$$":
            script.add("$", (place.line, place.column))
        else:
            inside = match["round"] if match["round"] is not None else match["curly"]
            name = inside if NAME.fullmatch(inside) else "made_by_make"
            script.add(f"${{{name}}}", (place.line, place.column))
        position = match.end()
    script.take(piece.part(position))
