"""A word of bash's grammar to the words that a command gets: quotes, escapes, variables, arithmetic, substitutions.

What the text does not tell stays as written, or as ``${NAME}``: with a dollar sign in it, a word is unknown.
"""

import operator
import posixpath
import re
from collections.abc import Callable, Sequence
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING

from trtllm_check.lint.shell.variables import Variables
from trtllm_check.lint.shell.words import Place, Word

if TYPE_CHECKING:
    from tree_sitter import Node

ESCAPE = re.compile(r"\\(\n|.)", re.DOTALL)
SUBSTITUTED = re.compile(r"`|\$\(")  # what a command prints is not known, so neither are its words
SIMPLE = re.compile(r"^[^`$:,]*(?:`[\w ./-]*`|\$\([\w ./-]*\))[^`$:,]*$")  # $(pwd)/engine may be told by its text
CUTTING = {"#": (False, True), "##": (True, True), "%": (False, False), "%%": (True, False)}  # greedy, from the start
LARGEST = 10**12
DEEPEST = 40
OPERATIONS: dict[str, Callable[[int, int], int]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "/": lambda a, b: int(a / b),
    "%": lambda a, b: a - b * int(a / b),
    "<<": lambda a, b: a << min(b, 64),
    ">>": lambda a, b: a >> min(b, 64),
}


class Expander:
    """Reads the words of one text. ``text[i]`` stands at ``places[i]``; ``offset`` is that of the unit being read."""

    def __init__(self, text: str, mask: str, places: Sequence[Place], variables: Variables) -> None:
        self.text, self.mask, self.places, self.variables = text, mask, places, variables
        self.offset = 0
        self.substitutions: list[Node] = []  # command substitutions of the words that were read

    def words(self, nodes: Sequence["Node"], *, split: bool) -> list[Word]:
        """The word of adjacent ``nodes``: several where an unquoted variable holds several, none where it is empty."""
        first, last = nodes[0], nodes[-1]
        begin, end = first.start_byte + self.offset, last.end_byte + self.offset
        if len(nodes) == 1 and first.type in ("word", "number", "variable_name") and not first.children:
            written = self.text[begin:end]
            if "\\" not in written:
                return [Word(written, *self.places[begin], tuple(self.places[begin:end]))]
        reading = _Reading(self, split, begin)
        for node, following in zip(nodes, [*nodes[1:], None], strict=True):
            if node.type != "$" or following is None or following.type != "string":  # $"translated"
                reading.read(node, quoted=False, depth=0)
        return reading.finish()

    def value(self, nodes: Sequence["Node"]) -> str:
        return "".join(word.text for word in self.words(nodes, split=False)[:1]) if nodes else ""

    def array(self, node: "Node") -> list[str]:
        return [word.text for group in adjacent(node.children[1:-1]) for word in self.words(group, split=True)]


