"""Words of a shell with their places, and how one word is read."""

import ast
import operator
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from trtllm_check.lint.shell.pasted import COMMANDS

Place = tuple[int, int]
"""Line and column, from 1."""
PLAIN = re.compile(r"[^\s\\'\"$`;&|<>()]+")
IN_DOUBLE_QUOTES = re.compile(r"[^\\\"$`]+")
EXPANSION = re.compile(
    r"\$(?:(?P<name>[A-Za-z_]\w*|[0-9@*#?$!-])"
    r"|\{(?P<braced>[A-Za-z_]\w*|[0-9@*#?])(?P<all>\[[@*]\])?(?:(?P<how>:?[-=])(?P<default>[^{}$`]*))?\})"
)
QUOTED = {"'": re.compile(r"[^']*"), '"': re.compile(r'(?:[^"\\]|\\.?)*', re.DOTALL)}
PARENTHESIS = re.compile(r"[()]")
LONGEST_SUBSTITUTION = 1_000
SUBSTITUTED = re.compile(r"`|\$\(")  # what a command prints is not known, so neither are its words
SIMPLE = re.compile(r"^[^`$:,]*(?:`[\w ./-]*`|\$\([\w ./-]*\))[^`$:,]*$")  # $(pwd)/engine may be told by its text
ARITHMETIC = re.compile(r"\$\(\(([^()`]*(?:\([^()`]*\)[^()`]*)*)\)\)")
WHOLE = re.compile(r"[\d\s+*/%()-]+")
SCRIPT_FOLLOWS = re.compile(r"-\w*c\s+\$?$")
LONGEST_SUM = 100
OPERATIONS: dict[type[ast.AST], Callable[[int, int], int]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
}
COMMAND_LINE = re.compile(rf"\n(?:{COMMANDS}|cat |echo |ls |wget |aws )")


@dataclass(frozen=True)
class Word:
    """One word after quotes and known variables are resolved; an unknown variable stays as ``${X}``.

    Typographic dashes and quotes stay as written. ``places`` has the place of each character of ``text``.
    """

    text: str
    line: int
    column: int
    places: tuple[Place, ...] = field(default=(), repr=False, compare=False)

    def part(self, start: int, end: int | None = None) -> "Word":
        """``text[start:end]`` with its own place."""
        places = self.places[start:end]
        line, column = places[0] if places else (self.line, self.column)
        return Word(self.text[start:end], line, column, places)


class Redirect(NamedTuple):
    """``operator`` is one of > >> < << <<< &> and the like; of << and <<<, ``target`` is the text that goes in."""

    operator: str
    target: Word


class ShellCommand(NamedTuple):
    """One simple command. ``words`` is empty for a line of assignments only.

    ``env``: what is exported before, and the assignments in front. ``assignments``: the latter as words (``X=1``).
    ``cuts``: what a real shell stumbles on and people mean otherwise: a footnote or blanks behind the backslash,
    a missing backslash, a comment between two lines of one command. ``file`` is set where a folder was read.
    ``image``: the container that it runs in, where a Dockerfile or YAML says so.
    """

    words: tuple[Word, ...]
    env: Mapping[str, str]
    line: int
    end_line: int
    assignments: tuple[Word, ...] = ()
    redirects: tuple[Redirect, ...] = ()
    cuts: tuple[Word, ...] = ()
    file: str = ""
    image: str = ""


def line_end(text: str, position: int) -> int:
    """Where the line of ``position`` ends."""
    found = text.find("\n", position)
    return len(text) if found < 0 else found


