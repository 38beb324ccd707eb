"""What the AWS CLI tells SageMaker: ``aws sagemaker create-endpoint-config --production-variants VariantName=a``."""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from typing import Any, NamedTuple

from trtllm_check.lint.carriers.aws_calls import DEEPEST, AwsCall
from trtllm_check.lint.carriers.schema import read_table, read_types
from trtllm_check.lint.carriers.settings import Kind, Setting, key
from trtllm_check.lint.shell.words import ShellCommand, Word, file_name

FILE = "sagemaker.yml"
SERVICES = ("sagemaker", "sagemaker-runtime")
BEFORE = ("sudo", "time")
# Options of every command: docs.aws.amazon.com/cli/latest/reference, "Global options"; those of WITHOUT take no value.
WITH_VALUE = frozenset(
    {
        *("--endpoint-url", "--output", "--query", "--profile", "--region", "--color", "--ca-bundle"),
        *("--cli-read-timeout", "--cli-connect-timeout", "--cli-binary-format", "--cli-error-format"),
        *("--cli-input-json", "--cli-input-yaml", "--generate-cli-skeleton"),
    }
)
WITHOUT = frozenset(
    {
        *("--debug", "--no-verify-ssl", "--no-paginate", "--no-sign-request", "--no-cli-pager"),
        *("--cli-auto-prompt", "--no-cli-auto-prompt"),
    }
)
ELSEWHERE = ("--cli-input-json", "--cli-input-yaml")
MACHINES, SCALED = ("--instance-type", "--instance-types"), "--scalable-dimension"
NUMBER = re.compile(r"-?\d+(?:\.\d+)?")
PART = re.compile(r"(?:\A|,)(?P<name>\w+)=")
VARIABLE = re.compile(r"\$\{|\$\(|^\$|^(?:file|fileb|https?)://")
ENVIRONMENT = re.compile(r"\bEnvironment=\{(?P<pairs>[^{}]*)\}")
PAIR = re.compile(r"(?:\A|,)[ ]*(?P<pair>[A-Za-z_]\w*=[^,]*)")
TEXTS = ("environment", "tags")  # all that is in them is text


def cli_call(command: ShellCommand) -> AwsCall | None:
    """The call that a command makes; None for another program, another service or a call that has no table."""
    found = cli_words(command)
    if found is None or len(found.names) < 2 or found.names[0].text not in SERVICES:
        return None
    place = found.names[1]
    name = place.text.replace("-", "_")
    kind = read_table(FILE)["calls"].get(name)
    if kind is None:
        return None
    items = [_option(option, values, kind) for option, values in found.options]
    is_open = any(option.text in ELSEWHERE or "$" in option.text for option, _ in found.options)
    rest = [("<<", Setting("open", "", place, written="<<"))] if is_open else []
    return AwsCall(name, Setting("table", "", place, (*items, *rest)), maker="cli")


class CliWords(NamedTuple):
    """The words without an option, the options with their values, and the options that every command has."""

    names: tuple[Word, ...]
    options: tuple[tuple[Word, tuple[Word, ...]], ...]
    general: Mapping[str, str]


def cli_words(command: ShellCommand) -> CliWords | None:
    """None for another program."""
    words = list(command.words)
    while words and words[0].text in BEFORE:
        words.pop(0)
    return _split(words[1:]) if words and file_name(words[0].text) == "aws" else None


def cli_variables(command: ShellCommand) -> Iterator[Word]:
    """``A=b`` and ``C=d`` of ``--primary-container Image=x,Environment={A=b,C=d}``."""
    found = cli_words(command)
    for word in (one for _, values in found.options for one in values) if found is not None else ():
        for environment in ENVIRONMENT.finditer(word.text):
            pairs = word.part(*environment.span("pairs"))
            yield from (pairs.part(*one.span("pair")) for one in PAIR.finditer(pairs.text))


def names_a_machine(command: ShellCommand) -> bool:
    """True for a command of the AWS CLI that asks for machines of a kind, or scales them."""
    found = cli_words(command)
    return found is not None and any(option.text in (*MACHINES, SCALED) for option, _ in found.options)


def option_name(field: str) -> str:
    """``--model-name`` of ``ModelName``, as botocore's ``xform_name`` writes it."""
    return "--" + re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "-", field).lower()


@cache
def _fields(kind: str) -> dict[str, str]:
    fields = read_types(FILE)[kind].fields
    return {option_name(field): field for field in fields} | {
        option_name(field).replace("--", "--no-", 1): field for field, one in fields.items() if one == "switch"
    }


