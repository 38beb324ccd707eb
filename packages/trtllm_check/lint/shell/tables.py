"""Tables that a program printed: ``NAME  READY  STATUS`` and the rows below. No row of them is a command."""

import re
from collections.abc import Sequence

CELL = r"[A-Z][A-Z0-9()%/_.-]*(?: [A-Z0-9()%/_.-]+)?"
HEADER = re.compile(rf"[ \t]*{CELL}(?: {{2,}}{CELL}){{2,}}[ \t]*")
GAP = re.compile(r"\S {2,}\S|^[ \t]{4,}\S")
PROMPT = re.compile(r"[ \t]*(?:[$#>]|\S+@\S+)[ ]")


def without_tables(lines: Sequence[str]) -> list[str]:
    """The lines, those of a table blank."""
    kept: list[str] = []
    inside = False
    for line in lines:
        is_header = line[:1].isupper() and HEADER.fullmatch(line) is not None
        inside = is_header or (inside and GAP.search(line) is not None and not PROMPT.match(line))
        kept.append(" " * len(line) if inside else line)
    return kept
