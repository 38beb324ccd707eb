"""Python that does not parse as it stands: lines of a shell among it, a piece cut out of a function, an open bracket.

What parses is kept at its place. A line that does not is blank, and what a cut leaves open is closed with ``*_``: so
nobody takes the rest for complete.
"""

import ast
import re
import warnings
from collections.abc import Iterator
from functools import lru_cache
from typing import NamedTuple

from trtllm_check.lint.carriers.script import Script
from trtllm_check.lint.shell.languages import COMMANDS
from trtllm_check.lint.shell.words import Place, Word

LONGEST = 20_000
MOST_REPAIRS = 40
SHELL_LINE = re.compile(rf"[ \t]*(?:[$>][ ]+)?(?:[A-Z_]+=\S+ +)*{COMMANDS}(?![=:(.,])[^=\n]")
MAGIC = re.compile(r"[ \t]*(?:!|%(?=(?:pip|cd|env)\b))(?=[a-z./])")
PROMPT = re.compile(r"[ \t]*(?:>>>|\.\.\.)(?:[ ]|$)")
ORPHAN = re.compile(r"(?P<margin>[ \t]*)(?:(?P<elif>elif\b)|(?:else|except|finally|case)\b(?P<rest>.*))")
COLON = re.compile(r":(?=[ \t]*(?:#.*)?$)")
LEFT_OUT = re.compile(r"(?<=[,(\s])\.\.\.(?=\s*[,)])")
STATEMENT = re.compile(
    r"[ \t]*(?:import |from \S+ import |def |class |if |for |with |while |return\b|try:|@|\w[\w.]* = )"
)
TOKEN = re.compile(r"#[^\n]*|\"\"\"|'''|\"(?:[^\"\\\n]|\\.)*\"|'(?:[^'\\\n]|\\.)*'|[(\[{]|[)\]}]|\n")
OF_A_SCRIPT = re.compile(
    r"^#!.*\b(?:ba|z)?sh\b|<<-?[ ]?['\"]?\w|^[ \t]*(?:fi|done|esac|then|do)\b|;[ ]*(?:then|do)[ \t]*$"
    r"|^[ \t]*export |^[A-Za-z_]\w*=\S+[ \t]*\\?$|^\w+\(\)[ ]*\{",
    re.MULTILINE,
)
ENDS = re.compile(r"[\w\"'\])},(\[{]")
FEWEST = 2
LINES_OF_A_FILE = 4


class MendedPython(NamedTuple):
    """``code`` parses as ``tree``; ``shell``: the lines of a shell; how many lines are ``kept`` and ``lost``."""

    tree: ast.Module
    code: Word
    shell: Word
    kept: int
    lost: int

    @property
    def is_code(self) -> bool:
        """True where more of it is Python than not."""
        nodes = list(ast.walk(self.tree))
        found = any(isinstance(node, ast.Call | ast.ImportFrom | ast.Import) for node in nodes)
        found = found or any(isinstance(node, ast.Assign) and isinstance(node.value, ast.Dict) for node in nodes)
        found = found or any(isinstance(node, ast.Return) and _is_a_file(node.value) for node in nodes)
        return found and self.kept > self.lost


def _is_a_file(node: ast.expr | None) -> bool:
    """True for a text of many lines."""
    parts = node.values if isinstance(node, ast.JoinedStr) else [node] if node is not None else []
    texts = [str(one.value) for one in parts if isinstance(one, ast.Constant) and isinstance(one.value, str)]
    return sum(text.count("\n") for text in texts) >= LINES_OF_A_FILE


def mended(word: Word) -> MendedPython | None:
    """``word`` with what does not parse taken out; None where nothing comes of it."""
    if len(word.text) > LONGEST or not word.text.strip():
        return None
    code = _Code(word)
    code.take_shell()
    code.take_prompts()
    for _ in range(MOST_REPAIRS):
        tree = code.tree()
        if isinstance(tree, ast.Module):
            return MendedPython(tree, code.word(), code.script.word(), code.kept(), len(code.lost))
        if tree is None or not code.repair(tree):
            return None
    return None


@lru_cache(maxsize=32)
def is_mendable(text: str) -> bool:
    """True for what a page calls Python and is, but for some lines."""
    found = mended(Word(text, 1, 1, ((1, 1),) * len(text)))
    return found is not None and found.is_code


