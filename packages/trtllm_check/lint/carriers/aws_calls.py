"""What Python and CloudFormation tell SageMaker: calls of boto3, of its SDK and of CDK, with all that is in them."""

import ast
import json
import re
from collections.abc import Callable, Iterator
from typing import Any, Literal, NamedTuple

from trtllm_check.lint.carriers.python_given import constant, given_to, spread
from trtllm_check.lint.carriers.python_values import Values
from trtllm_check.lint.carriers.settings import Kind, Setting, from_yaml, key
from trtllm_check.lint.shell.words import Word

CALLS = frozenset(
    {
        *(
            "deploy",
            "create_endpoint_config",
            "create_model",
            "create_endpoint",
            "update_endpoint",
            "production_variant",
        ),
        "create_inference_component",
        "ServerlessInferenceConfig",
        *("invoke_endpoint", "invoke_endpoint_with_response_stream", "invoke_endpoint_async"),
        *("Model", "DJLModel", "DJLPredictor", "HuggingFaceModel", "CfnModel", "CfnEndpointConfig", "CfnEndpoint"),
        *("retrieve", "get_huggingface_llm_image_uri"),
        *("ContainerDefinitionProperty", "ProductionVariantProperty"),
    }
)
# The classes of sagemaker-core (sagemaker 3), whose ``create`` takes the operation's fields in small letters, the
# shapes inside of it, and what is no field: aws/sagemaker-core src/sagemaker_core/main/resources.py and shapes.py.
CORE = re.compile(r"\bsagemaker(?:_core|\.core)\b")
OF_CORE = {"Model": "create_model", "EndpointConfig": "create_endpoint_config", "Endpoint": "create_endpoint"}
CORE_SHAPES = frozenset(
    {
        *("ContainerDefinition", "ProductionVariant", "ModelDataSource", "S3ModelDataSource", "ModelAccessConfig"),
        *("ProductionVariantServerlessConfig", "AsyncInferenceConfig", "AsyncInferenceOutputConfig", "VpcConfig"),
    }
)
CORE_SESSION = ("session", "region")
RESOURCES = {
    "AWS::SageMaker::Model": "create_model",
    "AWS::SageMaker::EndpointConfig": "create_endpoint_config",
    "AWS::SageMaker::Endpoint": "create_endpoint",
}
# Fields by which the body of a call is told that stands in a file of its own.
BODIES = {"ProductionVariants": "create_endpoint_config", "PrimaryContainer": "create_model"}
ABOUT = ("sagemaker", "boto3", "djl-inference", "image_uris.")
DEEPEST = 8
ANYTHING = ("Exception", "ValueError")
CHANGERS = ("update", "setdefault", "append", "extend", "insert", "pop")


class AwsCall(NamedTuple):
    """One call or resource; ``name`` as boto3 calls it where it has one; ``maker``: what it is written in.

    ``caught``: it stands in a ``try`` that goes on, whatever it raises.
    """

    name: str
    settings: Setting
    file: str = ""
    maker: Literal["python", "template", "terraform", "cli"] = "python"
    caught: bool = False


def aws_calls(
    tree: ast.Module, text: str, place: Callable[[ast.AST], tuple[int, int]], values: Values
) -> Iterator[AwsCall]:
    """The calls of a program that is about SageMaker."""
    if not any(word in text for word in ABOUT):
        return
    names = _Names(_set_once(tree), values)
    imported = {
        one.asname: one.name
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom)
        for one in node.names
        if one.asname
    }
    is_core = CORE.search(text) is not None
    caught = {id(one) for one in _caught(tree)}
    for written in ast.walk(tree):
        if not isinstance(written, ast.Call):
            continue
        node = spread(written, values, is_ours=False)
        func = node.func
        name = func.attr if isinstance(func, ast.Attribute) else func.id if isinstance(func, ast.Name) else ""
        name = imported.get(name, name)
        of_core = _of_core(node) if is_core else ""
        name = of_core or name
        if name in CALLS:
            items = tuple(
                (key(one.arg), _python(one.value, names, place, one.arg, 0))
                for one in node.keywords
                if one.arg and not (of_core and one.arg in CORE_SESSION)
            )
            more = tuple(("<<", _rest(one.value, place)) for one in node.keywords if one.arg is None)
            yield AwsCall(
                name, Setting("table", "", Word(name, *place(node)), (*items, *more)), caught=id(written) in caught
            )


