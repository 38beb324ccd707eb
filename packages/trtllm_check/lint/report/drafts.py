"""What a rule hands in: a finding in the making, and the edits that mend its command."""

from typing import NamedTuple

from trtllm_check.lint.commands.invocations import Invocation
from trtllm_check.lint.shell.words import Word
from trtllm_check.rules import Severity


class Drop(NamedTuple):
    """Takes a flag out, with its values."""

    flag: str


class Put(NamedTuple):
    """Sets a flag, or adds it; without ``value`` it is a bare switch."""

    flag: str
    value: str | None = None


class Swap(NamedTuple):
    """Replaces one word of the command: an image, a path, a URL, a misspelt flag."""

    old: Word
    new: str


class Insert(NamedTuple):
    """Puts words in front of another: a launcher."""

    before: Word
    words: tuple[str, ...]


Edit = Drop | Put | Swap | Insert


class Draft(NamedTuple):
    """One finding of a rule at ``place``. The fix is the command of ``invocation`` with ``edits``, or ``action``.

    All edits of one invocation go into one corrected command: see :mod:`trtllm_check.lint.report.fixing`.
    ``file``: where it stands if there is no invocation.
    """

    rule: str
    severity: Severity
    place: Word
    message: str
    why: str
    source: str
    edits: tuple[Edit, ...] = ()
    action: str = ""
    invocation: Invocation | None = None
    file: str = ""
