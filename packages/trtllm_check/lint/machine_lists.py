"""GPUs as the driver lists them in a text: ``nvidia-smi``, ``nvidia-smi -L``, its CSV, and what bug reports collect."""

import re
from itertools import islice
from typing import NamedTuple

MAKERS = r"(?:NVIDIA|Tesla|Quadro|GeForce)[ ][\w. -]*?"
ROWS = (
    re.compile(
        rf"^[ \t>#\"]*\|[ \t]*(?P<index>\d{{1,2}})[ ]+(?P<name>{MAKERS})(?:\.\.\.)?[ ]{{2,}}[^\n]*\|", re.MULTILINE
    ),
    re.compile(
        rf"^[ \t>#*\"-]*(?:GPU models and configuration:[ ]*)?GPU (?P<index>\d{{1,2}}): "
        rf"(?P<name>{MAKERS})(?=[ \t]*(?:\(UUID[^\n]*)?\r?$)",
        re.MULTILINE,
    ),
    re.compile(rf"^[ \t>#]*[\"'](?P<index>)(?P<name>{MAKERS})[\"']\r?$", re.MULTILINE),
    re.compile(rf"^[ \t>#\"]*(?:(?P<index>\d{{1,2}}), )?(?P<name>{MAKERS}), \d+ MiB[^\n]*$", re.MULTILINE),
)
MEMORY = re.compile(r"/[ ]*(?P<mib>\d{4,6})MiB[ ]*\|")
TOTAL = re.compile(r", (?P<mib>\d{4,6}) MiB")
NEAR = 400  # letters from a row to its memory on the next line
MOST = 100


class ListedGpus(NamedTuple):
    """``names``: of each GPU, as written; ``mib``: the memory of the first, 0 where it is not told; ``line``: its line.

    ``rest``: the text without the rows.
    """

    names: tuple[str, ...]
    mib: int
    line: int
    rest: str


def listed_gpus(text: str) -> ListedGpus | None:
    """Of the way of listing that a text has; None for one that lists none."""
    if "NVIDIA" not in text and "Tesla" not in text and "GeForce" not in text:
        return None
    for row in ROWS:
        found = list(islice(row.finditer(text), MOST))
        if not found:
            continue
        names: dict[str, str] = {}
        for number, match in enumerate(found):
            names.setdefault(match["index"] or f"row {number}", match["name"].strip())
        near = text[found[0].start() : found[0].end() + NEAR]
        memory = TOTAL.search(found[0][0]) or (MEMORY.search(near) if found[0][0].rstrip().endswith("|") else None)
        line = text.count("\n", 0, found[0].start()) + 1
        return ListedGpus(tuple(names.values()), int(memory["mib"]) if memory else 0, line, row.sub("", text))
    return None
