"""How values are written, and the data of ``arguments.yml``."""

import re
from difflib import get_close_matches
from functools import cache
from typing import Any

from pydantic import Field

from serving_base.record import Record
from trtllm_check.lint.rulebook import rule_data
from trtllm_check.releases import Argument

YES = ("enabled", "true", "yes", "on", "1")
NO = ("disabled", "false", "no", "off", "0", "disable", "none")
# What the shell or the reader fills in: $X, $(...), `...`, <name>, {name}, [options]
OPEN = re.compile(r"\$[{(@*\w]|`|^<.*>$|^\{.*\}$|^\[.*\]$|^\.\.\.$|…", re.DOTALL)
THOUSANDS = re.compile(r"(\d+)k", re.IGNORECASE)


class Successor(Record):
    """What a flag is called in another release."""

    to: tuple[str, ...]
    all: bool = False
    values: dict[str, str] = Field(default={})


class Absent(Record):
    """A tool that releases up to ``until`` are known not to have."""

    tool: str
    until: str
    instead: str
    source: str


def is_open(text: str) -> bool:
    """True for a word that only the reader's shell, or the reader, can fill in."""
    return OPEN.search(text) is not None


def corrected_value(text: str, argument: Argument) -> str | None:
    """The value that was meant, if that can be told."""
    if not argument.choices:
        match = THOUSANDS.fullmatch(text)
        if argument.type == "int" and match:
            return str(int(match[1]) * 1024)
        digits = re.sub(r"[,_]", "", text)
        return digits if argument.type == "int" and digits.isdecimal() and digits.isascii() else None
    choices = [str(choice) for choice in argument.choices]
    wanted = text.lower().strip()
    for words, choice in ((YES, "enable"), (NO, "disable")):
        if wanted in words and choice in choices:
            return choice
    if wanted in choices:
        return wanted
    if "auto" in choices and wanted in ("float16", "bfloat16", "float32", "fp16", "bf16"):
        return "auto"
    if wanted == "auto" and "bfloat16" in choices:
        return "bfloat16"  # Llama-3's type
    close = get_close_matches(wanted, choices, 1, 0.8)
    return close[0] if close else None


def successor(tool: str, flag: str) -> Successor | None:
    """What ``flag`` of ``tool`` is written as in another release, None if nothing takes its place."""
    found: Successor | None = _data()["successors"].get(tool, {}).get(flag)
    return found


def examples() -> dict[str, str]:
    """Required flag -> a value to start from."""
    found: dict[str, str] = _data()["examples"]
    return found


def absent_tools() -> tuple[Absent, ...]:
    found: tuple[Absent, ...] = _data()["absent"]
    return found


def foreign_folders() -> frozenset[str]:
    """Folders of the examples whose scripts are not Llama's."""
    found: frozenset[str] = _data()["foreign"]
    return found


@cache
def _data() -> dict[str, Any]:
    data = rule_data("arguments")
    successors = {
        tool: {flag: Successor.model_validate(entry) for flag, entry in flags.items()}
        for tool, flags in data["successors"].items()
    }
    absent = tuple(Absent.model_validate(entry) for entry in data["absent"])
    return {**data, "successors": successors, "absent": absent, "foreign": frozenset(data["foreign"])}
