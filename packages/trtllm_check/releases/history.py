"""The history of a flag: in which releases each tool takes it, and how."""

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from itertools import groupby
from typing import Literal

from trtllm_check.releases.load import known_releases, load_release, load_tool
from trtllm_check.releases.release import Argument, Release, Tool

_NUMBERS = {"int": "a whole number", "float": "a number", "bool": "yes or no", "str": "a text"}


@dataclass(frozen=True)
class Span:
    """Releases in a row in which a tool takes a flag in the same way; ``argument`` is the first one's."""

    first: str
    last: str
    argument: Argument

    @property
    def releases(self) -> str:
        return self.first if self.first == self.last else f"{self.first} to {self.last}"


@dataclass(frozen=True)
class FlagHistory:
    """One flag of one tool.

    ``names``: the flag, and its other names in the tool; ``releases``: those whose facts know the tool, oldest first.
    """

    tool: str
    flag: str
    names: tuple[str, ...]
    releases: tuple[str, ...]
    spans: tuple[Span, ...]

    @property
    def gone_since(self) -> str:
        """The first release that has the tool and no longer the flag; empty if the newest one has it."""
        later = self.releases[self.releases.index(self.spans[-1].last) + 1 :]
        return later[0] if later else ""


@cache
def all_releases() -> tuple[Release, ...]:
    """Every release, oldest first. Checking them all takes time: ask for one tool where that suffices."""
    return tuple(load_release(name) for name in known_releases())


@cache
def all_flags() -> dict[str, tuple[str, ...]]:
    """Every flag of every release, under its own name -> the tools that take it."""
    tools: dict[str, dict[str, None]] = {}
    for release in reversed(all_releases()):
        for tool_name, tool in release.tools.items():
            for flag in tool.arguments:
                tools.setdefault(flag, {})[tool_name] = None
    return {flag: tuple(names) for flag, names in tools.items()}


@cache
def all_names() -> dict[str, str]:
    """Every way to write a flag, without dashes in front and with underscores -> the flag; aliases give way."""
    aliases = (
        (alias, flag)
        for release in all_releases()
        for tool in release.tools.values()
        for flag, argument in tool.arguments.items()
        for alias in argument.aliases
    )
    return {bare(alias): flag for alias, flag in aliases} | {bare(flag): flag for flag in all_flags()}


def bare(name: str) -> str:
    """``--log-file`` -> ``log_file``."""
    return name.lstrip("-").replace("-", "_")


@cache
def tool_history(tool_name: str) -> tuple[tuple[str, Tool | None], ...]:
    """Each release and its tool of this name, None where there are no facts on it."""
    return tuple((release, load_tool(tool_name, release)) for release in known_releases())


@cache
def with_flag(tool_name: str, flag: str) -> tuple[str, ...]:
    """The releases whose tool takes ``flag``, oldest first."""
    return tuple(release for release, tool in tool_history(tool_name) if tool and tool.has(flag))


def flag_history(tool_name: str, flag: str) -> FlagHistory | None:
    """The flag's history in one tool, under this name or as an alias; None if no release's tool has it."""
    tools = tool_history(tool_name)
    spans = tuple(_spans((name, tool.argument(flag) if tool else "unknown") for name, tool in tools))
    if not spans:
        return None
    names = (name for _, tool in tools if tool for name in _names(tool, flag))
    return FlagHistory(
        tool_name, flag, tuple(dict.fromkeys([flag, *names])), tuple(n for n, tool in tools if tool), spans
    )


def flag_histories(flag: str) -> list[FlagHistory]:
    """The flag's history in every tool that has it in some release."""
    return [found for tool_name in all_tools() if (found := flag_history(tool_name, flag))]


def all_tools() -> list[str]:
    """The tools of all releases, in the order of the road."""
    return list(dict.fromkeys(name for release in all_releases() for name in release.tools))


def ranges(names: Iterable[str]) -> str:
    """Releases in words, those in a row as first and last: ``0.8.0 to 0.11.0, 1.2.1``."""
    wanted = set(names)
    runs = [list(run) for has, run in groupby(known_releases(), key=wanted.__contains__) if has]
    return ", ".join(run[0] if len(run) == 1 else f"{run[0]} to {run[-1]}" for run in runs)


def takes(argument: Argument) -> str:
    """What the flag wants after its name, in words; a question mark behind choices that are not confirmed."""
    if argument.action == "BooleanOptionalAction":
        return "a switch, or its --no- form"
    if argument.is_switch:
        return "a bare switch"
    if argument.choices:
        return " | ".join(f"{choice}{'?' if choice in argument.unconfirmed else ''}" for choice in argument.choices)
    return _NUMBERS[argument.type] + ("s" if argument.nargs in ("+", "*") else "")


def default(argument: Argument) -> str:
    """The default as a command line would write it; empty where the tool has none."""
    if argument.action in ("store_true", "store_false"):
        return "off"
    if argument.action == "BooleanOptionalAction":
        return "on" if argument.default else "off"
    if argument.default is None:
        return "required" if argument.required else ""
    return " ".join(map(str, argument.default)) if isinstance(argument.default, list) else str(argument.default)


def _names(tool: Tool, flag: str) -> list[str]:
    """All names of the argument that ``flag`` is, if the tool has it."""
    return [
        name
        for own, argument in tool.arguments.items()
        if flag == own or flag in argument.aliases
        for name in (own, *argument.aliases)
    ]


def _spans(arguments: Iterable[tuple[str, Argument | Literal["unknown"] | None]]) -> Iterable[Span]:
    """A release without facts on the tool ends a span, as one without the flag does."""
    for _, group in groupby(arguments, key=lambda pair: _facts(pair[1])):
        members = list(group)
        first, argument = members[0]
        if isinstance(argument, Argument):
            yield Span(first, members[-1][0], argument)


def _facts(argument: Argument | str | None) -> object:
    """What makes one span: not the notes, and not the order of choices."""
    if not isinstance(argument, Argument):
        return argument
    shown = argument.model_dump(include={"type", "action", "default", "nargs", "required", "confidence"})
    return {**shown, "choices": set(argument.choices), "unconfirmed": set(argument.unconfirmed)}