def _caught(tree: ast.Module) -> Iterator[ast.AST]:
    """All nodes of a ``try`` that catches everything, and raises nothing again."""
    for node in (one for one in ast.walk(tree) if isinstance(one, ast.Try)):
        for one in node.handlers:
            kinds = ast.unparse(one.type) if one.type else ANYTHING[0]
            raises = any(isinstance(inner, ast.Raise) for statement in one.body for inner in ast.walk(statement))
            if any(kind in kinds for kind in ANYTHING) and not raises:
                yield from (inner for statement in node.body for inner in ast.walk(statement))


def _of_core(node: ast.Call) -> str:
    """The operation of ``Model.create(...)``."""
    func = node.func
    if not isinstance(func, ast.Attribute) or func.attr != "create":
        return ""
    owner = func.value.attr if isinstance(func.value, ast.Attribute) else ast.unparse(func.value)
    return OF_CORE.get(owner, "")


def resources(node: Any, place: Callable[[Any], Word]) -> Iterator[AwsCall]:
    """The SageMaker resources of a CloudFormation template."""
    for resource in _table(_table(node).get("Resources")).values():
        entries = _table(resource)
        kind = entries.get("Type")
        name = RESOURCES.get(str(kind.value), "") if kind is not None and kind.id == "scalar" else ""
        if name and "Properties" in entries:
            yield AwsCall(name, from_yaml(entries["Properties"], place, DEEPEST), maker="template")
    for field, name in BODIES.items():
        if field in _table(node) and "Resources" not in _table(node):
            yield AwsCall(name, from_yaml(node, place, DEEPEST))


class _Names(NamedTuple):
    """What names stand for: those that are set once in the whole text, and what :class:`Values` knows of others."""

    once: dict[str, ast.expr]
    values: Values

    def known(self, node: ast.expr) -> ast.expr | None:
        if isinstance(node, ast.Name) and node.id in self.once:
            return self.once[node.id]
        return self.values.known(node)


def _set_once(tree: ast.Module) -> dict[str, ast.expr]:
    """Names that are set once and changed by nothing, not even in a part of them."""
    stored = [one.id for one in ast.walk(tree) if isinstance(one, ast.Name) and isinstance(one.ctx, ast.Store)]
    arguments = {one.arg for one in ast.walk(tree) if isinstance(one, ast.arg)} | _changed(tree)
    later = _keys_set_later(tree)
    found: dict[str, ast.expr] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign) and len(node.targets) == 1 and isinstance(node.targets[0], ast.Name):
            name = node.targets[0].id
            if stored.count(name) == 1 and name not in arguments:
                found[name] = node.value
            elif stored.count(name) == 1 and name in later and isinstance(node.value, ast.Dict):
                found[name] = _without(node.value, later[name])
    return found


def _keys_set_later(tree: ast.Module) -> dict[str, set[str]]:
    """The keys of each ``name["key"] = value``, for names that change in no other way."""
    found: dict[str, set[str]] = {}
    others: set[str] = {one.arg for one in ast.walk(tree) if isinstance(one, ast.arg)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Store) and isinstance(node.value, ast.Name):
            if isinstance(node.slice, ast.Constant):
                found.setdefault(node.value.id, set()).add(str(node.slice.value))
            else:
                others.add(node.value.id)
        elif isinstance(node, ast.Attribute) and node.attr in CHANGERS and isinstance(node.value, ast.Name):
            others.add(node.value.id)
    return {name: keys for name, keys in found.items() if name not in others}


def _without(table: ast.Dict, keys: set[str]) -> ast.Dict:
    """The table without what is set later, and with something that nobody knows in its place."""
    kept = [
        (name, value)
        for name, value in zip(table.keys, table.values, strict=True)
        if not (isinstance(name, ast.Constant) and str(name.value) in keys)
    ]
    rest = ast.copy_location(ast.Name("rest", ast.Load()), table)
    return ast.copy_location(ast.Dict([*(name for name, _ in kept), None], [*(one for _, one in kept), rest]), table)