@lru_cache(maxsize=32)
def is_nearly_python(text: str) -> bool:
    """True for a text that nothing calls Python, and that is nearly all of it."""
    if OF_A_SCRIPT.search(text):
        return False
    found = mended(Word(text, 1, 1, ((1, 1),) * len(text)))
    if found is None or not found.is_code or found.kept < FEWEST or found.lost > max(FEWEST, found.kept // 3):
        return False
    shell = found.shell.text
    return shell.count("\n") <= found.kept and shell.count('"') % 2 == 0 and shell.count("'") % 2 == 0


class _Code:
    def __init__(self, word: Word) -> None:
        self.source = word
        self.lines = word.text.split("\n")
        self.starts = [0]
        for line in self.lines[:-1]:
            self.starts.append(self.starts[-1] + len(line) + 1)
        self.lengths = [len(line) for line in self.lines]
        self.shifted = [0] * len(self.lines)  # characters that are gone at each line's begin
        self.script = Script()
        self.lost: set[int] = set()
        self.shell: set[int] = set()
        self.before: tuple[str, ...] = ()

    def tree(self) -> ast.Module | SyntaxError | None:
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                return ast.parse("\n".join(self.lines))
        except SyntaxError as error:
            return error
        except (ValueError, RecursionError, MemoryError):
            return None

    def word(self) -> Word:
        """The code; each character at its place in the source, what was added at the nearest one."""
        places: list[Place] = []
        for number, line in enumerate(self.lines):
            last = self.starts[number] + max(self.lengths[number] - 1, 0)
            for index in range(len(line) + 1):
                at = min(max(self.starts[number] + index + self.shifted[number], self.starts[number]), last)
                places.append(self.source.places[min(at, len(self.source.places) - 1)])
        text = "\n".join(self.lines)
        return Word(text, *places[0], tuple(places[: len(text)]))

    def kept(self) -> int:
        said = (number for number, line in enumerate(self.lines) if line.strip() and not line.lstrip().startswith("#"))
        return sum(number not in self.lost and number not in self.shell for number in said)

    def take_shell(self) -> None:
        """The lines of a shell, and of a notebook's magic, with those that go on with them."""
        inside = set(self.within())
        goes_on = False
        for number, line in enumerate(self.lines):
            magic = MAGIC.match(line)
            if not goes_on and (number in inside or not (magic or SHELL_LINE.match(line)) or _parses(line.strip())):
                continue
            start = self.starts[number] + (magic.end() if magic and not goes_on else 0)
            self.script.line(self.source.part(start, self.starts[number] + len(line)))
            goes_on = line.rstrip().endswith("\\")
            self.shell.add(number)
            self.blank(number)

    def take_prompts(self) -> None:
        """What was typed into Python, where the text shows its prompts: all else is what it answered."""
        if not any(line.lstrip().startswith(">>> ") for line in self.lines):
            return
        for number, line in enumerate(self.lines):
            match = PROMPT.match(line)
            self.lines[number] = line[match.end() :] if match else ""
            self.shifted[number] += match.end() if match else 0

    def within(self) -> Iterator[int]:
        """The lines that begin inside of a string or a bracket."""
        number, depth, mark = 0, 0, ""
        for match in TOKEN.finditer("\n".join(self.lines)):
            token = match[0]
            if token == "\n":
                number += 1
                if depth or mark:
                    yield number
            elif mark:
                mark = "" if token == mark else mark
            elif token in ('"""', "'''"):
                mark = token
            elif token in "([{":
                depth += 1
            elif token in ")]}":
                depth = max(depth - 1, 0)

    def blank(self, number: int) -> None:
        margin = self.lines[number][: _indent(self.lines[number])]
        self.lines[number] = f"{margin}pass" if margin else ""

    def repair(self, error: SyntaxError) -> bool:
        """Changes what ``error`` is about; False where it was in vain."""
        number = min(max((error.lineno or 1) - 1, 0), len(self.lines) - 1)
        message = error.msg or ""
        state = tuple(self.lines)
        if message.startswith("expected an indented block"):
            self.empty_block(number if (error.lineno or 1) <= len(self.lines) else number + 1)
        elif message.startswith("unexpected indent"):
            self.indented(number, self.level_before(number))
        elif message.startswith("unindent does not match"):
            self.indented(number, self.level_below(number))
        elif message.endswith("was never closed"):
            self.close(number)
        elif message.startswith("unterminated triple-quoted"):
            marks = re.findall(r"\"\"\"|'''", self.lines[number])
            self.lines[-1] += marks[-1] if marks else ""
        elif "positional argument follows keyword" in message:
            self.lines = LEFT_OUT.sub("**_", "\n".join(self.lines)).split("\n")
        elif message.startswith("expected 'except'"):
            self.try_without_end(number)
        elif match := ORPHAN.match(self.lines[number]):
            self.orphan(number, match)
        if tuple(self.lines) == state:
            self.drop(number)
        return tuple(self.lines) != state

    def empty_block(self, number: int) -> None:
        for above in range(number - 1, -1, -1):
            if self.lines[above].strip() and not self.lines[above].lstrip().startswith("#"):
                self.lines[above] = COLON.sub(": pass ", self.lines[above])
                return

    def level_before(self, number: int) -> int:
        """How far the statement above is indented."""
        inside = set(self.within())
        for above in range(number - 1, -1, -1):
            line = self.lines[above]
            if line.strip() and not line.lstrip().startswith("#") and above not in inside:
                return _indent(line)
        return 0

    def level_below(self, number: int) -> int:
        indent = _indent(self.lines[number])
        levels = [_indent(line) for line in self.lines[:number] if line.strip() and _indent(line) < indent]
        return levels[-1] if levels else 0

    def indented(self, number: int, level: int) -> None:
        """The line and what is indented like it or more, at ``level``."""
        here = _indent(self.lines[number])
        for below in range(number, len(self.lines)):
            line = self.lines[below]
            if not line.strip():
                continue
            if _indent(line) < here or here <= level:
                return
            self.lines[below] = line[here - level :]
            self.shifted[below] += here - level

    def orphan(self, number: int, match: re.Match[str]) -> None:
        line = self.lines[number]
        if match["elif"]:
            self.lines[number] = line.replace("elif", "if  ", 1)
        else:
            self.lines[number] = f"{match['margin']}if 1:".ljust(len(line))

    def try_without_end(self, number: int) -> None:
        for above in range(number, -1, -1):
            if self.lines[above].strip() == "try:":
                self.lines[above] = self.lines[above].replace("try:", "if 1:")
                return

    def close(self, number: int) -> None:
        """Ends the brackets that are open from line ``number`` on before the next statement, or at the text's end."""
        level = _indent(self.lines[number])
        end = number + 1
        while end < len(self.lines):
            line = self.lines[end]
            if line.strip() and _indent(line) <= level and STATEMENT.match(line):
                break
            end += 1
        last = max((one for one in range(number, end) if self.lines[one].strip()), default=number)
        opened, stop, sign = _open("\n".join(self.lines[number : last + 1]))
        if not ENDS.fullmatch(sign):  # cut in the middle of an argument
            self.lines[last] = self.lines[last][: _indent(self.lines[last])] if last > number else ""
            return
        column = stop - sum(len(line) + 1 for line in self.lines[number:last])
        self.lines[last] = self.lines[last][: max(column, 0)] + _closers(opened, sign)

    def drop(self, number: int) -> None:
        """The statement of a line that says nothing in Python."""
        inside = set(self.within())
        first = last = number
        while first in inside and first > 0:
            first -= 1
        while last + 1 in inside and last + 1 < len(self.lines) and not STATEMENT.match(self.lines[last + 1]):
            last += 1
        for one in range(first, last + 1):
            if self.lines[one].strip():
                self.lost.add(one)
            self.lines[one] = "" if one > first else self.lines[one]
        self.blank(first) if self.lines[first].strip() not in ("", "pass") else self.lines.__setitem__(first, "")


def _indent(line: str) -> int:
    return len(line) - len(line.lstrip())


def _parses(line: str) -> bool:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            ast.parse(line)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return False
    return True


def _open(text: str) -> tuple[list[tuple[str, str]], int, str]:
    """The brackets that stay open, each with what stands before it; where the code ends, and with which character."""
    stack: list[tuple[str, str]] = []
    comments: list[tuple[int, int]] = []
    mark = ""
    for match in TOKEN.finditer(text):
        token = match[0]
        if mark:
            mark = "" if token == mark else mark
        elif token in ('"""', "'''"):
            mark = token
        elif token.startswith("#"):
            comments.append(match.span())
        elif token in "([{":
            stack.append((token, text[: match.start()].rstrip()[-7:]))
        elif token in ")]}" and stack:
            stack.pop()
    end = len(text.rstrip())
    while comments and comments[-1][1] >= end:
        end = len(text[: comments.pop()[0]].rstrip())
    return stack, end, text[end - 1 : end]


def _closers(opened: list[tuple[str, str]], sign: str) -> str:
    parts: list[str] = []
    for bracket, before in reversed(opened):
        is_call = bracket == "(" and before[-1:] and (before[-1:].isalnum() or before[-1:] in "_)]")
        if bracket == "(" and (not is_call or before.endswith("import")):
            parts.append(")")
        else:
            comma = "" if sign in ",([{" else ", "
            parts.append({"(": f"{comma}**_)", "[": f"{comma}*_]", "{": f"{comma}**_}}"}[bracket])
        sign = ")"
    return "".join(parts)
