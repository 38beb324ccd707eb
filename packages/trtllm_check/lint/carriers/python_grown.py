"""The shell text of command lines that Python builds piece by piece: the command itself, and each possible part."""

import ast
import re
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice, pairwise
from pathlib import PurePosixPath

from trtllm_check.lint.carriers.python_built import Addition, GrownCommand, built
from trtllm_check.lint.carriers.python_words import PythonWords, called_name, spaced
from trtllm_check.lint.carriers.script import Script, joined, unknown, unknown_arguments
from trtllm_check.lint.programs import ALIASES, PYTHON, TOOL_NAMES, TOOLS
from trtllm_check.lint.shell import Word

IN_FRONT = frozenset(
    {"sudo", "env", "timeout", "nice", "numactl", "stdbuf", "nohup", "tini", "dumb-init", "srun", "taskset"}
)
STARTERS = frozenset({"docker", "mpirun", "tritonserver", "bash", "sh", "git", "pip", "curl"})
SUB_COMMANDS = frozenset({"serve", "bench", "-m", "throughput", "latency", "prepare-dataset"})
HEAD = re.compile(  # a text that begins with a command, up to its tool
    rf"\s*(?:(?:\w+=\S*|sudo|env|cd \S+ &&)\s+)*(?:mpirun\s[^\n]*?)?"
    rf"(?P<tool>python3?\s+(?:-u\s+)?(?:-m\s+\S+|\S+\.py)|(?:\S*/)?(?:{TOOL_NAMES}))(?=\s|$)"
)
LINE_END = "\n"
FIRST_WORDS = 8
MOST_PARTS = 100
TOLD = frozenset({"print", "debug", "info", "warning", "error", "log"})
TOUCHED = ("insert", "pop", "remove", "clear")


def grown(code: PythonWords, script: Script) -> set[int]:
    """Adds the commands to ``script``; the nodes that are read with them."""
    done: set[int] = set()
    marks, touched = dict(_joined(code.tree)), set(_touched(code.tree))
    for one in built(code.tree, code.dicts):
        begun = _begun(one)
        if not (begun.pieces or begun.name in touched):
            continue
        if marks.get(one.name, "") == LINE_END:
            lines = list(_of_lines(code, begun))
        elif begun.is_text:
            lines = list(_of_text(code, begun))
        else:
            lines = list(_of_words(code, begun, is_touched=begun.name in touched))
        for line in lines:
            if begun.is_text or marks.get(one.name, "").isspace():
                script.line(spaced(line, "" if begun.is_text else " ") or joined([]))
            else:
                script.words(line)
        for node in (one.base, *(piece.node for piece in one.pieces)) if lines else ():
            done |= {id(inner) for inner in ast.walk(node)}
            done |= {id(inner) for known in _lists_in(code, node) for inner in ast.walk(known)}
    return done


def _begun(one: GrownCommand) -> GrownCommand:
    """The same, without the empty list or text that it begins with."""
    is_empty = (isinstance(one.base, ast.List) and not one.base.elts) or (
        isinstance(one.base, ast.Constant) and one.base.value == ""
    )
    if not is_empty or not one.always:
        return one
    first, *rest = one.pieces
    if first.bound or first.path != one.path:
        return one
    base: ast.expr = ast.copy_location(ast.List([first.node]), first.node) if first.kind == "word" else first.node
    return GrownCommand(one.name, base, one.path, rest)


def perhaps(code: PythonWords, nodes: Iterable[ast.expr], words: Sequence[Word]) -> Iterator[list[Word]]:
    """The command with each part of ``nodes`` that stands under a condition: ``*(["--x"] if y else [])``."""
    for node in nodes:
        more = unknown_arguments(code.place(node))
        for one in ast.walk(node):
            if isinstance(one, ast.IfExp):
                for branch in (one.body, one.orelse):
                    if group := code.listed(branch) if isinstance(branch, ast.List | ast.Tuple) else []:
                        yield [*_head(words), more, *group, more]
            elif isinstance(one, ast.List | ast.Tuple):
                for flag, value in pairwise(one.elts):
                    name = code.value(flag) if isinstance(flag, ast.Constant) and isinstance(value, ast.IfExp) else None
                    if name is not None and name.text.startswith("--") and isinstance(value, ast.IfExp):
                        for branch in (value.body, value.orelse):
                            if isinstance(branch, ast.Constant) and (given := code.value(branch)) is not None:
                                yield [*_head(words), more, name, given, more]


def is_command(words: Sequence[Word]) -> bool:
    """True for words of which one of the first is a program that the checker knows."""
    if words and " " in words[0].text.strip():
        return False  # a list of whole lines
    names = [PurePosixPath(word.text).name for word in words[:4]]
    first = ALIASES.get(names[0], names[0])
    if first in TOOLS or (first in STARTERS and len(words) > 1):
        return True
    if first in IN_FRONT:
        return any(is_command(words[number:]) for number in range(1, min(len(words), FIRST_WORDS)))
    return PYTHON.fullmatch(first) is not None and any(
        name in TOOLS or name == "-m" or name.endswith(".py") for name in names[1:]
    )