class _Reading:
    """One word that is being put together."""

    def __init__(self, expander: Expander, split: bool, begin: int) -> None:
        self.expander, self.split, self.begin = expander, split, begin
        self.offset = expander.offset
        self.found: list[Word] = []
        self.characters: list[str] = []
        self.spots: list[Place] = []
        self.quoted = False

    def finish(self) -> list[Word]:
        self.flush()
        return self.found

    def flush(self) -> None:
        text = "".join(self.characters)
        if text or self.quoted:
            line, column = self.spots[0] if self.spots and self.found else self.expander.places[self.begin]
            self.found.append(Word(text, line, column, tuple(self.spots)))
        self.characters, self.spots, self.quoted = [], [], False

    def keep(self, begin: int, end: int) -> None:
        """Take over what is written there."""
        self.characters.append(self.expander.text[begin:end])
        self.spots += self.expander.places[begin:end]

    def add(self, value: str, place: Place) -> None:
        self.characters.append(value)
        self.spots += [place] * len(value)

    def read(self, node: "Node", *, quoted: bool, depth: int) -> None:
        begin, end = node.start_byte + self.offset, node.end_byte + self.offset
        kind = node.type
        if kind == "concatenation" and depth < DEEPEST:
            for child in node.children:
                self.read(child, quoted=quoted, depth=depth + 1)
        elif kind in ("word", "extglob_pattern", "regex") and not node.children:
            self.escaped(begin, end)
        elif kind == "raw_string":
            self.raw(begin, end)
        elif kind == "string" and depth < DEEPEST:
            self.string(node, begin, end, depth)
        elif kind == "ansi_c_string":
            self.quoted = True
            self.keep(begin + 2, end - 1)
        elif kind in ("simple_expansion", "expansion"):
            self.variable(node, begin, end, quoted=quoted)
        elif kind == "arithmetic_expansion":
            value = arithmetic(node, self.expander)
            self.quoted = True
            self.add(self.expander.text[begin:end] if value is None else str(value), self.expander.places[begin])
        elif kind == "command_substitution":
            self.substitution(node, begin, end)
        elif kind == "command_name" and depth < DEEPEST:
            for child in node.children:
                self.read(child, quoted=quoted, depth=depth + 1)
        else:
            self.substitutions_in(node)
            self.keep(begin, end)

    def escaped(self, begin: int, end: int) -> None:
        """Unquoted text: a backslash makes the next character plain and joins lines."""
        position = begin
        for match in ESCAPE.finditer(self.expander.mask, begin, end):
            self.keep(position, match.start())
            position = match.end()
            if match[1] != "\n":
                self.quoted = True
                self.keep(match.start(1), match.end())
        self.keep(position, end)

    def raw(self, begin: int, end: int) -> None:
        self.quoted = True
        if self.expander.text[begin] != "'":
            self.keep(begin, end)  # typographic quotes stay
        else:
            self.keep(begin + 1, max(begin + 1, min(end - 1, len(self.expander.text))))

    def string(self, node: "Node", begin: int, end: int, depth: int) -> None:
        self.quoted = True
        text = self.expander.text
        if text[begin] != '"':
            self.substitutions_in(node)
            self.keep(begin, end)
            return
        position = begin + 1
        for child in node.children[1:-1]:
            start, stop = child.start_byte + self.offset, child.end_byte + self.offset
            self.inside(position, start)  # the grammar leaves out blanks at the ends of what a string holds
            if child.type in ("simple_expansion", "expansion", "command_substitution", "arithmetic_expansion"):
                self.read(child, quoted=True, depth=depth + 1)
            else:
                self.inside(start, stop)
            position = stop
        self.inside(position, min(end - 1, len(text)))

    def inside(self, begin: int, end: int) -> None:
        """Text within double quotes, where a backslash is one of four characters' or a line's."""
        position = begin
        for match in ESCAPE.finditer(self.expander.mask, begin, max(begin, end)):
            if match[1] in '"$`\\\n':
                self.keep(position, match.start())
                position = match.end() if match[1] == "\n" else match.start(1)
        self.keep(position, end)

    def variable(self, node: "Node", begin: int, end: int, *, quoted: bool) -> None:
        place = self.expander.places[begin]
        values = resolved(node, self.expander)
        if values is None:
            self.substitutions_in(node)
            self.keep(begin, end)
            return
        if not self.split:
            values = [" ".join(values)]
        elif not quoted and not any(SUBSTITUTED.search(value) for value in values):
            values = " ".join(values).split()
        for number, value in enumerate(values):
            if number:
                self.flush()
            self.add(value, place)

    def substitution(self, node: "Node", begin: int, end: int) -> None:
        value = printed(node, self.expander)
        if value is not None:
            self.quoted = True
            self.add(value, self.expander.places[begin])
            return
        self.expander.substitutions.append(node)
        self.keep(begin, end)

    def substitutions_in(self, node: "Node") -> None:
        pending = [node]
        while pending:
            one = pending.pop()
            if one.type in ("command_substitution", "process_substitution"):
                self.expander.substitutions.append(one)
            else:
                pending += one.children


def adjacent(nodes: Sequence["Node"]) -> list[list["Node"]]:
    """Nodes without a blank between them are one word."""
    groups: list[list[Node]] = []
    for node in nodes:
        if node.type == "comment":
            continue
        if groups and groups[-1][-1].end_byte == node.start_byte:
            groups[-1].append(node)
        else:
            groups.append([node])
    return groups


