"""Checks a request against botocore's own model of the service: names, types, enums, patterns and limits."""

import re
from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any

from serving_base.errors import UsageError


def request_problems(service: str, operation: str, request: Mapping[str, Any]) -> list[str]:
    """Everything that the service's model forbids in ``request``, one sentence each; empty if it is well formed.

    ``operation`` is boto3's name (``create_endpoint_config``). Raises :class:`UsageError` for one that does not exist.
    """
    from botocore import xform_name

    model = service_model(service)
    names = {xform_name(name): name for name in model.operation_names}
    if operation not in names:
        raise UsageError(f"{service} has no operation {operation!r}", fix="use boto3's name of the method")
    shape = model.operation_model(names[operation]).input_shape
    # The values of unknown members have no shape to be looked at.
    return form_problems(shape, request).splitlines() or list(constraint_problems(shape, request))


@cache
def service_model(service: str) -> Any:
    """botocore's model of a service."""
    from botocore.session import get_session

    return get_session().get_service_model(service)


def form_problems(shape: Any, request: Mapping[str, Any]) -> str:
    """botocore's own report: unknown names, wrong types, missing members; empty if there are none."""
    from botocore.validate import ParamValidator

    report = ParamValidator().validate(dict(request), shape)
    return str(report.generate_report()) if report.has_errors() else ""


def constraint_problems(shape: Any, value: Any, path: str = "") -> Iterator[str]:
    """What the model forbids in ``value`` although botocore's own validator lets it pass."""
    if shape.type_name == "structure":
        for name, member in value.items():
            yield from constraint_problems(shape.members[name], member, f"{path}.{name}" if path else name)
    elif shape.type_name == "list":
        for number, member in enumerate(value, start=1):
            yield from constraint_problems(shape.member, member, f"{path}.{number}")
    elif shape.type_name == "map":
        for name, member in value.items():
            yield from constraint_problems(shape.key, name, f"{path}.{name}")
            yield from constraint_problems(shape.value, member, f"{path}.{name}")
    elif broken := _broken_constraint(shape, value):
        yield f"{path}: {value!r} must {broken}"


def _broken_constraint(shape: Any, value: Any) -> str:
    limits = shape.metadata
    if isinstance(value, str):
        if limits.get("enum") and value not in limits["enum"]:
            return f"be one of {', '.join(limits['enum'])}"
        pattern = _pattern(limits.get("pattern", ""))
        if pattern and not pattern.fullmatch(value):
            return f"match {pattern.pattern}"
        if len(value) > limits.get("max", len(value)):
            return f"be at most {limits['max']} characters long"
    elif isinstance(value, int | float) and value > limits.get("max", value):
        return f"be at most {limits['max']}"
    return ""


@cache
def _pattern(java: str) -> re.Pattern[str] | None:
    """The model's expressions are Java's; the few that Python does not read (classes of Unicode) forbid little."""
    try:
        return re.compile(java) if java else None
    except re.error:
        return None
