"""Known failures of the tools: what their output looks like, what it means, and what to do. The signs: logs.yml."""

import re
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from serving_base.yaml_files import read_yaml
from trtllm_check.lint.finding import Finding, Fix

SIGNS = Path(__file__).with_name("logs.yml")
SHOWN_CHARACTERS = 300


@dataclass(frozen=True)
class Sign:
    """A failure that we know. ``pattern`` is searched in the output of a tool, line by line."""

    rule: str
    pattern: str
    cause: str
    fix: str
    source: str


@cache
def signs() -> tuple[Sign, ...]:
    """The signs, the more specific ones first."""
    return tuple(Sign(**entry) for entry in read_yaml(SIGNS))


def known(output: str) -> Sign | None:
    """The failure that this output shows, or None."""
    return next((sign for sign in signs() if re.search(sign.pattern, output)), None)


def read_log(output: str, file: str = "") -> list[Finding]:
    """The failure that a log shows, at its place; nothing if we know none of it."""
    sign = known(output)
    match = re.search(sign.pattern, output) if sign else None
    if sign is None or match is None:
        return []
    start = output.rfind("\n", 0, match.start()) + 1
    line = output[start:].partition("\n")[0].strip()
    said = line if len(line) <= SHOWN_CHARACTERS else f"{line[:SHOWN_CHARACTERS]} ..."
    place = (output.count("\n", 0, start) + 1, match.start() - start + 1)
    return [Finding(sign.rule, "error", *place, sign.cause, f"the log says: {said}", _action(sign), sign.source, file)]


def _action(sign: Sign) -> Fix:
    return Fix("action", sign.fix)
