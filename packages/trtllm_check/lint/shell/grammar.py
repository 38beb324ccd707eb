"""Shell text to trees of bash's grammar (tree-sitter-bash), whatever the text holds.

What people paste is seldom a whole script: a quote is left open, prose stands between two commands, a loop has lost its
end. So the text is parsed as a whole, then from the first place on that bash would refuse, line by line: with the lines
that a loop or a quote goes on over, and mended where that does not help. Every offset is one of the text.
"""

import re
from bisect import bisect_right
from collections.abc import Iterator
from functools import cache, lru_cache
from typing import TYPE_CHECKING, NamedTuple

from trtllm_check.lint.shell.languages import COMMANDS

if TYPE_CHECKING:
    from tree_sitter import Node, Parser, QueryCursor

STRANGE = re.compile(r"[^\n\t -~]")
WRITES = re.compile(r"\b(?:cat|tee)\b[^\n]*\.(?:py|ya?ml|json|pbtxt|properties)\b")  # what is in it is no shell's
HEREDOC = re.compile(r"<<(?<![<(]<<)(-?)(?![<=])[ \t]*(\\?[\w.-]+|'\\''[^'\n]+'\\''|'[^'\n]+'|\"[^\"\n]+\")")
COMMAND_LINE = re.compile(rf"\n(?:{COMMANDS}|cat |echo |ls |wget |aws )")
SCRIPT_FOLLOWS = re.compile(r"-\w*c['\"]?\s+(?:['\"]?--['\"]?\s+)?\$?$|'\\'$")  # or goes on behind a quote of its own
LINE_END = re.compile(r"\n(?<!\\\n)")
QUOTE = re.compile(r"['\"]")
COMMENT = re.compile(r"[ \t]*#")
APOSTROPHE = re.compile(r"'(?<=[A-Za-z]')(?=[A-Za-z])")
OPENS = re.compile(
    r"\s*(?:(?:if|for|while|until|case|select|function)\b|[\w-]+\s*\(\)|[{(]|\[\[)|=\(|(?:&&|\|\|?|\b(?:then|do|else))\s*$"
)
# What opens on a line, and what has to come on a later one before a longer piece of the text is worth a try.
ENDS = tuple(
    (re.compile(opens), re.compile(ends))
    for opens, ends in (
        (r"\s*if\b|\bthen\s*$|\belse\s*$", r"\bfi\b"),
        (r"\s*(?:for|while|until|select)\b|\bdo\s*$", r"\bdone\b"),
        (r"\s*case\b", r"\besac\b"),
        (r"\s*\{|\{\s*$", r"\}"),
        (r"\s*\(|=\(", r"\)"),
        (r"\s*\[\[", r"\]\]"),
    )
)
QUOTES = {mark: re.compile(mark) for mark in "'\""}
RESERVED = (
    "if",
    "then",
    "elif",
    "else",
    "fi",
    "for",
    "select",
    "while",
    "until",
    "do",
    "done",
    "case",
    "esac",
    "function",
)
INDENT, LONGEST_FENCE = re.compile(r"[ ]*"), 20_000
KEYWORDS = frozenset([*RESERVED, "in", "{", "}", "!", "[[", "]]"])
RESERVED_WORD = re.compile(rf"(?<!\S)(?:{'|'.join(RESERVED)}|!)(?!\S)")
OPERATORS = frozenset(
    ["(", ")", "<", ">", ">>", "<<", "&", "&&", "|", "||", "|&", ";", ";;", "&>", ">&", "<&", "<(", ">("]
)
STEPS = (2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256)
MOST_MENDINGS = 4
MOST_GROWTH = 8  # times the text's own length that lines are parsed again in search of an end
MOST_AT_ONCE = 2_000  # lines; what the parser makes of a longer text full of errors takes it ages
LEAST_REACH = 32  # lines that an opening is followed over where those before it had no end


class Heredoc(NamedTuple):
    """``begin`` and ``end`` of the lines that go into the command at ``position``; ``expands``: variables count."""

    position: int
    begin: int
    end: int
    expands: bool


class Unit(NamedTuple):
    """Statements without an error in them; ``offset`` is what their bytes lack to be places of the text."""

    statements: "tuple[Node, ...]"
    offset: int


class Source(NamedTuple):
    """The text as it is parsed: one byte for each character, and no here-documents."""

    text: str
    heredocs: tuple[Heredoc, ...]


@cache
def _parser() -> "tuple[Parser, QueryCursor]":
    import tree_sitter
    import tree_sitter_bash

    language = tree_sitter.Language(tree_sitter_bash.language())
    quotes = tree_sitter.Query(language, "[(string) (raw_string)] @quote")
    return tree_sitter.Parser(language), tree_sitter.QueryCursor(quotes)


