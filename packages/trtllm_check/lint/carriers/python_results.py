"""What calls of engines and clients give, and what code takes of it: attributes and entries that are not there."""

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

from serving_base.yaml_files import read_yaml
from trtllm_check.lint.carriers.faults import FormFault
from trtllm_check.lint.carriers.python_text import PythonText, fault
from trtllm_check.lint.carriers.used_names import made_objects, of_an_object

FACTS = "python_results.yml"
LIST, GENERATOR, COROUTINE, STREAM = "[", "~", "+", ">"
DEEPEST = 8
LONGEST = 60


@cache
def _facts() -> dict[str, Any]:
    content: dict[str, Any] = read_yaml(Path(__file__).with_name(FACTS))
    return content


def result_faults(text: PythonText) -> Iterator[FormFault]:
    """All faults of what is taken of results."""
    if not any(name.partition(".")[0] in _facts()["calls"] for name in text.names.values()):
        return
    kinds = _Kinds(text)
    for node in text.nodes:
        if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Load):
            yield from _attribute(text, node, kinds.of(node.value))
        elif isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Load):
            yield from _entry(text, node, kinds.of(node.value))
        elif isinstance(node, ast.Call) and kinds.of(node.func) in _facts()["types"]:
            kind = _called(kinds.of(node.func))
            yield fault(text, node.func, "no function", written=_written(node.func), kind=kind)
        elif isinstance(node, ast.Await):
            kind = kinds.of(node.value)
            if kind and kind[0] not in (COROUTINE, GENERATOR, STREAM) and not kind.startswith("openai."):
                yield fault(text, node, "await value", written=_written(node.value), kind=_called(kind))


def _attribute(text: PythonText, node: ast.Attribute, kind: str) -> Iterator[FormFault]:
    name, owner = node.attr, _written(node.value)
    if kind.startswith(LIST):
        if name not in _facts()["of_a_list"].split():
            yield fault(text, node, "attribute of a list", owner=owner, name=name)
    elif kind.startswith(STREAM):
        if name == "choices":
            yield fault(text, node, "attribute of a stream", owner=owner, name=name)
    elif known := _facts()["types"].get(kind):
        is_there = name in known["has"].split() if "has" in known else name not in known["lacks"].split()
        if not is_there and not name.startswith("_"):
            right = known.get("write", {}).get(name, "")
            instead = f"write {owner}{right}" if right else "take what it has"
            yield fault(
                text, node, f"no attribute{_of_ours(kind)}", kind=_called(kind), name=name, owner=owner, instead=instead
            )


def _entry(text: PythonText, node: ast.Subscript, kind: str) -> Iterator[FormFault]:
    key = node.slice.value if isinstance(node.slice, ast.Constant) else None
    if kind.startswith(LIST):
        if isinstance(key, str):
            yield fault(text, node, "key of a list", written=_written(node), owner=_written(node.value))
    elif kind and kind[0] not in (COROUTINE, GENERATOR, STREAM) and isinstance(key, str | int):
        right = f"{_written(node.value)}.{key}" if isinstance(key, str) else f"{_written(node.value)} itself"
        yield fault(
            text, node, f"no subscript{_of_ours(kind)}", written=_written(node), kind=_called(kind), instead=right
        )


def _of_ours(kind: str) -> str:
    """What answers of TensorRT-LLM are said of: before 0.11 they were of another class."""
    return " of ours" if kind.startswith("tensorrt_llm.") and kind.endswith("Output") else ""


def _written(node: ast.expr) -> str:
    return ast.unparse(node)[:LONGEST]


def _called(kind: str) -> str:
    """``list`` and ``RequestOutput``; the choices of answers have one name."""
    name = kind.rpartition(".")[2]
    return "list" if kind.startswith(LIST) else "Choice" if name in ("ChatChoice", "ChunkChoice") else name


