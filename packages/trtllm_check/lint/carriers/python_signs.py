"""Python that does not parse, and that as a whole does with a comma, a bracket, a quote, a colon or a margin put right.

What is left out, or cut off at the end, is not counted: a sign is missing only where the text goes on without it.
"""

import re
from collections.abc import Iterator
from typing import NamedTuple

from trtllm_check.lint.carriers.faults import FormFault
from trtllm_check.lint.carriers.python_faults import syntax_problem
from trtllm_check.lint.carriers.script import joined
from trtllm_check.lint.shell import Word

RULE = "python-stops"
MOST = 3  # faults of one text
LONGEST = 20_000
BACK = 4  # lines above the one that the parser names: where it stops depends on its release
FURTHER = 40  # lines of one bracket
LONGEST_CALL = 12  # lines
CLOSERS = {"(": ")", "[": "]", "{": "}"}
LEFT_OUT = re.compile(r"^[ \t]*(?:\.\.\.|…)", re.MULTILINE)  # a text that leaves something out is no whole program
PROGRAM = re.compile(r"^[ \t]*(?:import|from)[ ]+\w|\w\(", re.MULTILINE)
UNCLOSED = re.compile(
    r"'(?P<mark>[(\[{])' was never closed"
    r"|closing parenthesis '.' does not match opening parenthesis '(?P<opening>[(\[{])'(?: on line (?P<line>\d+))?"
)
UNCLOSED_STRING = re.compile(r"unterminated (?:f-)?string literal|EOL while scanning")
UNINDENTED = re.compile(r"unexpected indent|unindent does not match")
ENDS_OPEN = re.compile(r"(?:^|[,([{:=\\])\s*$|#")
BLANK_BEHIND = re.compile(r"\\(?P<blank>[ ])(?=[\"'])")  # a backslash, a blank, a quote
TAIL = re.compile(r"[)\]},: ]*$")
BLOCK = re.compile(
    r"[ \t]*(?:async )?(?:if|elif|else|for|while|with|try|except|finally|def|class)\b[^#]*[^#:\s,(\[{\\]$"
)
WHOLE = re.compile(r"^(?:import|from)[ ]\w", re.MULTILINE)


class PutRight(NamedTuple):
    """A text that parses once each of ``faults`` is mended: ``mended``, with the places of the text."""

    faults: tuple[FormFault, ...]
    mended: Word


class _Repair(NamedTuple):
    """Something put or taken away in a line, and in the lines behind it. ``form``: of the rule; ``sign``: what is put.

    ``edits``: where a part of the text begins and ends that something else stands in place of, in order.
    ``whole``: the text must parse with it, for the parser does not come back to its place.
    """

    number: int
    form: str
    sign: str
    edits: tuple[tuple[int, int, str], ...]
    whole: bool = False


def put_right(word: Word) -> PutRight | None:
    """What keeps a text from parsing that parses as a whole when it is mended; None for all others."""
    if len(word.text) > LONGEST or LEFT_OUT.search(word.text):
        return None
    faults: list[FormFault] = []
    problem = syntax_problem(word.text)
    while problem is not None:
        repair = _found(word.text, problem) if len(faults) < MOST else None
        if repair is None:
            return None
        faults.append(_fault(word, repair))
        word = _mended(word, repair)
        problem = syntax_problem(word.text)
    return PutRight(tuple(faults), word) if faults else None


def lacks_signs(text: str) -> bool:
    """True for a text that is Python when a few signs are put right, and is none as it stands."""
    return put_right(Word(text, 1, 1, ((1, 1),) * len(text))) is not None


def _found(text: str, problem: SyntaxError) -> _Repair | None:
    """The first repair with which the text parses, else the first that brings the parser past its line."""
    number = problem.lineno or 0
    lines = _Lines.of(text)
    if not 0 < number <= len(lines.texts):
        return None
    further: _Repair | None = None
    for repair in (*_commas(lines, number), *_ends(lines, problem), *_slips(lines, problem)):
        after = syntax_problem(_edited(text, repair))
        if after is None:
            return repair
        if further is None and not repair.whole and (after.lineno or 0) > number:
            further = repair
    return further


def _edited(text: str, repair: _Repair) -> str:
    for start, end, put in reversed(repair.edits):
        text = text[:start] + put + text[end:]
    return text


def _mended(word: Word, repair: _Repair) -> Word:
    parts, behind = [], 0
    for start, end, put in repair.edits:
        before = word.part(behind, start)
        place = word.part(max(0, start - 1), start)  # what is put stands where the sign before it does
        added = Word(put, place.line, place.column, ((place.line, place.column),) * len(put))
        parts += [one for one in (before, added) if one.text]
        behind = end
    return joined([*parts, word.part(behind)])


def _fault(word: Word, repair: _Repair) -> FormFault:
    lines = _Lines.of(word.text)
    line, start = lines.texts[repair.number - 1], lines.starts[repair.number - 1]
    index = start + len(line) - len(line.lstrip())
    known = (("line", line.strip()), ("sign", repair.sign))
    return FormFault(RULE, word.part(index, index + len(line.strip())), repair.form, known)


