"""Answers that Python reads over HTTP: a chat's choice has a message, a completion's a text."""

import ast
from collections.abc import Iterator, Mapping

from trtllm_check.lint.carriers.faults import FormFault
from trtllm_check.lint.carriers.python_text import PythonText, fault

CHAT, TEXT = "/chat/completions", "/v1/completions"
# What is asked for, and is not there -> the form of what is said.
WRONG: Mapping[str, Mapping[str, str]] = {CHAT: {"text": "chat text"}, TEXT: {"message": "completion message"}}
KEYS = frozenset(key for forms in WRONG.values() for key in forms)
DEEPEST = 3


def answer_faults(text: PythonText) -> Iterator[FormFault]:
    """``requests.post(".../v1/chat/completions").json()["choices"][0]["text"]``."""
    paths = _answers(text)
    if not paths:
        return
    for node in text.nodes:
        if not isinstance(node, ast.Subscript) or _key(node) not in KEYS:
            continue
        form = WRONG.get(_path_of(node.value, paths, text), {}).get(str(_key(node)), "")
        if form:
            yield fault(text, node, form, written=ast.unparse(node))


def _answers(text: PythonText) -> dict[str, str]:
    """The names that are set once, to the answer of a POST -> the path that was asked."""
    found: dict[str, str] = {}
    for call in text.calls:
        if isinstance(call.func, ast.Attribute) and call.func.attr == "post":
            given = [*call.args[:1], *(one.value for one in call.keywords if one.arg == "url")]
            path = _asked(given[0], text, 0) if given else ""
            if path:
                found |= {name: path for name in text.targets_of(call) if len(text.values_of(name)) == 1}
    return found


def _asked(url: ast.expr, text: PythonText, depth: int) -> str:
    """The path that ``url`` ends with, of the two; "" for another one, and for what is not told."""
    end = url
    if isinstance(url, ast.JoinedStr) and url.values:
        end = url.values[-1]
    elif isinstance(url, ast.BinOp) and isinstance(url.op, ast.Add):
        end = url.right
    if isinstance(end, ast.Constant) and isinstance(end.value, str):
        return next((path for path in WRONG if end.value.rstrip("/").endswith(path)), "")
    if isinstance(end, ast.Name) and depth < DEEPEST:
        values = text.values_of(end.id)
        return _asked(values[0], text, depth + 1) if len(values) == 1 else ""
    return ""


def _path_of(choice: ast.expr, paths: Mapping[str, str], text: PythonText) -> str:
    """The path behind ``answer["choices"][0]``."""
    of = choice.value if isinstance(choice, ast.Subscript) else None
    if not isinstance(of, ast.Subscript) or _key(of) != "choices":
        return ""
    owner = of.value
    if isinstance(owner, ast.Name):
        values = text.values_of(owner.id)
        owner = values[0] if len(values) == 1 else owner
    owner = owner.value if isinstance(owner, ast.Await) else owner
    func = owner.func if isinstance(owner, ast.Call) else None
    is_read = isinstance(func, ast.Attribute) and func.attr == "json" and isinstance(func.value, ast.Name)
    return paths.get(ast.unparse(func.value), "") if is_read and isinstance(func, ast.Attribute) else ""


def _key(node: ast.Subscript) -> object:
    return node.slice.value if isinstance(node.slice, ast.Constant) else None