class _Kinds:
    """The kinds of expressions: what a call gives, what a name is bound to everywhere in the text."""

    def __init__(self, text: PythonText) -> None:
        self.text = text
        packages = frozenset(_facts()["calls"])
        self.made = made_objects(text, packages)
        self.bound: dict[str, list[tuple[ast.expr, str] | None]] = {}
        for node in text.nodes:
            self._bind(node)

    def _bind(self, node: ast.AST) -> None:
        """``name = value`` and ``for name in value``; None for what is bound in another way."""
        if isinstance(node, ast.Assign | ast.AnnAssign) and node.value is not None:
            for target in node.targets if isinstance(node, ast.Assign) else [node.target]:
                self._target(target, node.value, "")
        elif isinstance(node, ast.For | ast.comprehension):
            self._target(node.target, node.iter, "async" if getattr(node, "is_async", 0) else "item")
        elif isinstance(node, ast.AsyncFor):
            self._target(node.target, node.iter, "async")
        elif isinstance(node, ast.arg):
            self.bound.setdefault(node.arg, []).append(None)
        elif isinstance(node, ast.NamedExpr):
            self._target(node.target, node.value, "")
        elif isinstance(node, ast.AugAssign | ast.withitem):
            held = node.target if isinstance(node, ast.AugAssign) else node.optional_vars
            for one in ast.walk(held) if held is not None else ():
                if isinstance(one, ast.Name):
                    self.bound.setdefault(one.id, []).append(None)

    def _target(self, target: ast.expr, value: ast.expr, how: str) -> None:
        if isinstance(target, ast.Name | ast.Attribute):
            self.bound.setdefault(ast.unparse(target), []).append((value, how))
        elif isinstance(target, ast.Tuple | ast.List):
            parts = _gone_through(value, len(target.elts)) if how == "item" else []
            for number, one in enumerate(target.elts):
                part = parts[number] if number < len(parts) else None
                if isinstance(one, ast.Name):
                    self.bound.setdefault(one.id, []).append((part, how) if part is not None else None)
                else:
                    for inner in ast.walk(one):
                        if isinstance(inner, ast.Name):
                            self.bound.setdefault(inner.id, []).append(None)

    def of(self, node: ast.expr, depth: int = 0) -> str:
        """The kind; "" for what is not told."""
        if depth > DEEPEST:
            return ""
        if isinstance(node, ast.Call):
            return self._given(node, depth)
        if isinstance(node, ast.Await):
            kind = self.of(node.value, depth + 1)
            return kind[1:] if kind.startswith(COROUTINE) else ""
        if isinstance(node, ast.Attribute) and ast.unparse(node) not in self.bound:
            known = _facts()["types"].get(self.of(node.value, depth + 1), {})
            return str(known.get("gives", {}).get(node.attr, ""))
        if isinstance(node, ast.Name | ast.Attribute):
            return self._of_a_name(ast.unparse(node), depth)
        if isinstance(node, ast.Subscript):
            kind = self.of(node.value, depth + 1)
            if not kind.startswith(LIST):
                return ""
            key = node.slice.value if isinstance(node.slice, ast.Constant) else None
            return kind if isinstance(node.slice, ast.Slice) else "" if isinstance(key, str) else kind[1:-1]
        return ""

    def _of_a_name(self, name: str, depth: int) -> str:
        kinds = set()
        for one in self.bound.get(name, [None]):
            if one is None:
                return ""
            value, how = one
            kind = self.of(value, depth + 1)
            if how == "item":
                kind = kind[1:-1] if kind.startswith(LIST) else kind[1:] if kind.startswith(STREAM) else ""
            elif how == "async":
                kind = kind[1:] if kind.startswith((GENERATOR, STREAM)) else ""
            kinds.add(kind)
        return kinds.pop() if len(kinds) == 1 else ""

    def _given(self, node: ast.Call, depth: int) -> str:
        call = self.text.meant.get(id(node), node)
        if isinstance(call.func, ast.Name) and call.func.id == "tqdm" and call.args:
            return self.of(call.args[0], depth + 1)
        dotted = self.text.dotted(call.func) or of_an_object(call.func, self.made)
        package, _, behind = dotted.partition(".")
        parts = [one for one in behind.split(".") if not one.startswith("from_")]
        calls = _facts()["calls"].get(package, {})
        names = (".".join(parts[start:]) for start in range(len(parts)))
        return self._weighed(str(next((calls[name] for name in names if name in calls), "")), call)

    def _weighed(self, kind: str, call: ast.Call) -> str:
        """The kind with what the arguments make of it."""
        given = {one.arg: one.value for one in call.keywords}
        sign, plain = ("+", kind[1:]) if kind.startswith(COROUTINE) else ("", kind)
        if plain in _facts()["of_stream"]:
            stream = given.get("stream")
            if None in given or (stream is not None and not isinstance(stream, ast.Constant)):
                return ""
            if isinstance(stream, ast.Constant) and stream.value is True:
                return f"{sign}{_facts()['of_stream'][plain]}"
        if kind in _facts()["of_list"]:
            first = call.args[0] if call.args else given.get("inputs")
            values = self.text.values_of(first.id) if isinstance(first, ast.Name) else [first]
            first = values[0] if len(values) == 1 else None
            if isinstance(first, ast.List | ast.ListComp):
                return f"[{kind}]"
            is_text = isinstance(first, ast.Constant) and isinstance(first.value, str)
            return kind if is_text or isinstance(first, ast.JoinedStr) else ""
        return kind


def _gone_through(value: ast.expr, count: int) -> list[ast.expr | None]:
    """What the parts of a target come from: ``for number, one in enumerate(ones)``, ``for a, b in zip(x, y)``."""
    if not isinstance(value, ast.Call) or not isinstance(value.func, ast.Name):
        return []
    if value.func.id == "enumerate" and value.args and count == 2:
        return [None, value.args[0]]
    return [*value.args] if value.func.id == "zip" and len(value.args) == count else []