class WordReader:
    """Reads a word: quotes, escapes and expansions up to the next blank or operator."""

    def __init__(self, text: str, mask: str, places: Sequence[Place], variables: Mapping[str, Sequence[str]]) -> None:
        self.text, self.mask, self.places, self.variables = text, mask, places, variables
        self.position = 0
        self.substitutions: list[tuple[int, int]] = []

    def read(self, begin: int, *, split: bool) -> list[Word]:
        """The word at ``begin``: several where an unquoted variable holds several, none where it is empty."""
        self.begin = self.position = begin
        self.split = split
        self.words: list[Word] = []
        self.characters: list[str] = []
        self.spots: list[Place] = []
        self.quoted = False
        while self.position < len(self.mask):
            match = PLAIN.match(self.mask, self.position)
            if match:
                self._keep(match.end())
            elif not self._special(self.mask[self.position]):
                break
        self._flush()
        return self.words

    def _special(self, character: str) -> bool:
        """Read on at a character with a meaning; False where the word ends."""
        if character == "\\":
            self._escape()
        elif character == "'" or character == '"':
            self._quote(character)
        elif character == "$":
            self._dollar(quoted=False)
        elif character == "`":
            end = self.mask.find("`", self.position + 1, self.position + LONGEST_SUBSTITUTION)
            self._substitution(end, 1)
        else:
            return False
        return True

    def _keep(self, end: int) -> None:
        """Take over what is written up to ``end``."""
        self.characters.append(self.text[self.position : end])
        self.spots += self.places[self.position : end]
        self.position = end

    def _add(self, value: str, place: Place) -> None:
        self.characters.append(value)
        self.spots += [place] * len(value)

    def _flush(self) -> None:
        text = "".join(self.characters)
        if text or self.quoted:
            line, column = self.spots[0] if self.spots and self.words else self.places[self.begin]
            self.words.append(Word(text, line, column, tuple(self.spots)))
        self.characters, self.spots, self.quoted = [], [], False

    def _escape(self) -> None:
        if self.mask.startswith("\\\n", self.position):
            self.position += 2
            return
        self.quoted = True
        self.position += 1 if self.position + 1 < len(self.mask) else 0
        self._keep(self.position + 1)

    def _quote(self, mark: str) -> None:
        begin = self.position
        around = self.text[max(begin - 1, 0) : begin + 2]
        if mark == "'" and len(around) == 3 and around[0].isalpha() and around[2].isalpha():
            self._keep(begin + 1)  # don't
            return
        self.quoted = True
        if self.text[begin] != mark:
            self._keep(self._typographic_end(mark))
            return
        end = self._quote_end(mark)
        closed = self.text.startswith(mark, end)
        self.position += 1
        if mark == "'":
            self._keep(end)
        else:
            end = self._double(end)
        self.position = end + closed

    def _quote_end(self, mark: str) -> int:
        """Where the quote at this place is closed; its line's end if nowhere, or only in a later command."""
        begin = self.position
        end = QUOTED[mark].match(self.text, begin + 1).end()  # type: ignore[union-attr]  # it matches anything
        is_script = SCRIPT_FOLLOWS.search(self.text, max(begin - 10, 0), begin)
        if end < len(self.text) and (is_script or not COMMAND_LINE.search(self.mask, begin, end)):
            return end
        return line_end(self.mask, begin)

    def _typographic_end(self, mark: str) -> int:
        """Behind the other quote of a typographic pair."""
        for position in range(self.position + 1, len(self.mask)):
            if self.mask[position] == mark and self.text[position] != mark:
                return position + 1
        return self.position + 1

    def _double(self, end: int) -> int:
        """Read up to the quote at ``end``; that is another one where a substitution with quotes goes beyond it."""
        while self.position < end:
            match = IN_DOUBLE_QUOTES.match(self.mask, self.position, end)
            if match:
                self._keep(match.end())
            elif self.mask[self.position] == "\\":
                following = self.mask[self.position + 1 : self.position + 2]
                if following == "\n":
                    self.position += 2
                else:
                    self.position += 1 if following in ('"', "$", "`", "\\") else 0
                    self._keep(min(self.position + 1, end))
            elif self.mask[self.position] == "$":
                self._dollar(quoted=True)
            else:
                self._keep(self.position + 1)
            if self.position > end:
                end = QUOTED['"'].match(self.text, self.position).end()  # type: ignore[union-attr]
        return end

    def _arithmetic(self) -> bool:
        """Evaluate ``$((TP * PP))`` of whole numbers; True if it was taken over, evaluated or as written."""
        match = ARITHMETIC.match(self.mask, self.position)
        if match is None:
            return False
        begin, self.position = self.position, match.end()
        value = _sum(match[1], self.variables)
        self._add(self.text[begin : match.end()] if value is None else str(value), self.places[begin])
        self.quoted = True
        return True

    def _dollar(self, *, quoted: bool) -> None:
        begin = self.position
        if not quoted and self.mask.startswith(("$'", '$"'), begin):
            self.position += 1  # read as plain quotes
        elif self.mask.startswith("$((", begin) and self._arithmetic():
            return
        elif self.mask.startswith("$(", begin):
            self._substitution(self._closing_parenthesis(begin + 1), 2)
        elif match := EXPANSION.match(self.mask, begin):
            self.position = match.end()
            self._expand(self._resolve(match), self.places[begin], quoted=quoted)
        else:
            end = self.mask.find("}", begin, line_end(self.mask, begin))
            self._keep(end + 1 if self.mask.startswith("${", begin) and end > 0 else begin + 1)

    def _expand(self, values: Sequence[str], place: Place, *, quoted: bool) -> None:
        if not self.split:
            values = [" ".join(values)]
        elif not quoted and not any(SUBSTITUTED.search(value) for value in values):
            values = " ".join(values).split()
        for number, value in enumerate(values):
            if number:
                self._flush()
            self._add(value, place)

    def _substitution(self, end: int, opening: int) -> None:
        """A command in the middle of a word stays as written; its own commands are read too."""
        if end < 0:
            self._keep(self.position + 1)
            return
        self.substitutions.append((self.position + opening, end))
        self._keep(end + 1)

    def _closing_parenthesis(self, begin: int) -> int:
        depth = 0
        for match in PARENTHESIS.finditer(self.mask, begin, begin + LONGEST_SUBSTITUTION):
            depth += 1 if match[0] == "(" else -1
            if depth == 0:
                return match.start()
        return -1

    def _resolve(self, match: re.Match[str]) -> Sequence[str]:
        """The value of an expansion, or the expansion itself."""
        name = match["name"] or match["braced"]
        value = self.variables.get(name)
        if value is None:
            if match["default"] is not None:
                return [match["default"].strip("\"'")]
            return [f"${{{name}}}"]
        if any(SUBSTITUTED.search(one) and not SIMPLE.search(one) for one in value):
            return [f"${{{name}}}"]
        return value if match["all"] else value[:1]


def _sum(expression: str, variables: Mapping[str, Sequence[str]]) -> int | None:
    """The value of an arithmetic expression of whole numbers and known variables; None for any other."""
    text = re.sub(r"\$?\{?([A-Za-z_]\w*)\}?", lambda match: "".join(variables.get(match[1], ["?"])[:1]), expression)
    if not WHOLE.fullmatch(text) or "**" in text or len(text) > LONGEST_SUM:
        return None
    try:
        return int(_value(ast.parse(text.replace("//", "?").replace("/", "//").strip(), mode="eval").body))
    except (SyntaxError, ValueError, ZeroDivisionError, RecursionError):
        return None


def _value(node: ast.AST) -> int:
    if isinstance(node, ast.Constant) and isinstance(node.value, int):
        return node.value
    if isinstance(node, ast.BinOp) and type(node.op) in OPERATIONS:
        return OPERATIONS[type(node.op)](_value(node.left), _value(node.right))
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        return -_value(node.operand)
    raise ValueError("no arithmetic of whole numbers")
