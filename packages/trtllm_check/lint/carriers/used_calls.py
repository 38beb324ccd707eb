"""Calls of packages with tables, as the rule on their arguments asks for them: what each is given."""

import ast
from typing import NamedTuple

from trtllm_check.lint.carriers.python_given import VARIABLES, constant
from trtllm_check.lint.carriers.python_text import PythonText
from trtllm_check.lint.carriers.python_values import Values
from trtllm_check.lint.shell import Word

READS = (*VARIABLES, "input")
MADE = {"int": "int", "float": "float", "str": "str", "list": "list", "dict": "dict", "set": "set", "tuple": "tuple"}
LITERALS: tuple[tuple[type[ast.expr], str], ...] = (
    (ast.JoinedStr, "str"),
    (ast.Dict, "dict"),
    (ast.DictComp, "dict"),
    (ast.ListComp, "list"),
    (ast.Set, "set"),
)
LONGEST = 40
DEEPEST = 8


class GivenArgument(NamedTuple):
    """One argument: its name, "" for one by place, where it stands, and what it is.

    ``kind``: ``str``, ``text`` (one that is no number), ``int``, ``float``, ``bool``, ``None``, ``list``,
    ``list_of_str``, ``dict``, a class's name for an object that is made, or "" for what is not told.
    """

    name: str
    at: Word
    kind: str
    written: str


class UsedCall(NamedTuple):
    """``is_open``: more arguments come from elsewhere."""

    places: tuple[GivenArgument, ...]
    names: tuple[GivenArgument, ...]
    is_open: bool = False


def given(text: PythonText, node: ast.Call) -> UsedCall:
    """What a call is given."""
    more = any(one.arg is None for one in node.keywords) or any(isinstance(one, ast.Starred) for one in node.args)
    more = more or any(isinstance(one, ast.Constant) and one.value is ... for one in node.args)  # left out
    places = tuple(GivenArgument("", text.at(one), *_told(text, one)) for one in node.args)
    named = tuple(GivenArgument(one.arg, text.at(one), *_told(text, one.value)) for one in node.keywords if one.arg)
    return UsedCall(places, named, more)


def _told(text: PythonText, node: ast.expr) -> tuple[str, str]:
    """The kind of a value, and how it is written."""
    return _kind(text, node, text.values, 0), ast.unparse(node)[:LONGEST]


def _kind(text: PythonText, node: ast.expr, names: Values, depth: int) -> str:
    if depth > DEEPEST:
        return ""
    known = constant(node, names)
    if known is not None:
        return _of_constant(known.value)
    if isinstance(node, ast.List):
        inner = {_kind(text, one, names, depth + 1) for one in node.elts}
        return "list_of_str" if inner and inner <= {"str", "text"} else "list"
    for kind, name in LITERALS:
        if isinstance(node, kind):
            return name
    if isinstance(node, ast.Subscript) and ast.unparse(node.value) in ("os.environ", "environ"):
        return "str"
    if isinstance(node, ast.Name | ast.Attribute):
        inner_value = names.known(node)
        return _kind(text, inner_value, names, depth + 1) if inner_value is not None else ""
    return _made(text, node) if isinstance(node, ast.Call) else ""


def _made(text: PythonText, node: ast.Call) -> str:
    func = ast.unparse(node.func)
    if func in MADE and func not in text.names:
        return MADE[func]
    if func in READS:
        return "str" if len(node.args) == 2 else ""
    name = text.dotted(node.func).rpartition(".")[2]
    return name if name[:1].isupper() else ""


def _of_constant(value: object) -> str:
    if isinstance(value, str):
        return "str" if _is_number(value) else "text"
    return "None" if value is None else type(value).__name__


def _is_number(value: str) -> bool:
    try:
        float(value)
    except ValueError:
        return False
    return True
