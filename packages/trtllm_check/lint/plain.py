"""A text as it was before it was numbered, quoted or made a diff: the marks become blanks, so every place stays."""

import re
from collections.abc import Callable

from trtllm_check.lint.shell.languages import COMMANDS

DIFF = re.compile(r"^(?:diff --git |@@ -\d+(?:,\d+)? \+\d+)", re.MULTILINE)
DIFF_HEAD = re.compile(
    r"(?:diff --git |index [0-9a-f]+\.\.|--- |\+\+\+ |@@ -\d|new file mode|deleted file mode|similarity |rename )"
)
BARE_DIFF = re.compile(rf"^\+[ \t]*(?:{COMMANDS}|[\w.-]+[:=]|(?:-[ ]+)?[\"']?--\w)", re.MULTILINE)
DIFF_FENCE = re.compile(
    r"^(?P<mark>[ \t]*(?:`{3,}|~{3,})[ \t]*)(?P<language>diff|patch)(?P<rest>[^\n]*\n)(?P<inside>.*?)"
    r"(?=^[ \t]*(?:`{3,}|~{3,})[ \t]*$|\Z)",
    re.MULTILINE | re.DOTALL,
)
PATH_LINE = re.compile(r"(?:[+-]{3} )?[\w./-]*[./][\w./-]*\s*")  # of the file that a piece of a diff is for
NUMBER = re.compile(r"[ \t]*(?P<number>\d{1,5})(?:[ ]?[:|│]|\t|[ ]{2,}|[.)](?=[ ])|(?=[ ])|$)[ ]?")
QUOTE = re.compile(r"[ \t]*(?:>(?!>)[ ]?)+")
FENCE = re.compile(r"[ \t]*(?:```|~~~)")
FEWEST = 3  # numbered lines


def plain(text: str) -> str:
    """``text`` without the numbers of its lines, the marks of quotes and of a diff; what a diff takes away is blank."""
    for changed in (_without_numbers, _without_quotes, _after_diff):
        text = changed(text)
    return f"{text}\n" if text.endswith(("```", "~~~")) else text  # where a page was copied


def _each(text: str, change: Callable[[str], str]) -> str:
    return "\n".join(change(line) for line in text.split("\n"))


def _blank(line: str, length: int) -> str:
    return " " * length + line[length:]


def _without_numbers(text: str) -> str:
    """Lines that count up by one, all of them or those of a block."""
    whole = _uncounted(text)
    if whole != text or not any(map(FENCE.match, text.split("\n"))):
        return whole
    sections: list[list[str]] = [[]]
    for line in text.split("\n"):
        if FENCE.match(line):
            sections += [[line], []]
        else:
            sections[-1].append(line)
    return "\n".join(_uncounted("\n".join(one)) for one in sections if one)


def _uncounted(text: str) -> str:
    counted: list[int] = []
    for line in text.split("\n"):
        if line.strip() and not FENCE.match(line):
            number = NUMBER.match(line)
            if number is None:
                return text
            counted.append(int(number["number"]))
    if len(counted) < FEWEST or counted != list(range(counted[0], counted[0] + len(counted))):
        return text
    return _each(text, lambda line: _blank(line, match.end()) if (match := NUMBER.match(line)) else line)


def _without_quotes(text: str) -> str:
    """Two lines and more one after the other that begin with ``>``; one alone may be a redirection."""
    lines = text.split("\n")
    marked = [">" in line and bool(QUOTE.match(line)) and not line.lstrip().startswith(">>") for line in lines]
    for number, line in enumerate(lines):
        beside = (number and marked[number - 1]) or (number + 1 < len(lines) and marked[number + 1])
        if marked[number] and beside and (match := QUOTE.match(line)):
            lines[number] = _blank(line, match.end())
    return "\n".join(lines)


def _after_diff(text: str) -> str:
    """What a diff makes of its text."""
    if DIFF.search(text) and not DIFF_FENCE.search(text):
        return _new_state(text)
    if "+" in text and DIFF_FENCE.search(text):
        return DIFF_FENCE.sub(_read_fence, text)
    head, rest = _cut_path(text)
    return head + _new_state(rest) if _is_bare_diff(rest, is_named=bool(head)) else text


def _read_fence(match: re.Match[str]) -> str:
    """A fence of a diff as one of what the diff makes; one without a line that is new stays."""
    inside = match["inside"]
    if not any(line[:1] == "+" for line in inside.split("\n")):
        return match[0]
    return f"{match['mark']}{' ' * len(match['language'])}{match['rest']}{_new_state(inside)}"


def _cut_path(text: str) -> tuple[str, str]:
    """The line in front of a piece of a diff that names its file, and the rest."""
    first, end, rest = text.partition("\n")
    return (end, rest) if end and "+" in rest and PATH_LINE.fullmatch(first) else ("", text)


def _new_state(text: str) -> str:
    lines: list[str] = []
    goes_on = False
    for line in text.split("\n"):
        after = _applied(line)
        if goes_on and line.strip() and not after.strip():
            after = f"{after[:-1]}\\"  # what is gone does not end the command around it
        lines.append(after if after.strip() else "")
        goes_on = after.rstrip().endswith("\\")
    return "\n".join(lines)


def _is_bare_diff(text: str, *, is_named: bool) -> bool:
    """Lines that all begin with ``+``, ``-`` or a blank, some with each of the two marks, or all with ``+``."""
    lines = [line for line in text.split("\n") if line.strip()]
    marks = {line[0] for line in lines}
    is_list = any(line.startswith(("- ", "-\t")) for line in lines) and "+" not in marks
    has_both = {"+", "-"} <= marks <= {"+", "-", " "} and not is_list
    is_new = marks == {"+"} and (is_named or len(lines) >= FEWEST)
    return (has_both or is_new) and BARE_DIFF.search(text) is not None


def _applied(line: str) -> str:
    if DIFF_HEAD.match(line) or line[:1] == "-":
        return " " * len(line)
    return _blank(line, 1) if line[:1] == "+" else line
