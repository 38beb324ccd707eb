"""Names of modules and classes that a whole program uses, and neither imports nor makes."""

import ast
import builtins
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from serving_base.yaml_files import read_yaml
from trtllm_check.lint.carriers.python_text import PythonText
from trtllm_check.lint.carriers.used_names import UsedName

FACTS = "loose_names.yml"
ERROR = "NameError"
ELSEWHERE = ("globals", "exec", "eval", "get_ipython", "locals", "vars", "setattr")  # which may make names
# Lines that stand for others, where an import may be among them: not within a function.
LEFT_OUT = re.compile(r"^(?:\.\.\.[ \t]*(?:#.*)?$|…|#[^\n]*(?:\.\.\.|…)|[ \t]*[%!])", re.MULTILINE)
COMMENTED = re.compile(r"^#[ \t]*(?P<name>[a-z]\w*_\w+|[A-Z][A-Z0-9_]+)[ \t]*=[ \t]*(?=[\w\"'\[{(])", re.MULTILINE)
OPENED = "write {name} = ... again, which stands in a comment"
FEWEST = 3  # statements of a program


@cache
def _known() -> dict[str, str]:
    """Name -> the line that imports it."""
    content: dict[str, str] = read_yaml(Path(__file__).with_name(FACTS))
    return {name: line for line, names in content.items() for name in names.split()}


def loose_names(text: PythonText) -> Iterator[UsedName]:
    """Each such name once, where it is used first; nothing of a text that is a part of a program."""
    body = [one for one in text.tree.body if not (isinstance(one, ast.Expr) and isinstance(one.value, ast.Constant))]
    if len(body) < FEWEST or not isinstance(body[0], ast.Import | ast.ImportFrom) or LEFT_OUT.search(text.word.text):
        return
    if any(isinstance(node, ast.ImportFrom) and node.names[0].name == "*" for node in text.nodes):
        return
    if len(set(text.word.places[:FEWEST])) < FEWEST:
        return  # the import was put in front of a piece
    used = [node for node in text.nodes if isinstance(node, ast.Name)]
    if any(node.id in ELSEWHERE for node in used):
        return
    bound = _bound(text) | set(dir(builtins))
    annotations = _annotations(text)
    instead = {**_commented(text.word.text), **_known()}
    seen: set[str] = set()
    for node in sorted(used, key=lambda one: (one.lineno, one.col_offset)):
        is_loose = node.id in instead and node.id not in bound and isinstance(node.ctx, ast.Load)
        if is_loose and node.id not in seen and id(node) not in annotations:
            seen.add(node.id)
            yield UsedName(node.id, text.at(node), member=instead[node.id].format(name=node.id), error=ERROR)


def _commented(text: str) -> dict[str, str]:
    """Name -> what to do, of names that a comment gives a value: ``# role_name = "x"``."""
    return {match["name"]: OPENED for match in COMMENTED.finditer(text)}


def _bound(text: PythonText) -> set[str]:
    """All that any place of the text gives a value."""
    found: set[str] = set()
    for node in text.nodes:
        if isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Load):
            found.add(node.id)
        elif isinstance(node, ast.arg):
            found.add(node.arg)
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            found.add(node.name)
        elif isinstance(node, ast.alias):
            found.add(node.asname or node.name.partition(".")[0])
        elif isinstance(node, ast.ExceptHandler | ast.MatchAs | ast.MatchStar) and node.name:
            found.add(node.name)
        elif isinstance(node, ast.Global | ast.Nonlocal):
            found |= set(node.names)
    return found


def _annotations(text: PythonText) -> set[int]:
    """The names in annotations, which need not be there where they are not evaluated."""
    found: set[int] = set()
    for node in text.nodes:
        held = [getattr(node, "annotation", None), getattr(node, "returns", None)]
        found |= {id(inner) for one in held if isinstance(one, ast.AST) for inner in ast.walk(one)}
    return found
