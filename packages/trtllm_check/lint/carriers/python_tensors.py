"""Tensors that Python names: in requests of Triton's clients, and in models of the Python backend.

A value that the code does not write out is unknown: a name from a function's argument, a shape of an array.
"""

import ast
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from trtllm_check.lint.carriers.python_text import PythonText
from trtllm_check.lint.shell import Word

CLIENT = "tritonclient."
INPUT, OUTPUT = "InferInput", "InferRequestedOutput"
ASKS = ("infer", "async_infer", "async_stream_infer", "stream_infer")
ASKED_WITH = {"model_name", "inputs"}
AT_ONCE = ("infer", "async_infer")  # one answer to a request
UTILS = "triton_python_backend_utils"
READS, GIVES = f"{UTILS}.get_input_tensor_by_name", f"{UTILS}.Tensor"
ASKS_ITSELF = f"{UTILS}.InferenceRequest"
SENDS = re.compile(r"response_sender|decoupled", re.IGNORECASE)


class TensorUse(NamedTuple):
    """One name. ``kind``: ``reads``, ``gives`` and ``returns`` of a model; the others of a client.

    ``model``: that the client asks, "" where nothing tells; ``shape``: as far as it is written, None for any size;
    ``protocol``: of the client; ``is_all``: nothing of its kind is named in a way that cannot be read.
    """

    kind: str
    name: str
    place: Word
    model: str = ""
    datatype: str = ""
    shape: tuple[int | None, ...] | None = None
    protocol: str = ""
    is_all: bool = True
    file: str = ""


def tensor_uses(text: PythonText) -> Iterator[TensorUse]:
    """All of them, in the order of the code."""
    modules = set(text.names.values())
    for call in text.calls:
        named = {one.arg for one in call.keywords}
        if _attribute(call) == AT_ONCE[0] and named >= ASKED_WITH and "triton" in ast.unparse(call.func).lower():
            yield TensorUse("asks some", "", text.at(call.func))
    if any(one.startswith(CLIENT) or one == CLIENT[:-1] for one in modules):
        yield from _of_client(text, _Texts(text))
    if any(one.startswith(UTILS) for one in modules):
        yield from _of_model(text, _Texts(text))


def _of_client(text: PythonText, texts: "_Texts") -> Iterator[TensorUse]:
    made = [(call, text.dotted(call.func)) for call in text.calls]
    ours = [(call, name) for call, name in made if name.startswith(CLIENT) and name.endswith((INPUT, OUTPUT))]
    asks = [call for call in text.calls if _attribute(call) in ASKS]
    models = {texts.of(_argument(call, 0, "model_name")) for call in asks}
    model = models.pop() if len(models) == 1 else ""
    protocols = {name.split(".")[1] for _, name in ours}
    protocol = protocols.pop() if len(protocols) == 1 else ""
    is_all = all(texts.of(_argument(call, 0, "name")) for call, _ in ours)
    for call, name in ours:
        first = _argument(call, 0, "name")
        tensor = texts.of(first)
        if not tensor or first is None:
            continue
        kind = "input" if name.endswith(INPUT) else "output"
        datatype = texts.of(_argument(call, 2, "datatype")) if kind == "input" else ""
        shape = _shape(_argument(call, 1, "shape")) if kind == "input" else None
        yield TensorUse(kind, tensor, text.at(first), model, datatype, shape, protocol, is_all)
    for call in asks if model else ():
        if _attribute(call) in AT_ONCE and ours:
            yield TensorUse("asked", model, text.at(call.func), model, protocol=protocol)
    tried = {id(one) for node in text.nodes if isinstance(node, ast.Try) for one in ast.walk(node)} if ours else set()
    for call in text.calls if ours else ():
        if (
            _attribute(call) == "as_numpy"
            and id(call) not in tried
            and call.args
            and (tensor := texts.of(call.args[0]))
        ):
            yield TensorUse("answer", tensor, text.at(call.args[0]), model, protocol=protocol)