def _changed(tree: ast.Module) -> set[str]:
    """``name["key"] = value`` and ``name.update(...)``."""
    parts = [one.value for one in ast.walk(tree) if isinstance(one, ast.Subscript) and isinstance(one.ctx, ast.Store)]
    calls = [one.func for one in ast.walk(tree) if isinstance(one, ast.Call)]
    parts += [one.value for one in calls if isinstance(one, ast.Attribute) and one.attr in CHANGERS]
    return {one.id for one in parts if isinstance(one, ast.Name)}


def _python(
    node: ast.expr,
    names: _Names,
    place: Callable[[ast.AST], tuple[int, int]],
    written: str,
    depth: int,
) -> Setting:
    at = Word(written, *place(node))
    if depth > DEEPEST:
        return Setting("open", "", at, written=written)
    if isinstance(node, ast.Name | ast.Attribute | ast.Subscript) and (known := names.known(node)) is not None:
        return _python(known, names, place, written, depth + 1)
    if isinstance(node, ast.Constant):
        kind: Kind = "open"
        if isinstance(node.value, bool):
            kind = "switch"
        elif isinstance(node.value, int | float):
            kind = "number"
        elif isinstance(node.value, str):
            kind = "text"
        return Setting(kind, str(node.value), at, written=written)
    if isinstance(node, ast.Call) and (text := _as_text(node, names)) is not None:
        return Setting("text", text, at, written=written)
    if isinstance(node, ast.Call) and (default := constant(node, names.values)) is not None:
        return _python(default, names, place, written, depth + 1)
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "dict" and not node.args:
        given, more = given_to(node, names.values)
        pairs = [(key(one.name), _python(one.value, names, place, one.name, depth + 1)) for one in given]
        pairs += [("<<", _rest(node, place))] if more else []
        return Setting("table", "", at, tuple(pairs), written=written)
    if isinstance(node, ast.Call) and not node.args and ast.unparse(node.func).rpartition(".")[2] in CORE_SHAPES:
        fields = [
            (key(one.arg), _python(one.value, names, place, one.arg, depth + 1)) for one in node.keywords if one.arg
        ]
        fields += [("<<", _rest(one.value, place)) for one in node.keywords if one.arg is None]
        return Setting("table", "", at, tuple(fields), written=written)
    if isinstance(node, ast.Dict):
        items = tuple(
            (key(str(name.value)), _python(value, names, place, str(name.value), depth + 1))
            for name, value in zip(node.keys, node.values, strict=True)
            if isinstance(name, ast.Constant)
        )
        items += tuple(
            ("<<", _rest(value, place)) for name, value in zip(node.keys, node.values, strict=True) if name is None
        )
        return Setting("table", "", at, items, written=written)
    if isinstance(node, ast.List | ast.Tuple):
        parts = tuple(_python(one, names, place, written, depth + 1) for one in node.elts)
        return Setting("list", "", at, parts=parts, written=written)
    return Setting("open", "", at, written=written)


def _as_text(call: ast.Call, names: _Names) -> str | None:
    """What ``json.dumps(4)`` and ``str(4)`` make of a constant; None for another call."""
    func = ast.unparse(call.func)
    value = call.args[0] if len(call.args) == 1 and not call.keywords else None
    if isinstance(value, ast.Name | ast.Attribute | ast.Subscript):
        value = names.known(value)
    if func not in ("json.dumps", "str") or not isinstance(value, ast.Constant):
        return None
    return json.dumps(value.value) if func == "json.dumps" else str(value.value)


def _rest(node: ast.expr, place: Callable[[ast.AST], tuple[int, int]]) -> Setting:
    """``**more``: further keys that nobody knows."""
    return Setting("open", "", Word("", *place(node)), written="<<")


def _table(node: Any) -> dict[str, Any]:
    if node is None or node.id != "mapping":
        return {}
    return {str(name.value): value for name, value in node.value if name.id == "scalar"}
