"""What a call of Python is given by name: its keywords, those of ``**options``, and what ``partial`` holds already."""

import ast
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from trtllm_check.lint.carriers.python_fields import fields_of, returned
from trtllm_check.lint.carriers.python_values import Values

VARIABLES = ("os.getenv", "os.environ.get", "getenv", "environ.get")  # which may give a default
DOWNLOAD = "snapshot_download"
CASTS: Mapping[str, Callable[[Any], str | int | float]] = {"int": int, "float": float, "str": str}
PARTIAL = ("partial", "functools.partial")
DEEPEST = 8


class GivenKeyword(NamedTuple):
    """One keyword of a call, where it is written, and its value."""

    name: str
    at: ast.expr | ast.keyword
    value: ast.expr


def spread(node: ast.Call, names: Values, *, is_ours: bool = True) -> ast.Call:
    """The same call with all that is told of it: what ``**options`` and ``partial`` hold, and constants of names.

    ``is_ours``: names and variables with one value are put in, too. What is not told stays as it is.
    """
    func, args, keywords = node.func, list(node.args), list(node.keywords)
    made = names.known(func) if isinstance(func, ast.Name | ast.Attribute) else None
    if isinstance(made, ast.Call) and made.args and ast.unparse(made.func) in PARTIAL:
        given = {one.arg for one in keywords}
        keywords = [*(one for one in made.keywords if one.arg not in given), *keywords]
        func, args = made.args[0], [*made.args[1:], *args]
    if any(one.arg is None for one in keywords):
        keywords = [each for one in keywords for each in _spread_keyword(one, names)]
    if is_ours:
        args = [_spread_value(one, names) for one in args]
        keywords = [
            ast.copy_location(ast.keyword(one.arg, value), one)
            if one.arg is not None and (value := _spread_value(one.value, names)) is not one.value
            else one
            for one in keywords
        ]
    if func is node.func and args == node.args and keywords == node.keywords:
        return node
    return ast.copy_location(ast.Call(func, args, keywords), node)


def _spread_keyword(one: ast.keyword, names: Values) -> list[ast.keyword]:
    if one.arg is not None:
        return [one]
    found, more = entries(one.value, names)
    inside = [ast.copy_location(ast.keyword(each.name, each.value), each.at) for each in found]
    return [*inside, one] if more else inside


def _spread_value(node: ast.expr, names: Values) -> ast.expr:
    if not isinstance(node, ast.Name | ast.Attribute | ast.Call | ast.UnaryOp):
        return node
    known = constant(node, names)
    return ast.copy_location(ast.Constant(known.value), node) if known is not None else node


def given_to(node: ast.Call, names: Values) -> tuple[list[GivenKeyword], bool]:
    """The keywords of a call with those of ``**options`` where the code tells them; True where more come."""
    found: list[GivenKeyword] = []
    more = False
    for one in node.keywords:
        if one.arg is not None:
            found.append(GivenKeyword(one.arg, one, one.value))
            continue
        inside, others = entries(one.value, names)
        found += inside
        more = more or others
    return found, more


def entries(node: ast.expr, names: Values, depth: int = 0) -> tuple[list[GivenKeyword], bool]:
    """What ``**node`` gives, and whether there may be more of it."""
    if depth > DEEPEST:
        return [], True
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "dict" and not node.args:
        return given_to(node, names)
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.BitOr):
        (left, more), (right, others) = (entries(one, names, depth + 1) for one in (node.left, node.right))
        later = {one.name for one in right}
        return [*(one for one in left if one.name not in later), *right], more or others
    if (told := fields_of(node, names)) is not None:
        return [GivenKeyword(*one) for one in told.fields], told.is_open
    if isinstance(node, ast.Call) and (given := returned(node, names)) is not None:
        return entries(given, names, depth + 1)
    if not isinstance(node, ast.Dict):
        return _named(node, names, depth)
    found: list[GivenKeyword] = []
    more = False
    for key, value in zip(node.keys, node.values, strict=True):
        if key is None:
            inside, others = entries(value, names, depth + 1)
            found += inside
            more = more or others
        elif isinstance(key, ast.Constant) and isinstance(key.value, str):
            found.append(GivenKeyword(key.value, key, value))
        else:
            more = True
    return found, more


def _named(node: ast.expr, names: Values, depth: int) -> tuple[list[GivenKeyword], bool]:
    """A name of a dictionary, with the entries that are set later: ``options["seed"] = 1``."""
    known = names.known(node)
    if known is not None:
        return entries(known, names, depth + 1)
    grown = names.grown(node)
    if grown is None:
        return [], True
    start, added = grown
    found, _ = entries(start, names, depth + 1)
    for key, value, *_ in added:
        found = [one for one in found if key is None or one.name != key.value]
        if key is not None and isinstance(key.value, str) and value is not None:
            found.append(GivenKeyword(key.value, key, value))
    return found, any(one.value is None for one in added)


def _downloaded(node: ast.Call, names: Values, depth: int) -> ast.Constant | None:
    """The model whose folder ``snapshot_download("owner/name")`` is; None for a part of one."""
    given = {one.arg: one.value for one in node.keywords}
    repository = node.args[0] if node.args else given.get("repo_id")
    is_part = any(name is None or name.endswith("patterns") for name in given)
    return constant(repository, names, depth + 1) if repository is not None and not is_part else None


def constant(node: ast.expr, names: Values, depth: int = 0) -> ast.Constant | None:
    """The constant that an expression is: a name that is set once, ``int(...)`` of one, a default of a variable."""
    if isinstance(node, ast.Constant) or depth > DEEPEST:
        return node if isinstance(node, ast.Constant) else None
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub) and isinstance(node.operand, ast.Constant):
        number = node.operand.value
        if isinstance(number, bool) or not isinstance(number, int | float):
            return None
        return ast.copy_location(ast.Constant(-number), node)
    if isinstance(node, ast.Name | ast.Attribute | ast.Subscript):
        known = names.known(node)
        return constant(known, names, depth + 1) if known is not None else None
    if isinstance(node, ast.BoolOp) and isinstance(node.op, ast.Or) and len(node.values) == 2:
        first = node.values[0]
        is_read = isinstance(first, ast.Call) and ast.unparse(first.func) in VARIABLES and len(first.args) == 1
        return constant(node.values[1], names, depth + 1) if is_read else None
    if isinstance(node, ast.Call) and ast.unparse(node.func).rpartition(".")[2] == DOWNLOAD:
        return _downloaded(node, names, depth)
    if not isinstance(node, ast.Call) or node.keywords:
        return None
    func = ast.unparse(node.func)
    if func in VARIABLES and len(node.args) == 2:
        return constant(node.args[1], names, depth + 1)
    if func in CASTS and len(node.args) == 1:
        inner = constant(node.args[0], names, depth + 1)
        try:
            return ast.copy_location(ast.Constant(CASTS[func](inner.value)), node) if inner is not None else None
        except (TypeError, ValueError):
            return None
    return None
