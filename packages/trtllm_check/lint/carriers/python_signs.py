"""Python that does not parse, and that as a whole does with a bracket, a quote, a colon or a margin put right.

What is left out, or cut off at the end, is not counted: a sign is missing only where the text goes on without it.
"""

import re
from collections.abc import Iterator
from typing import NamedTuple

from trtllm_check.lint.carriers.faults import FormFault
from trtllm_check.lint.carriers.python_faults import CLOSERS, ENDS_OPEN, LEFT_OUT, LONGEST, syntax_problem
from trtllm_check.lint.shell import Word

RULE = "python-stops"
MOST = 3  # faults of one text
FURTHER = 40  # lines of one bracket
NEVER_CLOSED = re.compile(r"'([(\[{])' was never closed")
NO_MATCH = re.compile(r"closing parenthesis '.' does not match opening parenthesis '([(\[{])'")
UNCLOSED_STRING = re.compile(r"unterminated (?:f-)?string literal|EOL while scanning")
UNINDENTED = re.compile(r"unexpected indent|unindent does not match")
BLANK_BEHIND = re.compile(r"\\[ ](?=[\"'])")  # a backslash, a blank, a quote
TAIL = re.compile(r"[)\]},: ]*$")
BLOCK = re.compile(
    r"[ \t]*(?:async )?(?:if|elif|else|for|while|with|try|except|finally|def|class)\b[^#]*[^#:\s,(\[{\\]$"
)
WHOLE = re.compile(r"^(?:import|from)[ ]\w", re.MULTILINE)


class Repair(NamedTuple):
    """The lines with one fault mended: at which line it is, what form of the rule, what was put there."""

    lines: list[str]
    number: int
    form: str
    sign: str


def signs_missing(word: Word) -> Iterator[FormFault]:
    """What keeps a text from parsing that parses as a whole when it is mended."""
    text = word.text
    if len(text) > LONGEST or LEFT_OUT.search(text):
        return
    lines = text.split("\n")
    found: list[Repair] = []
    problem = syntax_problem("\n".join(lines))
    while problem is not None and len(found) < MOST:
        repair = next(_repairs(lines, problem), None)
        if repair is None:
            return
        found.append(repair)
        lines = repair.lines
        problem = syntax_problem("\n".join(lines))
    if problem is not None:
        return
    source = text.split("\n")
    for one in found:
        line = source[one.number - 1]
        index = sum(len(other) + 1 for other in source[: one.number - 1]) + len(line) - len(line.lstrip())
        known = (("line", line.strip()), ("sign", one.sign))
        yield FormFault(RULE, word.part(index, index + len(line.strip())), one.form, known)


def _repairs(lines: list[str], problem: SyntaxError) -> Iterator[Repair]:
    """The repairs of one problem that bring the parser past its line."""
    number = problem.lineno or 0
    if not 0 < number <= len(lines):
        return
    for repair in _tried(lines, number, problem):
        after = syntax_problem("\n".join(repair.lines))
        if after is None or (after.lineno or 0) > number:
            yield repair


def _tried(lines: list[str], number: int, problem: SyntaxError) -> Iterator[Repair]:
    line, message = lines[number - 1], problem.msg or ""
    for place, inside in enumerate(lines[number - 1 : number - 1 + FURTHER], number):  # a bracket, open from here on
        if BLANK_BEHIND.search(inside):
            yield _with(lines, place, BLANK_BEHIND.sub("\\\\", inside), "escape", "\\")
    if (match := NEVER_CLOSED.search(message)) and not ENDS_OPEN.search(line):
        yield _with(lines, number, line.rstrip() + CLOSERS[match[1]], "bracket", CLOSERS[match[1]])
    if match := NO_MATCH.search(message):
        at = (problem.offset or 1) - 1
        yield _with(lines, number, line[:at] + CLOSERS[match[1]] + line[at:], "bracket", CLOSERS[match[1]])
    if UNCLOSED_STRING.search(message) and number < len(lines):
        tail = TAIL.search(line)
        at = tail.start() if tail else len(line)
        for quote in ('"', "'"):
            if quote in line:
                for place in (at, len(line.rstrip())):
                    yield _with(lines, number, line[:place] + quote + line[place:], "quote", quote)
    if BLOCK.match(line.rstrip()) and any(one.strip() for one in lines[number:]):
        yield _with(lines, number, line.rstrip() + ":", "colon", ":")
    if UNINDENTED.search(message):
        yield from _dedented(lines, number)


def _with(lines: list[str], number: int, line: str, form: str, sign: str) -> Repair:
    return Repair([*lines[: number - 1], line, *lines[number:]], number, form, sign)


def _dedented(lines: list[str], number: int) -> Iterator[Repair]:
    """The lines from ``number`` on that are further in than the statement before, or one that is less, moved to it."""
    before = next(
        (one for one in reversed(lines[: number - 1]) if one.strip() and not one.lstrip().startswith("#")), ""
    )
    here, wanted = _margin(lines[number - 1]), _margin(before)
    if not wanted or here == wanted or not WHOLE.search("\n".join(lines[: number - 1])):
        return
    if here < wanted:
        yield _with(lines, number, " " * (wanted - here) + lines[number - 1], "margin", "")
        return
    moved = list(lines)
    for index in range(number - 1, len(lines)):
        if lines[index].strip() and _margin(lines[index]) < here:
            break
        moved[index] = lines[index][here - wanted :] if lines[index].strip() else lines[index]
    yield Repair(moved, number, "margin", "")


def _margin(line: str) -> int:
    return len(line) - len(line.lstrip())
