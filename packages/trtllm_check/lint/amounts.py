"""How much is read: what is larger would keep its reader waiting, and is refused or read in part, in plain words."""

import re
from collections.abc import Iterator
from typing import BinaryIO, NamedTuple

from serving_base.errors import UsageError
from trtllm_check.lint.kinds import Kind

MOST_LINES = 30_000
LONGEST_LINE = 20_000
MOST_PIPES, MOST_OPEN = 500, 200  # in one line: commands piped into each other, and ${ that nothing ends
IN_ONE_LINE = ("notebook", "request", "config.json", "environment")  # JSON, which programs write without a line break
LOG_BEGIN, LOG_END = 200_000, 400_000  # bytes of a log that are read, the first and the last
LOG_LINE = 4_000
LONGER = re.compile(rf"([^\n]{{{LOG_LINE}}})[^\n]+")
PIECE = 1_000_000


class LogPart(NamedTuple):
    """What of a log is read: all, or all but ``left_out`` bytes behind its line ``begin_lines``, of ``gap_lines``."""

    data: bytes
    size: int
    left_out: int
    begin_lines: int
    gap_lines: int

    def line(self, number: int) -> int:
        """The line of the whole log that is ``number`` here."""
        return number + self.gap_lines if number > self.begin_lines else number

    @property
    def remark(self) -> str:
        """What was left out, in a sentence; empty for a log that was read as a whole."""
        if not self.left_out:
            return ""
        return (
            f"of this log of {self.size:,} bytes the first {LOG_BEGIN:,} and the last {LOG_END:,} were read; "
            "give another part of it with grep or tail"
        )


def refuse_too_much(text: str, source: str, kind: Kind) -> None:
    """:class:`UsageError` for a text of more lines, or of a longer one, than anybody writes."""
    if kind in IN_ONE_LINE:
        return
    lines = text.count("\n")
    if lines > MOST_LINES:
        raise UsageError(
            f"{source} has {lines:,} lines, and {MOST_LINES:,} are read",
            why="so many would take minutes",
            fix="give the part that matters",
        )
    for number, line in enumerate(text.split("\n"), 1):
        if line.count("|") > MOST_PIPES or line.count("${") - line.count("}") > MOST_OPEN:
            raise UsageError(
                f"line {number} of {source} has more than {MOST_PIPES} pipes, or {MOST_OPEN} times ${{ without an end",
                why="what is nested so deeply would take minutes",
                fix="take out what is no command",
            )
    number, length = max(enumerate(map(len, text.split("\n")), 1), key=lambda one: one[1])
    if length > LONGEST_LINE:
        raise UsageError(
            f"line {number} of {source} has {length:,} characters, and {LONGEST_LINE:,} are read",
            why="no command is that long, and what is nested in it would take minutes",
            fix="break the line with a backslash, or take out what is no command",
        )


def log_part(file: BinaryIO) -> LogPart:
    """The begin and the end of the log in ``file``, which may be a pipe."""
    begin = file.read(LOG_BEGIN)
    end, size, gap_lines = b"", len(begin), 0
    for piece in _pieces(file):
        size += len(piece)
        end += piece
        gap_lines += end.count(b"\n", 0, max(len(end) - LOG_END, 0))
        end = end[-LOG_END:]
    return LogPart(begin + end, size, size - len(begin) - len(end), begin.count(b"\n") + 1, gap_lines)


def clipped(log: str) -> str:
    """``log`` with the begin of each line only, at the places where it was."""
    return LONGER.sub(r"\1", log)


def _pieces(file: BinaryIO) -> Iterator[bytes]:
    while piece := file.read(PIECE):
        yield piece