def resolved(node: "Node", expander: Expander) -> Sequence[str] | None:
    """The value of ``$X`` or ``${X...}``, ``${X}`` if it is unknown; None where only what is written says it."""
    children = [child for child in node.children if child.type not in ("$", "${", "}")]
    if not children:
        return None
    name = _text(children[0])
    every = children[0].type == "subscript"
    if every:
        index = _text(children[0]).partition("[")[2].rstrip("]")
        name = name.partition("[")[0]
        if index not in ("@", "*"):
            return [f"${{{name}}}"]
    if children[0].type not in ("variable_name", "special_variable_name", "subscript"):
        return None
    known = expander.variables.get(name)
    if known is not None:
        known = [one if SIMPLE.search(one) or not SUBSTITUTED.search(one) else f"${{{name}}}" for one in known]
    if len(children) == 1:
        return [f"${{{name}}}"] if known is None else known if every or name in ("@", "*") else known[:1]
    how, rest = children[1].type, children[2:]
    if how in (":-", "-", ":=", "="):
        if known and (known[0] or not how.startswith(":")):
            return known[:1]
        value = expander.value(rest)
        if not value and known is None:  # ${1:-}: what is not given to it is not known
            return [f"${{{name}}}"]
        if how.endswith("="):
            expander.variables.set(name, [value])
        return [value]
    if how in CUTTING and known and all(child.type in ("word", "regex") for child in rest):
        return [_cut(known[0], "".join(map(_text, rest)), *CUTTING[how])]
    return [f"${{{name}}}"] if how != ":+" and how != "+" else None


def _cut(value: str, pattern: str, greedy: bool, start: bool) -> str:
    """``value`` without what ``pattern`` matches at its start or its end."""
    if "$" in value or "`" in value:
        return value
    lengths = range(len(value), -1, -1) if greedy else range(len(value) + 1)
    for length in lengths:
        cut, kept = (
            (value[:length], value[length:]) if start else (value[len(value) - length :], value[: len(value) - length])
        )
        if fnmatchcase(cut, pattern):
            return kept
    return value


def arithmetic(node: "Node", expander: Expander) -> int | None:
    """The value of an expression of whole numbers and known variables; None for any other."""
    try:
        parts = [child for child in node.children if child.is_named]
        return _number(parts[0], expander, 0) if len(parts) == 1 else None
    except (ValueError, ZeroDivisionError, OverflowError, KeyError):
        return None


def _number(node: "Node", expander: Expander, depth: int) -> int:
    if depth > DEEPEST:
        raise ValueError("too deep")
    inner = [child for child in node.children if child.is_named]
    if node.type in ("number", "word"):
        value = int(_text(node), 10)
    elif node.type in ("variable_name", "simple_expansion", "expansion"):
        known = expander.variables.get(_text(inner[0] if inner else node))
        value = int("".join(known[:1]) if known and len(inner) < 2 else "unknown")
    elif node.type == "binary_expression" and len(inner) == 2:
        sign = node.children[1].type
        value = OPERATIONS[sign](_number(inner[0], expander, depth + 1), _number(inner[1], expander, depth + 1))
    elif node.type in ("parenthesized_expression", "unary_expression") and len(inner) == 1:
        value = _number(inner[0], expander, depth + 1)
        sign = node.children[0].type
        value = -value if sign == "-" else value
        if sign not in ("-", "+", "("):
            raise ValueError(sign)
    else:
        raise ValueError(node.type)
    if abs(value) > LARGEST:
        raise ValueError("too large")
    return value


def printed(node: "Node", expander: Expander) -> str | None:
    """What ``$(basename ...)``, ``$(dirname ...)`` or ``$(echo ...)`` of a known word prints; None for any other."""
    commands = [child for child in node.children if child.is_named]
    if len(commands) != 1 or commands[0].type != "command":
        return None
    name, *groups = adjacent(commands[0].children)
    tool = _text(name[0])
    if tool not in ("basename", "dirname", "echo") or not groups:
        return None
    seen = len(expander.substitutions)
    words = [word.text for group in groups for word in expander.words(group, split=True)]
    del expander.substitutions[seen:]
    if not words or any(set(word) & set("$`*?<>") or word.startswith("-") for word in words):
        return None
    if tool == "echo":
        return " ".join(words)
    if tool == "dirname":
        return posixpath.dirname(words[0].rstrip("/")) or "."
    return posixpath.basename(words[0].rstrip("/")).removesuffix("".join(words[1:2]))


def _text(node: "Node") -> str:
    return (node.text or b"").decode()
