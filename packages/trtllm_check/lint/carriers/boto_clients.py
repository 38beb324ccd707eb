"""Calls of boto3's clients: methods and waiters that a service has not, parameters that are wrong or missing.

The table is written from botocore's models of the services by ``benchmarks/checker/boto_operations.py``.
"""

import ast
from collections.abc import Iterator, Mapping
from difflib import get_close_matches
from functools import cache
from pathlib import Path
from typing import Any

from serving_base.yaml_files import read_yaml
from trtllm_check.lint.carriers.faults import FormFault
from trtllm_check.lint.carriers.python_text import PythonText
from trtllm_check.lint.carriers.scaling import resource_wanted

RULE = "boto3-client"
NEAR = 0.75
# What every client has beside its operations, and what boto3 adds to S3's.
OF_ALL = frozenset(
    {
        "get_paginator",
        "get_waiter",
        "can_paginate",
        "generate_presigned_url",
        "close",
        "exceptions",
        "meta",
        "waiter_names",
    }
)
OF_S3 = frozenset(
    {"upload_file", "download_file", "upload_fileobj", "download_fileobj", "copy", "generate_presigned_post"}
)


def boto_faults(text: PythonText) -> Iterator[FormFault]:
    """All faults of the program."""
    if "boto3" not in text.names.values() and not any(one.startswith("boto3.") for one in text.names.values()):
        return
    clients = _clients(text)
    for call in text.calls:
        func = call.func
        if not isinstance(func, ast.Attribute):
            continue
        service = clients.get(func.value.id, "") if isinstance(func.value, ast.Name) else _service(func.value)
        if service:
            yield from _call(text, call, func, service)


def _clients(text: PythonText) -> dict[str, str]:
    """Names that are clients of one service and nothing else -> the service."""
    arguments = {node.arg for node in text.nodes if isinstance(node, ast.arg)}
    stored: dict[str, int] = {}
    for node in text.nodes:
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            stored[node.id] = stored.get(node.id, 0) + 1
    found = {}
    for name, times in stored.items():
        values = text.values_of(name)
        services = {_service(value) for value in values}
        if name not in arguments and len(values) == times and len(services) == 1 and "" not in services:
            found[name] = services.pop()
    return found


def _service(node: ast.expr) -> str:
    """The service of ``boto3.client("sagemaker")`` and of a session's client, where there are facts of it."""
    func = node.func if isinstance(node, ast.Call) else None
    if not isinstance(node, ast.Call) or not isinstance(func, ast.Attribute) or func.attr != "client":
        return ""
    given = [*node.args[:1], *(one.value for one in node.keywords if one.arg == "service_name")]
    name = given[0].value if given and isinstance(given[0], ast.Constant) else ""
    return str(name) if name in _services() else ""


def _call(text: PythonText, call: ast.Call, func: ast.Attribute, service: str) -> Iterator[FormFault]:
    facts = _services()[service]
    if func.attr == "get_waiter":
        yield from _waiter(text, call, service)
    if func.attr in OF_ALL or (service == "s3" and func.attr in OF_S3) or func.attr.startswith("_"):
        return
    methods = facts["methods"].split()
    if func.attr not in methods:
        close = get_close_matches(func.attr, methods, 1, NEAR)
        form = "method" if close else "method, perhaps"
        yield _fault(text, func, form, service=service, name=func.attr, instead=close[0] if close else "")
        return
    if call.args and not isinstance(call.args[0], ast.Starred):
        yield _fault(text, call.args[0], "position", service=service, name=func.attr)
        return
    if func.attr in facts["parameters"]:
        yield from _parameters(text, call, func.attr, service)


def _parameters(text: PythonText, call: ast.Call, method: str, service: str) -> Iterator[FormFault]:
    listed = _services()[service]["parameters"][method].split()
    known = {one.removesuffix("!"): one.endswith("!") for one in listed}
    given = [one.arg for one in call.keywords if one.arg is not None]
    for one in call.keywords:
        if one.arg is not None and one.arg not in known:
            close = [each for each in known if each.lower() == one.arg.replace("_", "").lower()]
            close = close or get_close_matches(one.arg, known, 1, NEAR)
            instead = f"write {close[0]}" if close else "leave it out"
            yield _fault(text, one, "parameter", service=service, method=method, name=one.arg, instead=instead)
            known[close[0] if close else ""] = False  # said once
        elif one.arg is not None and isinstance(one.value, ast.Constant) and isinstance(one.value.value, str):
            values = _services()[service]["values"].get(f"{method}.{one.arg}", "").split()
            if values and one.value.value not in values:
                close = get_close_matches(one.value.value, values, 1, 0.0)
                names = {"service": service, "method": method, "name": one.arg, "value": one.value.value}
                yield _fault(text, one.value, "value", **names, instead=close[0] if close else values[0])
    yield from _scaled(text, call, method, service)
    if len(given) == len(call.keywords) and not call.args:
        missing = [one for one, required in known.items() if required and one not in given]
        if missing:
            yield _fault(text, call.func, "missing", service=service, method=method, name=", ".join(missing))


def _scaled(text: PythonText, call: ast.Call, method: str, service: str) -> Iterator[FormFault]:
    """A resource of another form than what is scaled."""
    given = {one.arg: one.value for one in call.keywords}
    dimension, resource = given.get("ScalableDimension"), given.get("ResourceId")
    if isinstance(dimension, ast.Constant) and isinstance(resource, ast.Constant):
        right = resource_wanted(str(dimension.value), str(resource.value))
        if right:
            known = {"method": method, "value": str(resource.value), "dimension": str(dimension.value)}
            yield _fault(text, resource, "resource", service=service, **known, instead=right)


def _waiter(text: PythonText, call: ast.Call, service: str) -> Iterator[FormFault]:
    waiters = _services()[service]["waiters"].split()
    name = call.args[0].value if call.args and isinstance(call.args[0], ast.Constant) else None
    if isinstance(name, str) and name.replace("-", "_") not in waiters:
        close = get_close_matches(name, waiters, 1, 0.5)
        instead = f"write {close[0]}" if close else f"poll describe_ of the {service} client"
        yield _fault(text, call.args[0], "waiter", service=service, name=name, instead=instead)


def _fault(text: PythonText, node: ast.expr | ast.keyword, form: str, **known: str) -> FormFault:
    return FormFault(RULE, text.at(node), form, tuple(known.items()))


@cache
def _services() -> Mapping[str, Any]:
    content: Mapping[str, Any] = read_yaml(Path(__file__).with_name("boto_clients.yml"))["services"]
    return content
