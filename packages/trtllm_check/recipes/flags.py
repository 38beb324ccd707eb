"""Chooses flags by a release's own vocabulary."""

from collections.abc import Mapping

from serving_base.errors import NotInRelease
from trtllm_check.releases import Release, Tool

FlagValue = str | int | float | bool | None


def required(release: Release, tool_name: str, flags: Mapping[str, FlagValue]) -> list[str]:
    """The flags as an argument list. None leaves a flag out, True writes a bare switch.

    Raises :class:`NotInRelease` if the release's tool does not have one of them.
    """
    tool = release.tool(tool_name)
    for flag, value in flags.items():
        if value is not None and not tool.has(flag):
            raise NotInRelease(
                f"{tool_name} of TensorRT-LLM {release.name} has no {flag}",
                why=f"its arguments are: {', '.join(tool.arguments)}",
                fix="use a release that has it, or a profile that does not need it",
            )
    return _render(flags)


def optional(tool: Tool, flags: Mapping[str, FlagValue]) -> list[str]:
    """Those of the flags that the tool surely has, and takes with this value."""
    return _render({flag: value for flag, value in flags.items() if _takes(tool, flag, value)})


def switch(tool: Tool, flag: str) -> FlagValue:
    """How to turn ``flag`` on: True for a bare switch, ``"enable"`` for a flag with a value, None if it is absent."""
    argument = tool.argument(flag)
    if argument is None:
        return None
    return True if argument.is_switch else "enable"


def first_of(tool: Tool, *flags: str) -> str:
    """The first of several names of one flag that the tool has; "" if it has none."""
    return next((flag for flag in flags if tool.has(flag)), "")


def _takes(tool: Tool, flag: str, value: FlagValue) -> bool:
    if value is True:
        argument = tool.argument(flag)
        return argument is not None and argument.is_switch and tool.certain(flag)
    return value is not None and value is not False and tool.certain(flag, value)


def _render(flags: Mapping[str, FlagValue]) -> list[str]:
    words: list[str] = []
    for flag, value in flags.items():
        if value is True:
            words.append(flag)
        elif value is not None and value is not False:
            words += [flag, str(value)]
    return words
