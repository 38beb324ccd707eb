"""Commands of the aws command line, held against botocore's service models: operation, flags and queried fields."""

import re
from collections.abc import Iterator, Sequence

import jmespath
from botocore import xform_name
from botocore.model import Shape
from botocore.session import Session

DEFAULTED = {"run-instances": {"min-count", "max-count"}}  # what the command line adds when it is not given
S3_COMMANDS = {  # file commands, which are no operations of the API
    "cp": {"recursive", "exclude"},
    "ls": {"recursive", "summarize", "human-readable"},
    "rm": {"recursive"},
}

OF_THE_CLI = {("ecr", "get-login-password")}  # of awscli/customizations, not of the service's model


def problems(argv: Sequence[str]) -> Iterator[str]:
    """What botocore's models find wrong with a command of the aws command line."""
    aws, service, command, *rest = argv
    flags = [word.removeprefix("--") for word in rest if word.startswith("--")]
    if service == "s3":
        yield from [] if command in S3_COMMANDS else [f"s3 has no {command}"]
        yield from (f"s3 {command} has no --{flag}" for flag in set(flags) - S3_COMMANDS.get(command, set()))
        return
    if (service, command) in OF_THE_CLI:
        return
    model = Session().get_service_model(service)
    by_command = {xform_name(name, "-"): name for name in model.operation_names}
    if aws != "aws" or command not in by_command:
        yield f"{service} has no {command}"
        return
    operation = model.operation_model(by_command[command])
    members = {xform_name(name, "-"): name for name in operation.input_shape.members}
    yield from (f"{command} has no --{flag}" for flag in set(flags) - set(members) - {"query", "output"})
    required = {xform_name(name, "-") for name in operation.input_shape.required_members}
    yield from (f"{command} needs --{name}" for name in required - set(flags) - DEFAULTED.get(command, set()))
    if "query" in flags:
        query = rest[rest.index("--query") + 1]
        jmespath.compile(query)
        known = set(names(operation.output_shape))
        yield from (f"{command} returns no {word}" for word in re.findall(r"\w+", query) if word not in known)


def names(shape: Shape, depth: int = 4) -> Iterator[str]:
    """The field names of a shape and of what it holds."""
    if shape.type_name == "list":
        yield from names(shape.member, depth)
    elif shape.type_name == "structure" and depth:
        for name, member in shape.members.items():
            yield name
            yield from names(member, depth - 1)