def source_of(text: str, mask: str) -> Source:
    """``mask`` without its here-documents, which ``text`` has as they were written."""
    plain = STRANGE.sub(lambda match: " " if match[0].isspace() else "x", mask)
    heredocs: list[Heredoc] = []
    ends: dict[int, int] = {}  # of a line with here-documents -> where the last of them ends
    parts: list[str] = []
    done = 0
    for match in HEREDOC.finditer(plain):
        if match.start() < done or COMMENT.match(plain, plain.rfind("\n", 0, match.start()) + 1):
            continue
        line = _logical_end(plain, match.end())
        begin = ends.get(line, line + 1)
        name = match[2].strip("'\"\\")
        blanks = "[ \t]*" if match[1] else _of_the_fence(text, match.start())
        last = re.compile(rf"^{blanks}{re.escape(name)}[ \t\r]*$\n?", re.MULTILINE).search(text, min(begin, len(text)))
        blank = " " * len(match[0])
        if last is None and name.isdecimal():
            continue  # a shift
        if last is None and WRITES.search(plain, plain.rfind("\n", 0, match.start()) + 1, line) and begin < len(text):
            heredocs.append(Heredoc(match.start(), begin, len(text), match[2] == name))  # of a text that was cut
            ends[line] = len(text)
            parts += [plain[done : match.start()], blank]
            done = match.end()
            continue
        if last is None:  # as where someone's C++ was pasted
            parts += [plain[done : match.start()], blank]
            done = match.end()
            continue
        heredocs.append(Heredoc(match.start(), begin, last.start(), match[2] == name))
        ends[line] = last.end()
        parts += [plain[done : match.start()], blank]
        done = match.end()
    parts.append(plain[done:])
    joined = "".join(parts)
    for one in heredocs:
        after = joined.find("\n", one.end)
        after = len(joined) if after < 0 else after
        joined = joined[: one.begin] + re.sub(r"[^\n]", " ", joined[one.begin : after]) + joined[after:]
    return Source(joined, tuple(heredocs))


def _of_the_fence(text: str, position: int) -> str:
    """A pattern for the blanks before a here-document's end, where the page indents the whole fence."""
    start = text.rfind("\n", 0, position) + 1
    blanks = INDENT.match(text, start)
    indent = blanks[0] if blanks else ""
    fence = text.rfind(f"\n{indent}```", max(start - LONGEST_FENCE, 0), start) if indent else -1
    return f"(?:{indent})?" if fence >= 0 and f"\n{indent}```" not in text[fence + 1 : start] else ""


def _logical_end(text: str, position: int) -> int:
    end = text.find("\n", position)
    while end > 0 and text[end - 1] == "\\":
        end = text.find("\n", end + 1)
    return len(text) if end < 0 else end


