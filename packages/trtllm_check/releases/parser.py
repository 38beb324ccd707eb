"""Builds the argument parser of a tool from a release's facts: as strict as the tool itself, and stricter.

Real argparse takes unambiguous abbreviations; commands that we print are checked without them.
"""

import argparse
from collections.abc import Callable, Sequence
from typing import Any, NoReturn

from serving_base.errors import UsageError
from trtllm_check.releases.release import Argument, Release


class _RaisingParser(argparse.ArgumentParser):
    """An ArgumentParser that raises :class:`UsageError` where argparse would end the process."""

    def error(self, message: str) -> NoReturn:
        raise UsageError(f"{self.prog} refuses this command", why=message, fix="use a flag and value that it takes")


def build_parser(release: Release, tool_name: str, *, abbreviations: bool = False) -> argparse.ArgumentParser:
    """The parser of ``tool_name`` in ``release``. Its errors are :class:`UsageError` with argparse's message."""
    parser = _RaisingParser(
        prog=f"{tool_name} of TensorRT-LLM {release.name}", allow_abbrev=abbreviations, add_help=False
    )
    for name, argument in release.tool(tool_name).arguments.items():
        parser.add_argument(name, *argument.aliases, **_options(name, argument))
    return parser


def check_arguments(release: Release, tool_name: str, arguments: Sequence[str]) -> argparse.Namespace:
    """Parse ``arguments`` (what follows the tool's path) as the release's tool would; UsageError if it refuses."""
    return build_parser(release, tool_name).parse_args(list(arguments))


def _options(name: str, argument: Argument) -> dict[str, Any]:
    options: dict[str, Any] = {}
    if argument.dest:
        options["dest"] = argument.dest
    if argument.required:
        options["required"] = True
    if argument.action == "BooleanOptionalAction":
        return {**options, "action": argparse.BooleanOptionalAction, "default": argument.default}
    if argument.is_switch:
        return {**options, "action": argument.action}
    if argument.action != "store":
        options["action"] = argument.action
    for key in ("nargs", "const"):
        if getattr(argument, key) is not None:
            options[key] = getattr(argument, key)
    if argument.choices:
        options["choices"] = argument.choices
    if name.startswith("-"):
        options["default"] = argument.default
    return {**options, "type": _TYPES[argument.type]}


def _boolean(text: str) -> bool:
    """run.py's own reading of a boolean: everything but yes, true, t and 1 is False."""
    return text.lower() in ("yes", "true", "t", "1")


_TYPES: dict[str, Callable[[str], Any]] = {"str": str, "int": int, "float": float, "bool": _boolean}
