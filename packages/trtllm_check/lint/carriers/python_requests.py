"""Requests that Python sends over HTTP: the address and the JSON body, with names, f-strings and ``json.dumps`` read.

``requests``, ``httpx``, ``aiohttp``, ``urllib`` and locust's clients alike. What is not told in a body is unknown: a
text of the form ``${name}``. A body that grows in ways which nobody can follow is none.
"""

import ast
import re
from collections.abc import Iterator
from functools import cached_property
from typing import Any

from trtllm_check.lint.carriers.python_words import PythonWords, called_name
from trtllm_check.lint.carriers.script import unknown
from trtllm_check.lint.carriers.sent import SentRequest
from trtllm_check.lint.shell.words import Word

SENDS = frozenset({"post", "request", "Request", "stream", "put"})
INVOKES, PREDICTS = ("invoke_endpoint", "invoke_endpoint_with_response_stream"), "predict"
OF_LMI = frozenset({"inputs", "parameters", "prompt", "messages"})
INVOCATIONS = "/invocations"
BODIES = ("json", "data", "content", "body")
SERVED = re.compile(
    r"/v1/completions|/chat/completions|/v1/embeddings|/v2/models/|/generate|/invocations|/predictions/"
)
DEEPEST = 12
MOST = 200  # entries of a body


def sent_requests(code: PythonWords) -> Iterator[SentRequest]:
    """All whose address has a path of a model's server, and whose body is told."""
    reader = _Reader(code)
    for node in ast.walk(code.tree):
        if isinstance(node, ast.Call) and called_name(node) in (*INVOKES, PREDICTS):
            yield from _invoked(node, reader)
        if not isinstance(node, ast.Call) or called_name(node) not in SENDS:
            continue
        named = {one.arg: one.value for one in node.keywords if one.arg is not None}
        places = node.args[1:] if called_name(node) in ("request", "stream") else node.args
        where = named.get("url") or next(iter(places), None)
        address = code.value(where) if where is not None else None
        given = next((named[name] for name in BODIES if name in named), next(iter(places[1:2]), None))
        body = reader.dictionary(given) if given is not None else None
        if address is None or body is None or SERVED.search(address.text) is None:
            continue
        fields = reader.fields(body)
        if fields is not None:
            yield SentRequest(address.text, fields, reader.written(body), address)


def _invoked(node: ast.Call, reader: "_Reader") -> Iterator[SentRequest]:
    """``invoke_endpoint(Body=json.dumps(...))`` and ``predictor.predict(...)``, which go to /invocations."""
    is_predict = called_name(node) == PREDICTS
    named = {one.arg: one.value for one in node.keywords if one.arg is not None}
    given = named.get("data") or next(iter(node.args), None) if is_predict else named.get("Body")
    body = reader.dictionary(given) if given is not None else None
    fields = reader.fields(body) if body is not None else None
    if body is not None and fields is not None and (not is_predict or not OF_LMI.isdisjoint(fields)):
        place = reader.code.place(node)
        yield SentRequest(INVOCATIONS, fields, reader.written(body), Word("", *place))


class _Reader:
    def __init__(self, code: PythonWords) -> None:
        self.code = code

    def dictionary(self, node: ast.expr, depth: int = 0) -> ast.Dict | None:
        """The dictionary that ``json.dumps(...)``, ``.encode()`` or a name stands for."""
        if isinstance(node, ast.Dict):
            return node
        if depth > DEEPEST:
            return None
        if isinstance(node, ast.Call) and called_name(node) in ("dumps", "bytes", "jsonable_encoder") and node.args:
            return self.dictionary(node.args[0], depth + 1)
        if isinstance(node, ast.Call) and called_name(node) == "encode" and isinstance(node.func, ast.Attribute):
            return self.dictionary(node.func.value, depth + 1)
        known = self.code.named(node) or self._grown(node)
        return self.dictionary(known, depth + 1) if known is not None and known is not node else None

    def fields(self, node: ast.Dict) -> dict[str, Any] | None:
        """The entries; None where others come from elsewhere."""
        if len(node.keys) > MOST or not all(isinstance(key, ast.Constant) for key in node.keys):
            return None
        found = {str(key.value): self._value(value, 0) for key, value in self._entries(node)}
        for name, value in self.later.get(id(node), ()):
            found[name] = self._value(value, 0)
        return found

    def written(self, node: ast.Dict) -> Word:
        return self.code.word.part(*self.code.span(node))

    def _entries(self, node: ast.Dict) -> Iterator[tuple[ast.Constant, ast.expr]]:
        for key, value in zip(node.keys, node.values, strict=True):
            if isinstance(key, ast.Constant):
                yield key, value

    def _grown(self, node: ast.expr) -> ast.expr | None:
        """A dictionary to which the code adds entries by their names alone."""
        if not isinstance(node, ast.Name):
            return None
        scope = self.code.names.scope_of(node).of(node.id)
        values = scope.assigned[node.id] if scope is not None else []
        (only,) = values if len(values) == 1 else (None,)
        return only if isinstance(only, ast.Dict) and id(only) in self.later else None

    @cached_property
    def later(self) -> dict[int, list[tuple[str, ast.expr]]]:
        """Dictionary -> what ``name["key"] = value`` adds to it; none that something else changes."""
        found: dict[int, list[tuple[str, ast.expr]]] = {}
        changed: set[int] = set()
        for node in ast.walk(self.code.tree):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
                if node.func.attr in ("update", "pop", "setdefault"):
                    changed |= {id(one) for one in self._values_of(node.func.value)}
            elif isinstance(node, ast.Assign) and isinstance(target := node.targets[0], ast.Subscript):
                for one in self._values_of(target.value):
                    if isinstance(target.slice, ast.Constant) and isinstance(target.slice.value, str):
                        found.setdefault(id(one), []).append((target.slice.value, node.value))
                    else:
                        changed.add(id(one))
        return {key: entries for key, entries in found.items() if key not in changed}

    def _values_of(self, node: ast.expr) -> list[ast.expr]:
        scope = self.code.names.scope_of(node).of(node.id) if isinstance(node, ast.Name) else None
        values = scope.assigned[node.id] if scope is not None and isinstance(node, ast.Name) else []
        return [one for one in values if one is not None]

    def _value(self, node: ast.expr, depth: int) -> Any:
        if isinstance(node, ast.Constant):
            return node.value
        if depth < DEEPEST and isinstance(node, ast.List | ast.Tuple):
            return [self._value(one, depth + 1) for one in node.elts]
        if depth < DEEPEST and isinstance(node, ast.Dict):
            return {str(key.value): self._value(value, depth + 1) for key, value in self._entries(node)}
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub) and isinstance(node.operand, ast.Constant):
            number = node.operand.value
            return -number if isinstance(number, int | float) else self._unknown(node)
        known = self.code.named(node) if isinstance(node, ast.Name | ast.Attribute) else None
        if isinstance(known, ast.Constant):
            return known.value
        text = self.code.value(node) if isinstance(node, ast.JoinedStr | ast.BinOp) else None
        return text.text if text is not None else self._unknown(node)

    def _unknown(self, node: ast.expr) -> str:
        return unknown(ast.unparse(node)[:40], self.code.place(node)).text
