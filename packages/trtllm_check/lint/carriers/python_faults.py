"""What stops Python before or while it runs a text: a comma that is missing, JSON's words for True, False, None, and
what the compiler refuses.
"""

import ast
import re
import warnings
from collections.abc import Iterator
from typing import NamedTuple

from trtllm_check.lint.carriers.faults import FormFault
from trtllm_check.lint.carriers.script import joined
from trtllm_check.lint.shell import Word

OF_JSON = {"true": "True", "false": "False", "null": "None"}
BACK = 4  # lines above the one that the parser names: where it stops depends on its release
LONGEST = 20_000
LEFT_OUT = re.compile(r"^[ \t]*(?:\.\.\.|…)", re.MULTILINE)  # a text that leaves something out is no whole program
REFUSED = re.compile(  # words of CPython's compiler, in all versions that run TensorRT-LLM
    r"'return' with value in async generator|keyword argument repeated|duplicate argument"
    r"|'yield from' inside async function"
)
OPEN_STRING = ("unterminated string literal", "unterminated f-string literal")
BRACKETS = re.compile(r"[)\]},:]{1,8}$")
UNCLOSED = re.compile(
    r"'(?P<mark>[(\[{])' was never closed"
    r"|closing parenthesis '.' does not match opening parenthesis '(?P<opening>[(\[{])'(?: on line (?P<line>\d+))?"
)
PROGRAM = re.compile(r"^[ \t]*(?:import|from)[ ]+\w|\w\(", re.MULTILINE)
CLOSERS = {"(": ")", "[": "]", "{": "}"}
LONGEST_CALL = 12  # lines
ENDS_OPEN = re.compile(r"(?:^|[,([{:=\\])\s*$|#")


def comma_missing(word: Word) -> Iterator[FormFault]:
    """The line of a text that does not parse, and parses as a whole with one comma at its end."""
    text = word.text
    if len(text) > LONGEST or LEFT_OUT.search(text):
        return
    problem = syntax_problem(text)
    if problem is None or problem.lineno is None:
        return
    lines = text.split("\n")
    for number in range(min(problem.lineno, len(lines)), max(0, problem.lineno - BACK), -1):
        line = lines[number - 1]
        if ENDS_OPEN.search(line):
            continue
        if syntax_problem("\n".join([*lines[: number - 1], f"{line.rstrip()},", *lines[number:]])) is None:
            index = sum(len(one) + 1 for one in lines[: number - 1]) + len(line) - len(line.lstrip())
            known = (("line", line.strip()),)
            yield FormFault("python-stops", word.part(index, index + len(line.strip())), "comma", known)
            return


class MissingMark(NamedTuple):
    """``mended``: the text with the mark in it."""

    fault: FormFault
    mended: Word


def mark_missing(word: Word) -> MissingMark | None:
    """The line that lacks a quote, a bracket or a colon at its end; with it the text parses as a whole.

    The last line is not judged: there somebody cut the text.
    """
    text = word.text
    problem = (
        syntax_problem(text) if len(text) <= LONGEST and PROGRAM.search(text) and not LEFT_OUT.search(text) else None
    )
    if problem is None or problem.lineno is None:
        return None
    lines = text.split("\n")
    said = (number for number, line in enumerate(lines, 1) if line.strip() and not line.lstrip().startswith("#"))
    last = max(said, default=0)
    for form, number, column, mark in _endings(problem, lines):
        line = lines[number - 1]
        start = sum(len(one) + 1 for one in lines[: number - 1])
        at = start + column
        if number < last and syntax_problem(f"{text[:at]}{mark}{text[at:]}") is None:
            index = start + len(line) - len(line.lstrip())
            fault = FormFault(
                "python-stops",
                word.part(index, start + len(line.rstrip())),
                form,
                (("line", line.strip()), ("sign", mark)),
            )
            place = word.part(at - 1, at)
            added = Word(mark, place.line, place.column, ((place.line, place.column),))
            return MissingMark(fault, joined([word.part(0, at), added, word.part(at)]))
    return None


