"""Arrays that Python gives to the tensors of Triton's clients: of another type or shape than the tensor was made with.

Only what the code writes out is compared: ``np.array([[64]], dtype=np.int32)``, ``np.zeros((1, 1), np.int32)``,
``.astype(np.int32)``. What the clients say: tritonclient/http/_infer_input.py, tritonclient/grpc/_infer_input.py.
"""

import ast
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from trtllm_check.lint.carriers.faults import FormFault
from trtllm_check.lint.carriers.python_text import PythonText, fault

GIVES = "set_data_from_numpy"
OF_A_LIST = ("numpy.array", "numpy.asarray")
OF_A_SHAPE = ("numpy.zeros", "numpy.ones", "numpy.empty", "numpy.full")
TYPES = {
    **{f"int{bits}": f"INT{bits}" for bits in (8, 16, 32, 64)},
    **{f"uint{bits}": f"UINT{bits}" for bits in (8, 16, 32, 64)},
    **{f"float{bits}": f"FP{bits}" for bits in (16, 32, 64)},
    **dict.fromkeys(("object", "object_", "bytes_"), "BYTES"),
    **dict.fromkeys(("bool", "bool_"), "BOOL"),
}
WRITTEN = {"BYTES": "object", "BOOL": "bool"}
BY_LEAF = {bool: "BOOL", int: "INT64", float: "FP64", bytes: "BYTES", str: "None"}  # as NumPy chooses; None: of no type


class _Array(NamedTuple):
    """What is known of one; "" and None for what is not."""

    datatype: str
    shape: tuple[int, ...] | None


def array_faults(text: PythonText, tensors: Sequence[str]) -> Iterator[FormFault]:
    """All faults. ``tensors``: the classes."""
    for call in text.calls:
        func = call.func
        if not (isinstance(func, ast.Attribute) and func.attr == GIVES and call.args):
            continue
        made = _made(text, func.value)
        if not isinstance(made, ast.Call) or text.dotted(made.func) not in tensors:
            continue
        given = _made(text, call.args[0])
        if isinstance(given, ast.List | ast.Tuple) or (isinstance(given, ast.Constant) and given.value is not None):
            yield fault(text, call.args[0], "given no array")
            continue
        wants, gets = _tensor(made), _array(text, call.args[0])
        if wants.datatype and gets.datatype and wants.datatype != gets.datatype:
            right = WRITTEN.get(wants.datatype) or f"np.{next(n for n, one in TYPES.items() if one == wants.datatype)}"
            known = {"given": gets.datatype, "wanted": wants.datatype, "right": f"dtype={right}"}
            yield fault(text, call.args[0], "array type", **known)
        elif wants.shape is not None and gets.shape is not None and wants.shape != gets.shape:
            shown = {"given": str(list(gets.shape)), "wanted": str(list(wants.shape))}
            yield fault(text, call.args[0], "array shape", **shown)


def _made(text: PythonText, node: ast.expr) -> ast.expr | None:
    """What a name is set to, where it is set once; anything else as it is."""
    if isinstance(node, ast.Name):
        values = text.values_of(node.id)
        stored = [one for one in text.nodes if isinstance(one, ast.Name) and one.id == node.id]
        stores = sum(isinstance(one.ctx, ast.Store) for one in stored)
        return values[0] if len(values) == 1 and stores == 1 else None
    return node


def _tensor(call: ast.Call) -> _Array:
    given = {one.arg: one.value for one in call.keywords}
    shape = given.get("shape", call.args[1] if len(call.args) > 1 else None)
    datatype = given.get("datatype", call.args[2] if len(call.args) > 2 else None)
    name = str(datatype.value) if isinstance(datatype, ast.Constant) else ""
    return _Array(name if name in TYPES.values() else "", _numbers(shape))


def _numbers(node: ast.expr | None) -> tuple[int, ...] | None:
    if isinstance(node, ast.List | ast.Tuple):
        found = [one.value for one in node.elts if isinstance(one, ast.Constant) and type(one.value) is int]
        return tuple(found) if len(found) == len(node.elts) else None
    return (node.value,) if isinstance(node, ast.Constant) and type(node.value) is int else None


def _array(text: PythonText, node: ast.expr) -> _Array:
    made = _made(text, node)
    if not isinstance(made, ast.Call):
        return _Array("", None)
    named = next((one.value for one in made.keywords if one.arg == "dtype"), None)
    if isinstance(made.func, ast.Attribute) and made.func.attr == "astype" and made.args:
        return _array(text, made.func.value)._replace(datatype=_type(text, made.args[0]))
    name = text.dotted(made.func)
    if name in OF_A_SHAPE and made.args:
        place = 2 if name == "numpy.full" else 1
        dtype = named or (made.args[place] if len(made.args) > place else None)
        default = "" if name == "numpy.full" else "FP64"
        return _Array(_type(text, dtype) if dtype is not None else default, _numbers(made.args[0]))
    if name in OF_A_LIST and made.args:
        dtype = named or (made.args[1] if len(made.args) > 1 else None)
        leaves, shape = _leaves(made.args[0])
        kinds = {BY_LEAF.get(type(one.value), "") for one in leaves if isinstance(one, ast.Constant)}
        is_plain = len(kinds) == 1 and all(isinstance(one, ast.Constant) for one in leaves)
        own = kinds.pop() if is_plain else ""
        return _Array(_type(text, dtype) if dtype is not None else own, shape)
    return _Array("", None)


def _type(text: PythonText, node: ast.expr) -> str:
    """The data type of ``np.int32``, ``"int32"`` or ``object``; "" for another."""
    if isinstance(node, ast.Constant):
        return TYPES.get(str(node.value), "")
    if isinstance(node, ast.Name) and node.id in ("object", "bool"):
        return TYPES[node.id]
    module, _, name = text.dotted(node).rpartition(".")
    return TYPES.get(name, "") if module == "numpy" else ""


def _leaves(node: ast.expr) -> tuple[list[ast.expr], tuple[int, ...] | None]:
    """The elements of a nested list, and its shape: None where it is uneven, or an element may be an array itself."""
    if not isinstance(node, ast.List | ast.Tuple):
        return [node], () if isinstance(node, ast.Constant) else None
    if any(isinstance(one, ast.Starred) for one in node.elts):
        return list(node.elts), None
    inside = [_leaves(one) for one in node.elts]
    shapes = {shape for _, shape in inside}
    inner = shapes.pop() if len(shapes) == 1 else None
    leaves = [leaf for found, _ in inside for leaf in found]
    return leaves, None if inner is None else (len(node.elts), *inner)
