"""What a call of Python may be given: entries that a branch sets, and the values that a choice is made of."""

import ast
from collections.abc import Iterator

from trtllm_check.lint.carriers.python_fields import returned
from trtllm_check.lint.carriers.python_given import GivenKeyword, entries
from trtllm_check.lint.carriers.python_values import Values

MOST_GROUPS = 40
MOST_CHOICES = 12


def perhaps_given(node: ast.Call, names: Values) -> Iterator[list[GivenKeyword]]:
    """Each group of keywords that come together, and that a call may or may not be given."""
    number = 0
    for one in node.keywords:
        for group in _groups(one.value, names) if one.arg is None else ():
            if group and number < MOST_GROUPS:
                number += 1
                yield group


def _groups(node: ast.expr, names: Values) -> Iterator[list[GivenKeyword]]:
    if isinstance(node, ast.IfExp):
        for branch in (node.body, node.orelse):
            yield entries(branch, names)[0]
    elif isinstance(node, ast.Dict):
        for key, value in zip(node.keys, node.values, strict=True):
            if key is None:
                yield from _groups(value, names)
    elif isinstance(node, ast.BinOp) and isinstance(node.op, ast.BitOr):
        for side in (node.left, node.right):
            yield from _groups(side, names)
    elif isinstance(node, ast.Call) and (told := returned(node, names)) is not None:
        yield from _groups(told, names)
    elif isinstance(node, ast.Subscript) and not isinstance(node.slice, ast.Constant):
        table = names.known(node.value)
        for value in table.values[:MOST_CHOICES] if isinstance(table, ast.Dict) else ():
            yield entries(value, names)[0]
    elif (grown := names.grown(node)) is not None:
        branches: dict[int, list[GivenKeyword]] = {}
        for one in grown[1]:
            if (
                one.value is None
                and one.branch
                and one.perhaps is not None
                and one.key is not None
                and isinstance(one.key.value, str)
            ):
                given = GivenKeyword(one.key.value, one.key, one.perhaps)
                branches.setdefault(one.branch, []).append(given)
        yield from branches.values()
        yield from _groups(grown[0], names)
    elif (known := names.known(node)) is not None and known is not node:
        yield from _groups(known, names)