def lacks_a_mark(text: str) -> bool:
    """True for a text that is Python but for one mark."""
    return mark_missing(Word(text, 1, 1, ((1, 1),) * len(text))) is not None


def _endings(problem: SyntaxError, lines: list[str]) -> Iterator[tuple[str, int, int, str]]:
    """What may be missing: the form, the line's number, the column in front of which it goes, and the mark."""
    message, number = problem.msg or "", problem.lineno or 0
    if not 0 < number <= len(lines):
        return
    line = lines[number - 1].rstrip()
    if message.startswith(OPEN_STRING):
        mark = next((one for one in line[max((problem.offset or 1) - 1, 0) :] if one in "\"'"), '"')
        yield "quote", number, len(line), mark
        if (closed := BRACKETS.search(line)) is not None:
            yield "quote", number, closed.start(), mark
    elif message == "expected ':'":
        yield "colon", number, len(line), ":"
    elif match := UNCLOSED.match(message):
        first = int(match["line"] or number)
        for at in range(first, min(first + LONGEST_CALL, len(lines)) + 1):
            ending = lines[at - 1].rstrip()
            if ending and (not ENDS_OPEN.search(ending) or ending.endswith(",")):
                yield "bracket", at, len(ending), CLOSERS[match["mark"] or match["opening"]]


def json_words(tree: ast.Module, word: Word, starts: list[int]) -> Iterator[FormFault]:
    """``true`` where nothing of the text makes such a name."""
    nodes = list(ast.walk(tree))
    if not any(isinstance(node, ast.Call | ast.Import | ast.ImportFrom) for node in nodes):
        return  # a body of JSON that a page shows as Python
    if any(isinstance(node, ast.ImportFrom) and any(one.name == "*" for one in node.names) for node in nodes):
        return
    made = {node.id for node in nodes if isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Load)}
    made |= {node.arg for node in nodes if isinstance(node, ast.arg)}
    made |= {node.name for node in nodes if isinstance(node, ast.FunctionDef | ast.ClassDef)}
    for node in nodes:
        if isinstance(node, ast.alias):
            made.add(node.asname or node.name)
    for node in nodes:
        if isinstance(node, ast.Name) and node.id in OF_JSON and node.id not in made:
            lines = word.text.split("\n")
            before = lines[node.lineno - 1].encode()[: node.col_offset].decode(errors="replace")
            index = starts[node.lineno - 1] + len(before)
            known = (("name", node.id), ("right", OF_JSON[node.id]))
            yield FormFault("python-stops", word.part(index, index + len(node.id)), "name", known)
            made.add(node.id)


def refused(tree: ast.Module, word: Word, starts: list[int]) -> Iterator[FormFault]:
    """What parses, and what the compiler refuses wherever the text stands: the file cannot be loaded."""
    if not (any(isinstance(node, ast.Call | ast.AsyncFunctionDef | ast.FunctionDef) for node in ast.walk(tree))):
        return
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            compile(tree, "text", "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT, dont_inherit=True)
    except SyntaxError as error:
        if error.lineno is None or not REFUSED.match(error.msg) or error.lineno > len(starts):
            return
        lines = word.text.split("\n")
        line = lines[error.lineno - 1]
        begin = starts[error.lineno - 1] + len(line) - len(line.lstrip())
        known = (("problem", error.msg),)
        yield FormFault("python-stops", word.part(begin, begin + len(line.strip())), "refused", known)
    except (ValueError, TypeError, RecursionError, MemoryError):
        return


def syntax_problem(text: str) -> SyntaxError | None:
    """What the parser says of ``text``; an error without words where it gives up, None for Python."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            ast.parse(text)
    except SyntaxError as error:
        return error
    except (ValueError, RecursionError, MemoryError):
        return SyntaxError()
    return None