def _of_model(text: PythonText, texts: "_Texts") -> Iterator[TensorUse]:
    asks_others = any(text.dotted(call.func) == ASKS_ITSELF for call in text.calls)
    for call in text.calls:
        name = text.dotted(call.func)
        place = _argument(call, 1, "name") if name == READS else _argument(call, 0, "name") if name == GIVES else None
        tensor = texts.of(place)
        if place is not None and tensor and not (name == GIVES and asks_others):
            yield TensorUse("reads" if name == READS else "gives", tensor, text.at(place))
    for call in text.calls:
        if text.dotted(call.func) == ASKS_ITSELF and (model := texts.of(_argument(call, 2, "model_name"))):
            yield from _asked(text, texts, call, model)
    for node in text.nodes:
        if isinstance(node, ast.ClassDef) and not SENDS.search(text.word.text):
            for one in node.body:
                if isinstance(one, ast.FunctionDef | ast.AsyncFunctionDef) and one.name == "execute":
                    yield from _returned(text, one)


def _asked(text: PythonText, texts: "_Texts", call: ast.Call, model: str) -> Iterator[TensorUse]:
    """What a model asks another one for, as far as the call itself names it."""
    outputs, inputs = (_argument(call, 9, name) for name in ("requested_output_names", "inputs"))
    for one in outputs.elts if isinstance(outputs, ast.List | ast.Tuple) else ():
        if name := texts.of(one):
            yield TensorUse("output", name, text.at(one), model)
    for made in inputs.elts if isinstance(inputs, ast.List | ast.Tuple) else ():
        first = _argument(made, 0, "name") if isinstance(made, ast.Call) and text.dotted(made.func) == GIVES else None
        if first is not None and (name := texts.of(first)):
            yield TensorUse("input", name, text.at(first), model, is_all=False)


def _returned(text: PythonText, function: ast.FunctionDef | ast.AsyncFunctionDef) -> Iterator[TensorUse]:
    """``return responses`` of execute, where that is a list of the function's own."""
    lists = {
        one.id
        for node in ast.walk(function)
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.List | ast.ListComp)
        for one in node.targets
        if isinstance(one, ast.Name)
    }
    for node in _own(function.body):
        value = node.value if isinstance(node, ast.Return) else None
        if isinstance(value, ast.List | ast.ListComp) or (isinstance(value, ast.Name) and value.id in lists):
            yield TensorUse("returns", "", text.at(value))


def _own(body: Sequence[ast.AST]) -> Iterator[ast.AST]:
    """What a function does itself, without the functions in it."""
    for node in body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda | ast.ClassDef):
            continue
        yield node
        yield from _own(list(ast.iter_child_nodes(node)))


def _attribute(call: ast.Call) -> str:
    return call.func.attr if isinstance(call.func, ast.Attribute) else ""


def _argument(call: ast.Call, number: int, name: str) -> ast.expr | None:
    named = [one.value for one in call.keywords if one.arg == name]
    return named[0] if named else call.args[number] if len(call.args) > number else None


class _Texts:
    """What names stand for, that are set to a text and to nothing else."""

    def __init__(self, text: PythonText) -> None:
        names = (one for one in text.nodes if isinstance(one, ast.Name) and isinstance(one.ctx, ast.Store))
        stored = Counter(one.id for one in names)
        stored.update(one.arg for one in text.nodes if isinstance(one, ast.arg))
        made = ((node.targets, node.value) for node in text.nodes if isinstance(node, ast.Assign))
        self.names = {
            one.id: value.value
            for targets, value in made
            for one in targets
            if isinstance(value, ast.Constant)
            and isinstance(value.value, str)
            and isinstance(one, ast.Name)
            and stored[one.id] == 1
        }

    def of(self, node: ast.expr | None) -> str:
        """ "" for what is unknown."""
        if isinstance(node, ast.Constant):
            return node.value if isinstance(node.value, str) else ""
        return self.names.get(node.id, "") if isinstance(node, ast.Name) else ""


def _shape(node: ast.expr | None) -> tuple[int | None, ...] | None:
    if not isinstance(node, ast.List | ast.Tuple) or any(isinstance(one, ast.Starred) for one in node.elts):
        return None
    return tuple(one.value if isinstance(one, ast.Constant) and type(one.value) is int else None for one in node.elts)