def _of_words(code: PythonWords, one: GrownCommand, *, is_touched: bool) -> Iterator[list[Word]]:
    words = code.listed(one.base)
    if not words or not is_command([*words, *_pieces(code, one.always)][:FIRST_WORDS]):
        return
    more = unknown_arguments(code.place(one.base))
    possible = [(group, found) for group in one.possible if (found := list(_pieces(code, group)))]
    before = list(_pieces(code, (piece for piece in one.always if piece.in_front)))
    always = list(_pieces(code, (piece for piece in one.always if not piece.in_front)))
    whole = [*words, *always]
    yield [*before, *whole, *([more] if possible or is_touched or len(one.possible) else [])]
    order = {id(piece): number for number, piece in enumerate(one.pieces)}
    for group, found in possible[:MOST_PARTS]:
        earlier = (piece for piece in one.always[:FIRST_WORDS] if order[id(piece)] < order[id(group[0])])
        yield [*_head([*words, *_pieces(code, earlier)]), more, *found, more]
    yield from perhaps(code, (one.base, *(piece.node for piece in one.pieces)), whole)


def _of_text(code: PythonWords, one: GrownCommand) -> Iterator[list[Word]]:
    text = code.value(one.base)
    always = [_text(code, piece) for piece in one.always if not piece.in_front]
    head = HEAD.match(joined([text, *always]).text) if text is not None else None
    if text is None or head is None:
        return
    more = unknown_arguments(code.place(one.base))
    blank = Word(" ", more.line, more.column, more.places[:1])
    yield [text, *always, *([blank, more] if one.possible else [])]
    for group in one.possible[:MOST_PARTS]:
        added = [_text(code, piece) for piece in group if not piece.in_front]
        if "".join(word.text for word in added).strip():
            yield [
                joined([text, *always]).part(head.start("tool"), head.end()),
                blank,
                more,
                blank,
                *added,
                blank,
                more,
            ]


def _of_lines(code: PythonWords, one: GrownCommand) -> Iterator[list[Word]]:
    """A script of which each element is a line; lines under a condition belong to the command above them."""
    lines: list[Word] = list(code.listed(one.base))
    possible: list[list[Word]] = []
    more = unknown_arguments(code.place(one.base))
    blank = Word(" ", more.line, more.column, more.places[:1])
    for piece in one.pieces:
        found = list(_pieces(code, [piece]))
        if one.path[: len(piece.path)] == piece.path:
            lines += found
        else:
            heads = ((line, match) for line in reversed(lines) if (match := HEAD.match(line.text)) is not None)
            for line, match in islice(heads, 1):
                possible += [
                    [line.part(match.start("tool"), match.end()), blank, more, blank, _without_end(word)]
                    for word in found
                ]
    if any(HEAD.match(line.text) for line in lines):
        yield from ([line] for line in lines)
        yield from possible


def _without_end(word: Word) -> Word:
    return word.part(0, len(word.text.rstrip().removesuffix("\\").rstrip()))


def _text(code: PythonWords, piece: Addition) -> Word:
    words = code.listed(piece.node)
    found = spaced(words, " ") if words else code.value(piece.node)
    return found or unknown_arguments(code.place(piece.node))


def _pieces(code: PythonWords, pieces: Iterable[Addition]) -> Iterator[Word]:
    for piece in pieces:
        for turn in piece.bound or ({},):
            before, code.bound = code.bound, {**code.bound, **turn}
            if piece.kind == "word":
                yield code.value(piece.node) or unknown("value", code.place(piece.node))
            else:
                words = code.listed(piece.node)
                is_empty = isinstance(piece.node, ast.List | ast.Tuple) and not piece.node.elts
                yield from words or ([] if is_empty else [unknown_arguments(code.place(piece.node))])
            code.bound = before


def _head(words: Sequence[Word]) -> list[Word]:
    """The tool and its sub-command, without what stands in front: docker and mpirun lack nothing in a part."""
    for number, word in enumerate(words):
        name = PurePosixPath(word.text).name
        if name == "-m":
            return list(words[max(number - 1, 0) : number + 2])
        if name in TOOLS or name.endswith(".py"):
            behind = words[number + 1].text if number + 1 < len(words) else ""
            start = max(number - 1, 0) if name.endswith(".py") else number
            return list(words[start : number + (2 if behind in SUB_COMMANDS else 1)])
    return list(words[:1])


def _lists_in(code: PythonWords, node: ast.expr) -> Iterator[ast.expr]:
    """Lists that a name in ``node`` stands for."""
    for one in ast.walk(node):
        if isinstance(one, ast.Name):
            known = code.named(one)
            if isinstance(known, ast.List | ast.Tuple):
                yield known


def _joined(tree: ast.Module) -> Iterator[tuple[str, str]]:
    """Names of lists that become one text for a shell, and with what: ``" ".join(cmd)``, ``"\\n".join(lines)``."""
    shown = {id(one) for node in ast.walk(tree) if _tells(node) for one in ast.walk(node)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and called_name(node) == "join" and len(node.args) == 1 and id(node) not in shown:
            mark = node.func.value if isinstance(node.func, ast.Attribute) else None
            if isinstance(mark, ast.Constant) and isinstance(mark.value, str):
                yield ast.unparse(node.args[0]), mark.value


def _tells(node: ast.AST) -> bool:
    """True for what a program says of the words: ``print(" ".join(cmd))``."""
    return isinstance(node, ast.Call) and called_name(node) in TOLD


def _touched(tree: ast.Module) -> Iterator[str]:
    """Names of lists that change in another way than at their end."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and called_name(node) in TOUCHED and isinstance(node.func, ast.Attribute):
            yield ast.unparse(node.func.value)
        elif isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Store | ast.Del):
            yield ast.unparse(node.value)
