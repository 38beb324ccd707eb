"""Chooses flags by a release's own vocabulary."""

from collections.abc import Mapping

from playbook.errors import UsageError
from playbook.releases import Release, Tool

FlagValue = str | int | float | bool | None


def required(release: Release, tool_name: str, flags: Mapping[str, FlagValue]) -> list[str]:
    """The flags as an argument list. None leaves a flag out, True writes a bare switch.

    Raises :class:`UsageError` if the release's tool does not have one of them.
    """
    tool = release.tool(tool_name)
    for flag, value in flags.items():
        if value is not None and not tool.has(flag):
            raise UsageError(
                f"{tool_name} of TensorRT-LLM {release.name} has no {flag}",
                why=f"its arguments are: {', '.join(tool.arguments)}",
                fix="use a release that has it, or a profile that does not need it",
            )
    return _render(flags)


def optional(tool: Tool, flags: Mapping[str, FlagValue]) -> list[str]:
    """Those of the flags that the tool has, and takes with this value."""
    return _render({flag: value for flag, value in flags.items() if _takes(tool, flag, value)})


def switch(tool: Tool, flag: str) -> FlagValue:
    """How to turn ``flag`` on: True for a bare switch, ``"enable"`` for a flag with a value, None if it is absent."""
    argument = tool.argument(flag)
    if argument is None:
        return None
    return True if argument.is_switch else "enable"


def _takes(tool: Tool, flag: str, value: FlagValue) -> bool:
    argument = tool.argument(flag)
    if argument is None or value is None:
        return False
    return argument.is_switch if value is True else tool.accepts(flag, value)


def _render(flags: Mapping[str, FlagValue]) -> list[str]:
    words: list[str] = []
    for flag, value in flags.items():
        if value is True:
            words.append(flag)
        elif value is not None and value is not False:
            words += [flag, str(value)]
    return words
