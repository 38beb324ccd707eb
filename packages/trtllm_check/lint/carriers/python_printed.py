"""Commands that Python prints, writes line by line, or tells in a docstring."""

import ast
from collections.abc import Iterator

from trtllm_check.lint.carriers.printed import commands_in, of_lines
from trtllm_check.lint.carriers.python_words import PythonWords, called_name
from trtllm_check.lint.carriers.script import Script
from trtllm_check.lint.shell import Word

PRINTS = frozenset(
    {*("print", "echo", "secho", "info", "warning", "error", "debug", "success", "write", "log", "rule", "markdown")}
)
TEXTS = (ast.Constant, ast.JoinedStr, ast.BinOp, ast.Call)
BODIES = ("body", "orelse", "finalbody")


def printed(code: PythonWords, script: Script) -> set[int]:
    """Adds the commands to ``script``; the nodes that are read with them."""
    done: set[int] = set()
    for nodes, text in _texts(code):
        commands = list(commands_in(text))
        for command in commands:
            script.line(command)
        if commands or not _is_joined(nodes[0]):  # what is printed and is no command is a sentence
            done |= {id(inner) for node in nodes for inner in ast.walk(node)}
    return done


def _texts(code: PythonWords) -> Iterator[tuple[list[ast.expr], Word]]:
    for node in ast.walk(code.tree):
        for name in BODIES:
            block = getattr(node, name, None)
            if isinstance(block, list):
                yield from _runs(code, block)
        if isinstance(node, ast.Call) and _is_lines(node):
            listed = code.listed(node.args[0])
            if listed:
                yield [node], of_lines(listed)


def _is_joined(node: ast.expr) -> bool:
    return isinstance(node, ast.Call) and _is_lines(node)


def _is_lines(node: ast.Call) -> bool:
    """True for ``"\\n".join([...])``."""
    func = node.func
    if not (isinstance(func, ast.Attribute) and func.attr == "join" and isinstance(func.value, ast.Constant)):
        return False
    return isinstance(func.value.value, str) and "\n" in func.value.value and bool(node.args)


def _runs(code: PythonWords, block: list[ast.stmt]) -> Iterator[tuple[list[ast.expr], Word]]:
    """What statements one after the other print."""
    nodes: list[ast.expr] = []
    lines: list[Word] = []
    for statement in [*block, None]:
        call = statement.value if isinstance(statement, ast.Expr) else None
        if isinstance(call, ast.Call) and called_name(call) in PRINTS:
            first = call.args[0] if call.args else None
            text = code.value(first) if isinstance(first, TEXTS) else None
            is_line = text is None or "\n" not in text.text.strip()
            if is_line and text is not None and first is not None:
                nodes.append(first)
            lines.append(text if is_line and text is not None else Word("", *code.place(call)))
        elif nodes:
            yield nodes, of_lines(lines)
            nodes, lines = [], []
