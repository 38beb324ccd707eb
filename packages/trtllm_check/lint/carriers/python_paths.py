"""Paths that Python puts together: ``os.path.join(ROOT, "model")``, ``Path(ROOT) / "model"``, ``f"{ROOT}/model"``."""

import ast

from trtllm_check.lint.carriers.python_given import constant
from trtllm_check.lint.carriers.python_values import Values

JOINS = ("os.path.join", "path.join", "osp.join")
SAME = ("str", "Path", "PosixPath", "os.fspath", "pathlib.Path")
DEEPEST = 8


def path_of(node: ast.expr, names: Values) -> str:
    """The path as far as the code tells it, ``.`` for a root that it does not; "" where another part is unknown."""
    parts = _parts(node, names, 0)
    if len(parts) < 2 or not parts[-1] or not all(parts[1:]):
        return ""
    root = (parts[0] or ".").rstrip("/")
    return "/".join([root, *(one.strip("/") for one in parts[1:])])


def _parts(node: ast.expr, names: Values, depth: int) -> list[str]:
    """The parts between slashes, "" for one that is not told."""
    if depth > DEEPEST:
        return [""]
    known = constant(node, names)
    if known is not None and isinstance(known.value, str):
        return [known.value]
    if isinstance(node, ast.Name | ast.Attribute):
        value = names.known(node)
        return _parts(value, names, depth + 1) if isinstance(value, ast.Call | ast.BinOp | ast.JoinedStr) else [""]
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Div):
        return [*_parts(node.left, names, depth + 1), *_parts(node.right, names, depth + 1)]
    if isinstance(node, ast.Call) and not node.keywords:
        called = ast.unparse(node.func)
        if called in JOINS or called in SAME:
            return [part for one in node.args for part in _parts(one, names, depth + 1)] or [""]
    if isinstance(node, ast.JoinedStr) and len(node.values) == 2:
        root, rest = node.values
        is_path = isinstance(rest, ast.Constant) and str(rest.value).startswith("/")
        if isinstance(root, ast.FormattedValue) and isinstance(rest, ast.Constant) and is_path:
            return [*_parts(root.value, names, depth + 1), str(rest.value)]
    return [""]