def _split(words: Sequence[Word]) -> CliWords:
    names: list[Word] = []
    options: list[tuple[Word, tuple[Word, ...]]] = []
    general: dict[str, str] = {}
    at = 0
    while at < len(words):
        word = words[at]
        at += 1
        flag, has_value, _ = word.text.partition("=")
        if not flag.startswith("--"):
            names.append(word)
            continue
        values = [word.part(len(flag) + 1)] if has_value else []
        if flag in WITHOUT:
            continue
        while at < len(words) and not words[at].text.startswith("--") and (not values or _is_more(words[at])):
            values.append(words[at])
            at += 1
        if flag in WITH_VALUE:
            general[flag] = values[0].text if values else ""
        if flag not in WITH_VALUE or flag in ELSEWHERE:
            options.append((word.part(0, len(flag)), tuple(values)))
    return CliWords(tuple(names), tuple(options), general)


def _is_more(word: Word) -> bool:
    """True for another element of a list: shorthand or JSON, and no file that the answer is written to."""
    return PART.match(word.text) is not None or word.text[:1] in ("{", "[")


def _option(option: Word, values: Sequence[Word], kind: str) -> tuple[str, Setting]:
    field = _fields(kind).get(option.text, option.text)
    type_ = read_types(FILE)[kind].fields.get(field, "any")
    return key(field), _value(values, type_, option, field)


def _value(values: Sequence[Word], type_: str, option: Word, field: str) -> Setting:
    if type_ == "switch" and not values:
        return Setting("switch", "false" if option.text.startswith("--no-") else "true", option, written=field)
    if not values or any(VARIABLE.search(one.text) for one in values):
        return Setting("open", "", option, written=field)
    first = values[0]
    if type_ in ("text", "number", "any"):
        return _plain(first.text, first, field, key(field) in TEXTS or type_ == "text")
    parts = tuple(part for one in values for part in _elements(one, field))
    if type_.endswith("*"):
        return Setting("list", "", first, parts=parts, written=field)
    return parts[0] if parts else Setting("open", "", first, written=field)


def _elements(word: Word, field: str) -> Iterator[Setting]:
    if word.text[:1] in ("{", "["):
        try:
            found = json.loads(word.text)
        except (ValueError, RecursionError):
            yield Setting("open", "", word, written=field)
            return
        made = _from_json(found, word, field, 0)
        yield from made.parts if made.kind == "list" else (made,)
    else:
        yield _shorthand(word.text, word, field)


def _shorthand(text: str, place: Word, field: str) -> Setting:
    """``A=b,C={D=e},F=[g,h]``; what is written in another way is open."""
    items: list[tuple[str, Setting]] = []
    for name, value in _pairs(text):
        is_text = key(field) in TEXTS
        if value.startswith("{") and value.endswith("}"):
            made = _shorthand(value[1:-1], place, name)
        elif value.startswith("[") and value.endswith("]"):
            cut = [one for one in _cut(value[1:-1]) if one]
            made = Setting("list", "", place, parts=tuple(_element(one, place, name) for one in cut), written=name)
        else:
            made = _plain(value, place, name, is_text)
        items.append((key(name), made))
    if not items:
        return Setting("open", "", place, written=field)
    return Setting("table", "", place, tuple(items), written=field)


def _element(text: str, place: Word, name: str) -> Setting:
    if text.startswith("{") and text.endswith("}"):
        return _shorthand(text[1:-1], place, name)
    return _plain(text, place, name, False)


def _pairs(text: str) -> Iterator[tuple[str, str]]:
    for one in _cut(text):
        name, is_set, value = one.partition("=")
        if is_set:
            yield name.strip(), value.strip().strip("\"'")


def _cut(text: str) -> Iterator[str]:
    """At the commas that stand in no bracket."""
    depth, start = 0, 0
    for at, sign in enumerate(text):
        depth += (sign in "{[") - (sign in "}]")
        if sign == "," and not depth:
            yield text[start:at]
            start = at + 1
    yield text[start:]


def _plain(text: str, place: Word, field: str, is_text: bool) -> Setting:
    if VARIABLE.search(text):
        return Setting("open", "", place, written=field)
    kind: Kind = "text"
    if not is_text and NUMBER.fullmatch(text):
        kind = "number"
    elif not is_text and text in ("true", "false"):
        kind = "switch"
    return Setting(kind, text, place, written=field)


def _from_json(value: Any, place: Word, field: str, depth: int) -> Setting:
    if depth > DEEPEST or value is None:
        return Setting("open", "", place, written=field)
    if isinstance(value, dict):
        items = tuple((key(name), _from_json(one, place, name, depth + 1)) for name, one in value.items())
        return Setting("table", "", place, items, written=field)
    if isinstance(value, list):
        parts = tuple(_from_json(one, place, field, depth + 1) for one in value)
        return Setting("list", "", place, parts=parts, written=field)
    if isinstance(value, bool):
        return Setting("switch", str(value).lower(), place, written=field)
    if isinstance(value, str):
        return Setting("open" if VARIABLE.search(value) else "text", value, place, written=field)
    return Setting("number", str(value), place, written=field)
