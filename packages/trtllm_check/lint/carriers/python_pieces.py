"""Pieces of Python's syntax that values come from: entries of dictionaries, defaults, the blocks of statements."""

import ast
import re

OF_VERSIONS = re.compile(r"version|hasattr|signature|inspect|__fields__|getattr|_has_|find_spec", re.IGNORECASE)


def blocks(tree: ast.Module) -> dict[int, int]:
    """Statement -> the block that it stands in, told by its first statement; 0 where the version decides on it."""
    found: dict[int, int] = {}
    for node in ast.walk(tree):
        is_of_versions = isinstance(node, ast.If) and OF_VERSIONS.search(ast.unparse(node.test)) is not None
        for name in ("body", "orelse", "finalbody"):
            block = getattr(node, name, None)
            statements: list[ast.AST] = block if isinstance(block, list) else []
            for one in statements:
                found[id(one)] = 0 if is_of_versions else id(statements[0])
    return found


def entries_of(node: ast.expr) -> list[tuple[ast.Constant, ast.expr]] | None:
    """Keys and values of a dictionary that tells them all."""
    if isinstance(node, ast.Call) and ast.unparse(node.func) == "dict" and not node.args:
        return _of_keywords(node)
    if not isinstance(node, ast.Dict):
        return None
    pairs = [(key, value) for key, value in zip(node.keys, node.values, strict=True) if isinstance(key, ast.Constant)]
    return pairs if len(pairs) == len(node.keys) else None


def _of_keywords(node: ast.Call) -> list[tuple[ast.Constant, ast.expr]] | None:
    pairs = [(ast.copy_location(ast.Constant(one.arg), one), one.value) for one in node.keywords if one.arg]
    return pairs if len(pairs) == len(node.keywords) else None


def set_by(node: ast.Call) -> list[tuple[ast.Constant, ast.expr]] | None:
    """What a method of a dictionary sets; None for another method, and where that is not told."""
    method = node.func.attr if isinstance(node.func, ast.Attribute) else ""
    if method == "update" and len(node.args) == 1 and not node.keywords:
        return entries_of(node.args[0])
    if method == "update" and not node.args:
        return _of_keywords(node)
    if method == "setdefault" and len(node.args) == 2 and isinstance(node.args[0], ast.Constant):
        return [(node.args[0], node.args[1])]
    return None


def parts_of(target: ast.Tuple | ast.List, value: ast.expr) -> list[ast.expr]:
    """The values of ``a, b = 1, 2``, () where they are not told apart."""
    if not isinstance(value, ast.Tuple | ast.List) or len(value.elts) != len(target.elts):
        return []
    return [] if any(isinstance(one, ast.Starred) for one in value.elts) else value.elts


def of_click(node: ast.FunctionDef | ast.AsyncFunctionDef, name: str) -> ast.expr | None:
    """The default that ``@click.option("--name", default=...)`` gives to a parameter."""
    for one in node.decorator_list:
        is_option = isinstance(one, ast.Call) and ast.unparse(one.func).rpartition(".")[2] == "option"
        if not is_option or not isinstance(one, ast.Call):
            continue
        flags = [str(each.value) for each in one.args if isinstance(each, ast.Constant)]
        if name in {flag.lstrip("-").replace("-", "_") for flag in flags}:
            return next((each.value for each in one.keywords if each.arg == "default"), None)
    return None


def is_plain(node: ast.expr | None) -> bool:
    """True for a default that somebody meant: a text or a number."""
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        node = node.operand
    if not isinstance(node, ast.Constant) or isinstance(node.value, bool):
        return False
    return isinstance(node.value, int | float) or (isinstance(node.value, str) and bool(node.value.strip()))


def entry_of(node: ast.Dict, key: object) -> ast.expr | None:
    found = [
        value
        for one, value in zip(node.keys, node.values, strict=True)
        if isinstance(one, ast.Constant) and one.value == key
    ]
    return found[0] if len(found) == 1 else None


def as_pairs(node: ast.expr | None) -> ast.Dict | None:
    """A dictionary, and a list of pairs as one."""
    if isinstance(node, ast.Dict):
        return node
    if not isinstance(node, ast.List | ast.Tuple) or not node.elts:
        return None
    pairs = [one.elts for one in node.elts if isinstance(one, ast.Tuple | ast.List) and len(one.elts) == 2]
    if len(pairs) != len(node.elts):
        return None
    return ast.copy_location(ast.Dict([first for first, _ in pairs], [second for _, second in pairs]), node)
