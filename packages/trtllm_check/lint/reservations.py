"""GPUs that a text asks a platform for: SkyPilot's ``accelerators``, Modal's ``gpu=``, BentoML's ``resources``, RunPod,
dstack, Vertex AI, and docker's SDK.
"""

import re
from collections.abc import Iterator
from functools import cache, lru_cache
from pathlib import Path
from typing import NamedTuple

from serving_base.yaml_files import read_yaml

SKYPILOT = re.compile(r"^[ \t]+accelerators:[ \t]*(?P<value>\S[^\n#]*)", re.MULTILINE)
OF_SKYPILOT = re.compile(r"^(?:run|setup):[ \t]*[|>]", re.MULTILINE)
IN_PYTHON = re.compile(r"\baccelerators[ ]*=[ ]*(?P<value>[\"'][^\"'\n]+[\"']|\{[^{}\n]*\})")
OF_PYTHON = re.compile(r"^[ \t]*(?:import sky|from sky)\b(?![\s\S]*\bnum_nodes[ ]*=[ ]*(?!1\b))", re.MULTILINE)
NODES = re.compile(r"^num_nodes:[ \t]*(?!1\b)\S", re.MULTILINE)
KIND = re.compile(r"[\"']?[A-Za-z][\w-]*[\"']?(?:[ \t]*:[ \t]*(?P<count>\d+))?")
MODAL = re.compile(r"^[ \t]*(?:import modal|from modal import)\b", re.MULTILINE)
OF_MODAL = re.compile(r"(?<![\w.])gpu[ ]*=[ ]*(?P<value>f?[\"'][^\"'\n]*[\"']|(?:modal\.)?gpu\.\w+\([^()]*\)|[^\s,)]+)")
MODAL_VALUE = re.compile(
    r"f?[\"'](?P<kind>[A-Za-z][\w-]*)(?P<exact>!?)(?::(?P<count>\d+|\{\w+\}))?[\"']"
    r"|(?:modal\.)?gpu\.(?P<cls>\w+)\((?P<inside>[^()]*)\)"
)
COUNT = re.compile(r"\bcount[ ]*=[ ]*(?P<count>\w+)")
SIZE = re.compile(r"\b(?:size|memory)[ ]*=[ ]*[\"']?(?P<size>\d+)")
DEFAULT = re.compile(r"os\.(?:getenv|environ\.get)\([^(),]+,[ ]*(?P<value>[\"'][^\"']+[\"'])\)")
BENTO = re.compile(r"\bresources[ ]*=[ ]*\{[^{}]*[\"']gpu[\"'][ ]*:[ ]*[\"']?(?P<count>\d+)")
OF_BENTO = re.compile(r"^[ \t]*import bentoml\b", re.MULTILINE)


class _Giver(NamedTuple):
    """One of reservations.yml."""

    by: str
    about: re.Pattern[str]
    asks: re.Pattern[str]


@cache
def _givers() -> tuple[_Giver, ...]:
    entries: list[dict[str, str]] = read_yaml(Path(__file__).with_suffix(".yml"))
    return tuple(
        _Giver(one["by"], re.compile(one["about"], re.MULTILINE), re.compile(one["asks"], re.MULTILINE))
        for one in entries
    )


class Reserved(NamedTuple):
    """``number`` GPUs, on ``line``; ``by``: who gives them."""

    number: int
    line: int
    by: str


class ModalGpus(NamedTuple):
    """What one ``gpu=`` asks for: "" and 0 for what is not told. ``exact``: no larger kind in its place."""

    kind: str
    number: int
    at: int
    exact: bool


def modal_gpus(text: str) -> Iterator[ModalGpus]:
    """Every ``gpu=`` of a text about Modal, by the names that it sets once, too."""
    for match in OF_MODAL.finditer(text) if MODAL.search(text) else ():
        value = _modal_value(match["value"], text)
        if value is None:
            yield ModalGpus("", 0, match.start(), exact=False)
            continue
        inside = value["inside"] or ""
        count, size = COUNT.search(inside), SIZE.search(inside)
        kind = value["kind"] or (f"{value['cls']}-{size['size']}GB" if size else value["cls"])
        number = _number(count["count"] if count else (value["count"] or "1"), text)
        yield ModalGpus(kind.lower(), number, match.start(), exact=bool(value["exact"]))


def _modal_value(written: str, text: str) -> re.Match[str] | None:
    written = written.removeprefix("[").removesuffix("]") if "," not in written else written
    if (found := MODAL_VALUE.fullmatch(written)) is not None:
        return found
    given = _set_once(written, text)
    default = DEFAULT.fullmatch(given)
    return MODAL_VALUE.fullmatch(default["value"] if default else given)


def _number(written: str, text: str) -> int:
    """The number, or that of a name; 0 for what is not told."""
    written = written.strip("{}")
    given = written if written.isdecimal() else _set_once(written, text)
    return int(given) if given.isascii() and given.isdecimal() else 0


def _set_once(name: str, text: str) -> str:
    """What a plain name is set to, in the one line that does so."""
    if not name.isidentifier():
        return ""
    found = re.findall(rf"^[ \t]*{name}[ \t]*(?::[^=\n]+)?=[ \t]*([^#\n]*[^#\s])[ \t]*(?:#.*)?$", text, re.MULTILINE)
    return found[0] if len(found) == 1 else ""


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
    for match in IN_PYTHON.finditer(text) if OF_PYTHON.search(text) else ():
        for one in KIND.finditer(match["value"]):
            yield Reserved(int(one["count"] or 1), _line(text, match), "SkyPilot gives")
    for asked in modal_gpus(text):
        yield Reserved(asked.number, text.count("\n", 0, asked.at) + 1, "Modal gives")
    for giver in _givers():
        for match in giver.asks.finditer(text) if giver.about.search(text) else ():
            count = next((number for number in match.groups() if number), "1")
            yield Reserved(int(count), _line(text, match), f"{giver.by} gives")
    if OF_BENTO.search(text):
        for match in BENTO.finditer(text):
            yield Reserved(int(match["count"]), _line(text, match), "BentoML gives")


def _line(text: str, match: re.Match[str]) -> int:
    return text.count("\n", 0, match.start() + len(match[0]) - len(match[0].lstrip())) + 1
