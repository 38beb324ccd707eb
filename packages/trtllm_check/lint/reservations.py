"""GPUs that a text asks a platform for: SkyPilot's ``accelerators``, Modal's ``gpu=``, BentoML's ``resources``."""

import re
from collections.abc import Iterator
from functools import lru_cache
from typing import NamedTuple

SKYPILOT = re.compile(r"^[ \t]+accelerators:[ \t]*(?P<value>\S[^\n#]*)", re.MULTILINE)
OF_SKYPILOT = re.compile(r"^(?:run|setup):[ \t]*[|>]", re.MULTILINE)
NODES = re.compile(r"^num_nodes:[ \t]*(?!1\b)\S", re.MULTILINE)
KIND = re.compile(r"[\"']?[A-Za-z][\w-]*[\"']?(?:[ \t]*:[ \t]*(?P<count>\d+))?")
MODAL = re.compile(r"^[ \t]*(?:import modal|from modal import)\b", re.MULTILINE)
OF_MODAL = re.compile(
    r"(?<![\w.])gpu[ ]*=[ ]*(?:[\"'](?P<kind>[A-Za-z][\w-]*)!?(?::(?P<count>\d+))?[\"']"
    r"|(?:modal\.)?gpu\.\w+\((?:[^()]*\bcount[ ]*=[ ]*(?P<of>\d+))?[^()]*\)|(?P<other>[^\s,)]+))"
)
BENTO = re.compile(r"\bresources[ ]*=[ ]*\{[^{}]*[\"']gpu[\"'][ ]*:[ ]*[\"']?(?P<count>\d+)")
OF_BENTO = re.compile(r"^[ \t]*import bentoml\b", re.MULTILINE)


class Reserved(NamedTuple):
    """``number`` GPUs, on ``line``; ``by``: who gives them."""

    number: int
    line: int
    by: str


@lru_cache(maxsize=8)
def reserved(text: str) -> Reserved | None:
    """The one number of GPUs that a text asks for; None where it is none, or several."""
    found = list(_found(text))
    counts = {one.number for one in found}
    return found[0] if len(counts) == 1 and found[0].number else None


def _found(text: str) -> Iterator[Reserved]:
    """All of them; one with 0 for what is not told."""
    if OF_SKYPILOT.search(text) and not NODES.search(text):
        for match in SKYPILOT.finditer(text):
            kinds = KIND.finditer(match["value"])
            yield from (Reserved(int(one["count"] or 1), _line(text, match), "SkyPilot gives") for one in kinds)
    if MODAL.search(text):
        for match in OF_MODAL.finditer(text):
            count = 0 if match["other"] else int(match["count"] or match["of"] or 1)
            yield Reserved(count, _line(text, match), "Modal gives")
    if OF_BENTO.search(text):
        for match in BENTO.finditer(text):
            yield Reserved(int(match["count"]), _line(text, match), "BentoML gives")


def _line(text: str, match: re.Match[str]) -> int:
    return text.count("\n", 0, match.start() + len(match[0]) - len(match[0].lstrip())) + 1