class _Lines(NamedTuple):
    """``starts``: where each line begins in the text; ``last``: the number of the last that is more than a remark."""

    texts: list[str]
    starts: list[int]
    last: int

    @classmethod
    def of(cls, text: str) -> "_Lines":
        texts, starts, at = text.split("\n"), [], 0
        for line in texts:
            starts.append(at)
            at += len(line) + 1
        said = (number for number, line in enumerate(texts, 1) if line.strip() and not line.lstrip().startswith("#"))
        return cls(texts, starts, max(said, default=0))

    def put(self, number: int, column: int, sign: str, form: str, *, whole: bool = False) -> _Repair:
        """``sign`` in front of a column of a line, counted from 0."""
        at = self.starts[number - 1] + column
        return _Repair(number, form, sign, ((at, at, sign),), whole)


def _commas(lines: _Lines, number: int) -> Iterator[_Repair]:
    """A comma at the end of the parser's line, or of one above it."""
    for above in range(number, max(0, number - BACK), -1):
        line = lines.texts[above - 1]
        if not ENDS_OPEN.search(line):
            yield lines.put(above, len(line.rstrip()), ",", "comma", whole=True)


def _ends(lines: _Lines, problem: SyntaxError) -> Iterator[_Repair]:
    """A quote, a colon, or the bracket of a call of several lines at the end of one of them.

    The last line is not judged: there somebody cut the text.
    """
    message, number = problem.msg or "", problem.lineno or 0
    if not PROGRAM.search("\n".join(lines.texts)):
        return
    line = lines.texts[number - 1].rstrip()
    if UNCLOSED_STRING.match(message) and number < lines.last:
        begun = line[max((problem.offset or 1) - 1, 0) :]
        mark = next((one for one in begun if one in "\"'"), '"')
        tail = TAIL.search(line)
        for column in dict.fromkeys((len(line), tail.start() if tail else len(line))):
            yield lines.put(number, column, mark, "quote", whole=True)
    elif message == "expected ':'" and number < lines.last:
        yield lines.put(number, len(line), ":", "colon", whole=True)
    elif match := UNCLOSED.match(message):
        first = int(match["line"] or number)
        sign = CLOSERS[match["mark"] or match["opening"]]
        for at in range(first, min(first + LONGEST_CALL, lines.last - 1) + 1):
            ending = lines.texts[at - 1].rstrip()
            if ending and (not ENDS_OPEN.search(ending) or ending.endswith(",")):
                yield lines.put(at, len(ending), sign, "bracket", whole=True)


def _slips(lines: _Lines, problem: SyntaxError) -> Iterator[_Repair]:
    """What is put right where the parser stops; there may be more behind it."""
    message, number = problem.msg or "", problem.lineno or 0
    line = lines.texts[number - 1]
    for place, inside in enumerate(lines.texts[number - 1 : number - 1 + FURTHER], number):  # a bracket, open from here
        blanks = tuple(
            (lines.starts[place - 1] + match.start("blank"), lines.starts[place - 1] + match.end("blank"), "")
            for match in BLANK_BEHIND.finditer(inside)
        )
        if blanks:
            yield _Repair(place, "escape", "\\", blanks)
    if match := UNCLOSED.match(message):
        if match["mark"] and not ENDS_OPEN.search(line):
            yield lines.put(number, len(line.rstrip()), CLOSERS[match["mark"]], "bracket")
        if match["opening"]:
            yield lines.put(number, (problem.offset or 1) - 1, CLOSERS[match["opening"]], "bracket")
    if UNCLOSED_STRING.search(message) and number < len(lines.texts):
        tail = TAIL.search(line)
        for quote in ('"', "'"):
            if quote in line:
                for column in (tail.start() if tail else len(line), len(line.rstrip())):
                    yield lines.put(number, column, quote, "quote")
    if BLOCK.match(line.rstrip()) and any(one.strip() for one in lines.texts[number:]):
        yield lines.put(number, len(line.rstrip()), ":", "colon")
    if UNINDENTED.search(message):
        yield from _margins(lines, number)


def _margins(lines: _Lines, number: int) -> Iterator[_Repair]:
    """The lines from ``number`` on that are further in than the statement before, or one that is less, moved to it."""
    above = lines.texts[: number - 1]
    before = next((one for one in reversed(above) if one.strip() and not one.lstrip().startswith("#")), "")
    here, wanted = _margin(lines.texts[number - 1]), _margin(before)
    if not wanted or here == wanted or not WHOLE.search("\n".join(above)):
        return
    if here < wanted:
        yield lines.put(number, 0, " " * (wanted - here), "margin")._replace(sign="")
        return
    moved = []
    for start, line in zip(lines.starts[number - 1 :], lines.texts[number - 1 :], strict=True):
        if line.strip() and _margin(line) < here:
            break
        if line.strip():
            moved.append((start, start + here - wanted, ""))
    yield _Repair(number, "margin", "", tuple(moved))


def _margin(line: str) -> int:
    return len(line) - len(line.lstrip())
