"""Names that a chart's template reads and its values do not have, where a text shows both."""

import re
from collections.abc import Iterator
from difflib import get_close_matches

from trtllm_check.lint.carriers.faults import FormFault
from trtllm_check.lint.shell import Word

RULE = "chart-value"
# What separates the files of a chart that are pasted one below the other.
FILE = re.compile(r"^(?:---[ \t]*|#+[ \t]*(?:[Ss]ource:[ \t]*)?[\w./{}-]+\.(?:ya?ml|tpl)[ \t:]*)$", re.MULTILINE)
ACTION = re.compile(r"\{\{-?(?P<inside>[^{}]*)\}\}")
PATH = re.compile(r"(?<![\w\")\]])\$?(?P<path>(?:\.[A-Za-z_]\w*)+)")
STRING = re.compile(r"\"[^\"\n]*\"|`[^`]*`")
KEY = re.compile(r"^[ ]*(?:- )?(?P<key>[A-Za-z_][\w-]*):(?:[ ]|$)", re.MULTILINE)
BUILT_IN = frozenset({"Release", "Chart", "Capabilities", "Files", "Template", "Subcharts"})
MANIFEST = re.compile(r"^apiVersion:", re.MULTILINE)
OURS = re.compile(r"vllm|trtllm|tensorrt|triton|nvidia\.com/gpu|sglang", re.IGNORECASE)
FEWEST = 4  # names that both have, which makes the one the other's values
SHORTEST = 6
NEAR = 0.85


def faults(word: Word) -> Iterator[FormFault]:
    """``.ropeMmax`` of a template beside ``ropeMax:`` of its values, and ``gpu_mem_util:`` for ``gpuMemUtil``."""
    text = word.text
    if "{{" not in text or not OURS.search(text):
        return
    read: dict[str, int] = {}
    given: dict[str, int] = {}
    for start, end in _files(text):
        part = text[start:end]
        if "{{" in part:
            read |= {name: at + start for name, at in _read(part) if name not in read}
        elif not MANIFEST.search(part):
            for match in KEY.finditer(part):
                given.setdefault(match["key"], match.start("key") + start)
    both = read.keys() & given.keys()
    if len(both) < FEWEST or 2 * len(both) < len(read):
        return
    plain = {_plain(name): name for name in read}
    for name, at in given.items():
        other = plain.get(_plain(name), name)
        if other != name and name not in read:
            known = (("name", name), ("other", other))
            yield FormFault(RULE, word.part(at, at + len(name)), "given", known)
    for name, at in read.items():
        close = get_close_matches(name, given, 1, NEAR) if len(name) >= SHORTEST and name not in given else []
        if close and close[0] not in read and _plain(close[0]) != _plain(name):
            known = (("name", name), ("other", close[0]))
            yield FormFault(RULE, word.part(at, at + len(name)), "read", known)


def _files(text: str) -> Iterator[tuple[int, int]]:
    starts = [0, *(match.end() for match in FILE.finditer(text))]
    ends = [*(match.start() for match in FILE.finditer(text)), len(text)]
    yield from zip(starts, ends, strict=True)


def _read(part: str) -> Iterator[tuple[str, int]]:
    """The parts of the paths of a template's actions, without what Helm itself brings."""
    for action in ACTION.finditer(part):
        inside = STRING.sub(lambda match: " " * len(match[0]), action["inside"])
        for match in PATH.finditer(inside):
            names = match["path"].split(".")[1:]
            at = action.start("inside") + match.start("path")
            for name in () if names[0] in BUILT_IN else names:
                at += 1
                if name != "Values":
                    yield name, at
                at += len(name)


def _plain(name: str) -> str:
    return re.sub(r"[_-]", "", name).lower()
