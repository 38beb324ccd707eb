"""Every field of a config.pbtxt against ModelConfig's own description, where protobuf's parser stops at the first.

A value that somebody still fills in is taken for right.
"""

import re
from collections.abc import Iterator, Sequence
from difflib import get_close_matches
from functools import cache
from typing import Any, NamedTuple

from trtllm_check.lint.pbtxt import PLACEHOLDER, VARIABLE, ConfigError, Message, Scalar, model_config, read_config
from trtllm_check.releases import known_releases
from trtllm_check.releases.backend import backend_reads

BOOLEANS = frozenset({"true", "false", "t", "f", "True", "False", "0", "1"})
NEAR = 0.7
# Types as requests and other libraries call them.
MEANT = {
    "BYTES": "TYPE_STRING",
    "STR": "TYPE_STRING",
    "FLOAT": "TYPE_FP32",
    "FLOAT32": "TYPE_FP32",
    "HALF": "TYPE_FP16",
    "FLOAT16": "TYPE_FP16",
    "BFLOAT16": "TYPE_BF16",
    "DOUBLE": "TYPE_FP64",
    "INT": "TYPE_INT32",
    "LONG": "TYPE_INT64",
}
LEFT_OUT = re.compile(r"\.{2,}|…")
FLAT = re.compile(r"[ \t]*(?P<name>\w+)[ \t]*:")


class FieldFault(NamedTuple):
    """One thing that protobuf refuses, and what to write."""

    line: int
    column: int
    problem: str
    instead: str


def misfits(message: Message) -> Iterator[FieldFault]:
    """All of them, in the order of the text."""
    yield from _of(message, model_config().DESCRIPTOR)


def is_piece(text: str) -> bool:
    """True for text that parses, and whose fields, each of them, are those of a configuration."""
    try:
        return fields_fit(read_config(text))
    except ConfigError:
        return False


def is_field(name: str) -> bool:
    """True for a field of a configuration, not for one of a message inside it."""
    return name in model_config().DESCRIPTOR.fields_by_name


def are_of_others(lines: Sequence[str]) -> bool:
    """True for lines of ``name: value`` without a message, most of whose names no configuration has."""
    if any(sign in line for line in lines for sign in "[{"):
        return False
    names = [match["name"] for match in map(FLAT.match, lines) if match]
    return 2 * sum(map(is_field, names)) < len(names)


def fields_fit(message: Message) -> bool:
    """True if all outermost fields are ModelConfig's, and each message among them has a field of its own kind."""
    kind = model_config().DESCRIPTOR
    return bool(message.fields) and all(_fits(kind.fields_by_name.get(name), value) for name, value in message.fields)


def _fits(field: Any, value: Message | Scalar) -> bool:
    if field is None or (field.message_type is not None) != isinstance(value, Message):
        return False
    known = field.message_type.fields_by_name if field.message_type is not None else ()
    return isinstance(value, Scalar) or not value.fields or any(name in known for name, _ in value.fields)


def _of(message: Message, kind: Any) -> Iterator[FieldFault]:
    seen: set[str] = set()
    for (name, value), (line, column) in zip(message.fields, message.places, strict=True):
        field = kind.fields_by_name.get(name)
        if PLACEHOLDER.search(name) or LEFT_OUT.fullmatch(name if isinstance(value, Message) else value.text):
            continue
        if field is None:
            yield FieldFault(
                line, column, f'Message type "{kind.full_name}" has no field named "{name}".', _near(name, kind)
            )
        elif field.message_type is not None:
            if isinstance(value, Message):
                yield from _of(value, field.message_type)
            elif not VARIABLE.search(value.text):
                problem = f"{name} is a message, and has a value of its own"
                yield FieldFault(line, column, problem, f"write {name} {{ ... }} with its fields")
        elif isinstance(value, Message):
            yield FieldFault(line, column, f"{name} is one value, and no message", f"write {name}: and its value")
        elif wrong := _scalar(name, value, field):
            yield FieldFault(value.line, value.column, *wrong)
        if name in seen and field is not None and not _is_repeated(field):
            problem = f'Message type "{kind.full_name}" should not have multiple "{name}" fields.'
            yield FieldFault(line, column, problem, f"leave one {name}")
        seen.add(name)


def _is_repeated(field: Any) -> bool:
    known = getattr(field, "is_repeated", None)  # protobuf before 6.31 has the label only
    return bool(field.label == field.LABEL_REPEATED) if known is None else bool(known)


def _near(name: str, kind: Any) -> str:
    """What is meant by a field that is not there."""
    fields = [*kind.fields_by_name]
    longer = [one for one in fields if one.startswith(name)]
    close = longer[:1] or get_close_matches(name, fields, 1, NEAR)
    if close:
        return f"write {close[0]}"
    if kind is model_config().DESCRIPTOR and name in _parameters():
        return f'write parameters: {{ key: "{name}" value: {{ string_value: "..." }} }}'
    return "write string_value: and the value in quotes" if "string_value" in fields else f"leave {name} out"


@cache
def _parameters() -> frozenset[str]:
    """Parameters of the engine's model in any release."""
    return frozenset(name for one in known_releases() if (reads := backend_reads(one)) for name in reads.parameters)


def _scalar(name: str, value: Scalar, field: Any) -> tuple[str, str] | None:
    """What is wrong with one value, and what to write."""
    if not value.quoted and VARIABLE.search(value.text):
        return None
    if field.enum_type is not None:
        return _word(name, value, [*field.enum_type.values_by_name])
    kind = field.cpp_type
    if kind == field.CPPTYPE_STRING:
        return None if value.quoted else (f"{name}: expected string, got {value.text}", f'write {name}: "{value.text}"')
    if kind == field.CPPTYPE_BOOL:
        right = value.text.lower() if value.text.lower() in ("true", "false") else "true or false"
        fits = not value.quoted and value.text in BOOLEANS
        return None if fits else (f"{name}: couldn't parse boolean: {value.text}", f"write {name}: {right}")
    if kind in (field.CPPTYPE_DOUBLE, field.CPPTYPE_FLOAT):
        return (
            None if _is_number(value) else (f"{name}: couldn't parse float: {value.text}", f"write a number for {name}")
        )
    if value.quoted or not _is_whole(value.text):
        right = value.text if _is_whole(value.text) else "a whole number"
        return f"{name}: couldn't parse integer: {value.text}", f"write {name}: {right}"
    return None


def _word(name: str, value: Scalar, words: list[str]) -> tuple[str, str] | None:
    if not value.quoted and (value.text in words or value.text.isdecimal()):
        return None
    close = [one for one in words if one.endswith(f"_{value.text.upper()}")]
    meant = MEANT.get(value.text.upper().removeprefix("TYPE_"), "")
    close = [one for one in words if one in (value.text, meant)] or close
    close = close or get_close_matches(value.text.upper(), words, 1, 0.6)
    right = close[0] if close else f"one of {', '.join(words)}"
    return f"{name}: there is no value {value.text}" + (" in quotes" if value.quoted else ""), f"write {name}: {right}"


def _is_whole(text: str) -> bool:
    return text.lstrip("-").isdecimal() or text.lower().startswith(("0x", "-0x"))


def _is_number(value: Scalar) -> bool:
    try:
        float(value.text.rstrip("fF"))
    except ValueError:
        return False
    return not value.quoted
