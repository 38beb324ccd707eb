"""What the checker says about one place of the text."""

from typing import Literal, NamedTuple

from trtllm_check.rules import Severity


class Fix(NamedTuple):
    """What to do. A ``command`` is whole, corrected and ready to paste; an ``action`` is a sentence."""

    kind: Literal["command", "action"]
    text: str


class Finding(NamedTuple):
    """One thing that will not go as written. ``message`` says what will happen, ``why`` the reason.

    ``error``: the tool refuses or its result is wrong; ``warning``: silently not what was meant, or not certain;
    ``info``: good to know. Lines and columns count from 1. ``file`` is empty for a single text.
    """

    rule: str
    severity: Severity
    line: int
    column: int
    message: str
    why: str
    fix: Fix
    source: str
    file: str = ""