def units(source: str) -> Iterator[Unit]:
    """The statements of ``source``, in order."""
    lines = [0, *(match.end() for match in LINE_END.finditer(source))]
    lines += [len(source)] if lines[-1] < len(source) else []
    number, last = 0, len(lines) - 1
    window = min(last, MOST_AT_ONCE)
    growth = MOST_GROWTH * len(source) + 10_000
    ends = _Ends(source)
    reach = STEPS[-1]
    while number < last:
        begin, end = lines[number], lines[min(number + window, last)]
        unit, good = _sound(source, lines, begin, end)
        if good > begin:
            yield unit
            number = bisect_right(lines, good) - 1
            window = min(window * 2, MOST_AT_ONCE) if good == end else 1
            continue
        window, end = 1, lines[number + 1]
        is_open = _is_open(source[begin:end])
        needed = ends.needed(begin, end) if is_open else 0
        for step in STEPS if is_open else ():
            longer = lines[min(number + step, last)]
            if longer <= needed:
                continue
            growth -= longer - begin
            if growth < 0 or good >= end or step > reach:
                break
            unit, good = _sound(source, lines, begin, longer)
        if is_open:
            reach = STEPS[-1] if good >= end else max(reach // 2, LEAST_REACH)
        if good < end:
            unit, good = Unit(_mended(source[begin:end].removesuffix("\n")), begin), end
        yield unit
        number = bisect_right(lines, good) - 1


class _Ends:
    """Where what opens on a line could end. Lines are asked in order, so the text is searched once for each mark."""

    def __init__(self, source: str) -> None:
        self.source = source
        self.next: dict[re.Pattern[str], int] = {}

    def needed(self, begin: int, end: int) -> int:
        """How far a piece from ``begin`` has to reach to hold an end of all that opens before ``end``."""
        line = self.source[begin:end]
        bare = APOSTROPHE.sub("", line)
        asked = [ends for opens, ends in ENDS if opens.match(line) or opens.search(line)]
        asked += [pattern for mark, pattern in QUOTES.items() if bare.count(mark) % 2]
        return max((self.after(pattern, end) for pattern in asked), default=0)

    def after(self, pattern: re.Pattern[str], end: int) -> int:
        found = self.next.get(pattern, -1)
        if found < end:
            match = pattern.search(self.source, end)
            found = self.next[pattern] = match.start() if match else len(self.source)
        return found


def _parsed(text: str) -> "tuple[Node, list[Node]]":
    """The tree, and the quotes in it that bash would take and nobody meant."""
    parser, quotes = _parser()
    root = parser.parse(text.encode("ascii")).root_node
    found = quotes.captures(root).get("quote", []) if QUOTE.search(text) else []
    return root, sorted((one for one in found if _is_chance(text, one)), key=lambda one: one.start_byte)


def _is_chance(text: str, node: "Node") -> bool:
    """True for the apostrophe of a word, and for a quote that holds the commands of the following lines."""
    begin, end = node.start_byte, node.end_byte
    if APOSTROPHE.match(text, begin):
        return True
    if not COMMAND_LINE.search(text, begin, end):
        return False
    return not SCRIPT_FOLLOWS.search(text, max(begin - 10, 0), begin)


def _sound(source: str, lines: list[int], begin: int, end: int) -> tuple[Unit, int]:
    """The statements between two places up to the first line with an error, and where that line begins."""
    root, chances = _parsed(source[begin:end])
    chance = chances[0].start_byte if chances else end - begin
    kept: list[Node] = []
    good = begin if root.has_error else end
    for child in root.children if root.type != "ERROR" else ():
        if child.has_error or child.is_missing or child.end_byte > chance:
            good = max(begin, lines[bisect_right(lines, begin + child.start_byte) - 1])
            break
        kept.append(child)
    return Unit(tuple(child for child in kept if begin + child.end_byte <= good), begin), good


def _is_open(line: str) -> bool:
    """True for a line that may go on over the next ones."""
    if OPENS.search(line):
        return True
    bare = APOSTROPHE.sub("", line)
    return bare.count("'") % 2 == 1 or bare.count('"') % 2 == 1 or bare.count("(") > bare.count(")")


@lru_cache(maxsize=64)
def _mended(line: str) -> "tuple[Node, ...]":
    """One line that bash refuses, with what is wrong in it taken out."""
    for _ in range(MOST_MENDINGS):
        root, chances = _parsed(line)
        if not root.has_error and not chances:
            return tuple(root.children)
        begin_of_chance = chances[0].start_byte if chances else -1
        line = f"{line[:begin_of_chance]}x{line[begin_of_chance + 1 :]}" if chances else _closed(line, root)
    root, _ = _parsed(_flat(line))
    return () if root.has_error else tuple(root.children)


def _closed(line: str, root: "Node") -> str:
    """``line`` with the first thing mended that is open or stands alone."""
    trouble = next(_troubles(root), None)
    if trouble is None:
        return line
    begin, text = trouble
    if text[:1] in ("'", '"'):
        if APOSTROPHE.match(line, begin):
            return f"{line[:begin]}x{line[begin + 1 :]}"
        broken = line.find("\\\n", begin)
        if broken > begin and line[broken - 1] in " \t":
            return f"{line[: broken - 1]}{text[0]}{line[broken:]}"
        return line + text[0]
    if text in KEYWORDS or text in OPERATORS:
        return line[:begin] + "\n" * len(text) + line[begin + len(text) :]
    return f"{line[:begin]}{'x' * len(text)}{line[begin + len(text) :]}"


def _troubles(node: "Node") -> "Iterator[tuple[int, str]]":
    """Where an error begins, and the mark there."""
    if node.is_missing:
        first = node.parent.children[0] if node.parent else node
        yield first.start_byte, (first.text or b"").decode()
        return
    for child in node.children:
        if node.type == "ERROR" and not child.is_named:
            yield child.start_byte, child.type
        elif child.type == "ERROR" and not child.children:
            text = (child.text or b"").decode()
            yield child.start_byte, text[:1] if text[:1] in "'\"" else text.split()[0] if text.split() else text
        if child.has_error or child.is_missing:
            yield from _troubles(child)


def _flat(line: str) -> str:
    """``line`` as plain words: operators end a command, everything else that means something is a letter."""
    line = re.sub(r"\$\([^()\s]*\)|[<>]\(", lambda match: "x" * len(match[0]), line)
    line = re.sub(r"(?<=\s)\d*>>?[ \t]*[\w./$][^\s;&|()<>]*", lambda match: " " * len(match[0]), line)
    line = re.sub(r"[;&|()]|(?<!\S)[{}](?!\S)", "\n", line)
    line = re.sub(r"\d*[<>]+", lambda match: " " * len(match[0]), line)
    line = RESERVED_WORD.sub(lambda match: " " * len(match[0]), line)
    return re.sub(r"(?!\\\n)[^\w\s./:,@%+=-]", "x", line)
