"""What is known of one TensorRT-LLM release: its tools with their flags, its containers, how it behaves.

Code asks a release what it has (``release.tool("trtllm-build").has("--use_fused_mlp")``), never which one it is.
"""

import argparse
import datetime
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cache, cached_property
from typing import Any, Literal, NoReturn

from pydantic import Field, GetCoreSchemaHandler, field_serializer
from pydantic_core import CoreSchema
from pydantic_core.core_schema import is_instance_schema

from serving_base.errors import NotInRelease, UsageError
from serving_base.record import Record

Value = str | int | float | bool
Confidence = Literal["high", "medium", "low"]


class Argument(Record):
    """One argument of a tool, in argparse's terms. Without ``choices`` every value of ``type`` is taken.

    ``unconfirmed``: choices that may be missing in this release; ``confidence``: set where the argument itself may be.
    """

    type: Literal["str", "int", "float", "bool"] = "str"
    action: Literal["store", "store_true", "store_false", "append", "BooleanOptionalAction"] = "store"
    default: Value | list[Value] | None = None
    choices: tuple[Value, ...] = ()
    unconfirmed: tuple[Value, ...] = ()
    nargs: Literal["+", "*", "?"] | int | None = None
    const: Value | None = None
    required: bool = False
    aliases: tuple[str, ...] = ()
    dest: str = ""
    confidence: Confidence | None = None
    note: str = ""

    @property
    def is_switch(self) -> bool:
        """True for a flag that takes no value."""
        return self.action in ("store_true", "store_false", "BooleanOptionalAction")


class Tool(Record):
    """One command line tool: where it is, and what it takes.

    ``container_path`` is empty where the release's container lacks it; then, and outside a container, it is
    ``repo_path`` of the clone ``repo`` (a key of ``Release.checkouts``). Without ``repo`` it is a program on PATH.
    ``needs``: pip requirements that the container does not meet.
    """

    container_path: str = ""
    repo: str = ""
    repo_path: str = ""
    launcher: tuple[str, ...] = ()
    needs: tuple[str, ...] = ()
    confidence: Confidence
    source: str
    note: str = ""
    arguments: dict[str, Argument]

    @property
    def names(self) -> frozenset[str]:
        """Every way to write an argument."""
        found: set[str] = set()
        for name, argument in self.arguments.items():
            found |= {name, *argument.aliases}
            if argument.action == "BooleanOptionalAction":
                found.add(f"--no-{name.removeprefix('--')}")
        return frozenset(found)

    def has(self, flag: str) -> bool:
        """True if the tool takes ``flag``, under this name or as an alias."""
        return self.argument(flag) is not None

    def argument(self, flag: str) -> Argument | None:
        if flag in self.arguments:
            return self.arguments[flag]
        opposite = self.arguments.get(f"--{flag.removeprefix('--no-')}")
        if opposite is not None and opposite.action == "BooleanOptionalAction":
            return opposite
        return self._by_alias.get(flag)

    @cached_property
    def _by_alias(self) -> dict[str, Argument]:
        return {alias: one for one in reversed(self.arguments.values()) for alias in one.aliases}

    def begun(self, flag: str) -> str:
        """The only name that begins with ``flag``, which argparse takes it for; "" for none or several."""
        if flag not in self._begun:
            named = ((name, *argument.aliases) for name, argument in self.arguments.items())
            found = [name for names in named for name in names if name.startswith(flag)]
            self._begun[flag] = found[0] if len(found) == 1 else ""
        return self._begun[flag]

    @cached_property
    def _begun(self) -> dict[str, str]:
        return {}

    def accepts(self, flag: str, value: Value) -> bool:
        """True if the tool takes ``flag`` with ``value``."""
        argument = self.argument(flag)
        if argument is None or argument.is_switch:
            return False
        return not argument.choices or value in argument.choices

    def certain(self, flag: str, value: Value | None = None) -> bool:
        """True if the facts are sure that the tool takes ``flag``, and ``value`` of its choices."""
        argument = self.argument(flag)
        if argument is None or argument.confidence in ("medium", "low") or value in argument.unconfirmed:
            return False
        return value is None or self.accepts(flag, value)


class SourceCommits(Record):
    """The commits that the facts were read at."""

    repo: str
    commit: str
    backend_repo: str = ""
    backend_commit: str = ""


class Difference(Record):
    """How a program of the container differs from the release's own, where the container holds another build."""

    without: tuple[str, ...] = ()
    added: dict[str, Argument] = Field(default={})
    source: str


class Built(Record):
    """An image that is built here, because no published one has tensorrt_llm. ``base`` is what it is built from."""

    tag: str
    base: str
    source: str


class Containers(Record):
    """Images, the recommended one first. ``tensorrt_llm``: those without a server, where the tools run instead.

    ``reports``: what tensorrt_llm in the recommended image says that it is, where that is not the release;
    ``differs``: programs of that build, by name; ``built``: where the tools run if no published image has them.
    """

    triton: tuple[str, ...]
    reports: str = ""
    differs: dict[str, Difference] = Field(default={})
    built: Built | None = None
    tensorrt_llm: tuple[str, ...] = ()
    lmi: tuple[str, ...] = ()
    source: str


class Support(Record):
    supported: bool
    note: str = ""
    source: str


class Checkout(Record):
    """A clone of what a container lacks, at the release's own tag."""

    url: str
    tag: str
    folder: str
    source: str


class Native(Record):
    """What an installation without the container needs: Debian packages, pip requirements, files of requirements."""

    system_packages: tuple[str, ...] = ()
    pip: tuple[str, ...] = ()
    requirements: tuple[str, ...] = ()
    note: str = ""
    source: str


class Download(Record):
    """The hub's command line client in the container."""

    argv: tuple[str, ...]
    source: str


class EnvironmentVariable(Record):
    """An environment variable that the release needs for some profiles.

    ``when`` names fields of a profile, all of which have to hold: a list of values that are meant, or, for
    ``<field>_above``, a number that has to be exceeded. Without ``when`` every profile needs it.
    """

    name: str
    value: str
    when: dict[str, tuple[Value, ...] | float] = Field(default={})
    why: str
    source: str

    def applies_to(self, profile: object) -> bool:
        """True if all of ``when`` holds for the attributes of ``profile``."""
        return all(_holds(profile, field, wanted) for field, wanted in self.when.items())


class Fact(Record):
    value: bool
    source: str


class Pin(Record):
    """A version that a release asks for beside its container; ``source``: where that was read, and how near to it."""

    version: str
    source: str


class Behaviour(Record):
    """How the tools behave where their arguments do not tell."""

    fp8_kv_scales_used: Fact
    container_has_tensorrt_llm: Fact
    fill_template_escapes: Fact
    launch_returns_at_once: Fact


class Templates(Record):
    """Where the model repository's templates are; what is in them: :mod:`trtllm_check.releases.templates`."""

    container_path: str = ""
    repo: str = ""
    repo_path: str
    source: str


class Note(Record):
    text: str
    source: str


class Tools(Mapping[str, Tool]):
    """Tools by name. Each is read when it is first asked for: most commands need two of nine."""

    def __init__(self, names: Iterable[str], read: Callable[[str], Tool | None]) -> None:
        self._names, self._read = names, cache(read)
        self.parsers: dict[tuple[str, bool], argparse.ArgumentParser] = {}

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        return is_instance_schema(cls)

    def __getitem__(self, name: str) -> Tool:
        if (tool := self._read(name)) is None:
            raise KeyError(name)
        return tool

    def __iter__(self) -> Iterator[str]:
        return (name for name in self._names if self._read(name) is not None)

    def __len__(self) -> int:
        return sum(1 for _ in self)


class Release(Record):
    """One TensorRT-LLM release."""

    name: str = Field(alias="release")
    date: datetime.date
    branch: str = ""
    source: SourceCommits
    containers: Containers
    python: str
    pins: dict[str, str] = Field(default={})
    lm_eval: Pin | None = None
    models: dict[str, Support] = Field(default={})
    checkouts: dict[str, Checkout] = Field(default={})
    native: Native | None = None
    download: Download
    environment: tuple[EnvironmentVariable, ...] = ()
    behaviour: Behaviour
    notes: tuple[Note, ...] = ()
    tools: Tools
    templates: Templates | None = None
    llmapi: Templates | None = None

    @field_serializer("tools")
    def _all_tools(self, tools: Mapping[str, Tool]) -> dict[str, Tool]:
        return dict(tools)

    @property
    def image(self) -> str:
        """The container of the tools. It also serves engines: only the TensorRT that built one can run it."""
        built = (self.containers.built.tag,) if self.containers.built else ()
        return (built + self.containers.tensorrt_llm + self.containers.triton)[0]

    @property
    def in_container(self) -> "Release":
        """This release with the parsers of the programs that its container really holds."""
        if not self.containers.differs:
            return self
        return self.model_copy(update={"tools": Tools(self.tools, self._tool_in_container)})

    def _tool_in_container(self, name: str) -> Tool | None:
        tool, difference = self.tools.get(name), self.containers.differs.get(name)
        if tool is None or difference is None:
            return tool
        kept = {flag: one for flag, one in tool.arguments.items() if flag not in difference.without}
        changed = {"arguments": {**kept, **difference.added}, "source": difference.source}
        return Tool(**{**dict(tool), **changed})  # no model_copy: that takes along what was looked up before

    @property
    def container_version(self) -> str:
        """What tensorrt_llm in ``image`` says that it is: some containers hold a development build of the release."""
        return self.containers.reports or self.name

    @property
    def server_image(self) -> str:
        """The container with the Triton server."""
        return self.containers.triton[0]

    @property
    def builds_engines(self) -> bool:
        """False for the releases that have PyTorch's flow only."""
        return "trtllm-build" in self.tools

    def environment_of(self, profile: object) -> dict[str, str]:
        """Environment variables that this release needs for ``profile``."""
        return {setting.name: setting.value for setting in self.environment if setting.applies_to(profile)}

    def tool(self, name: str) -> Tool:
        if name not in self.tools:
            raise NotInRelease(
                f"TensorRT-LLM {self.name} has no facts on a tool {name!r}",
                why="" if self.builds_engines else "it builds no engines: it has PyTorch's flow only",
                fix=f"use one of: {', '.join(self.tools)}",
            )
        return self.tools[name]


def _holds(profile: object, field: str, wanted: tuple[Value, ...] | float) -> bool:
    if isinstance(wanted, tuple):
        return getattr(profile, field) in wanted
    return bool(getattr(profile, field.removesuffix("_above")) > wanted)


class _RaisingParser(argparse.ArgumentParser):
    """An ArgumentParser that raises :class:`UsageError` where argparse would end the process."""

    def error(self, message: str) -> NoReturn:
        raise UsageError(f"{self.prog} refuses this command", why=message, fix="use a flag and value that it takes")


def build_parser(release: Release, tool_name: str, *, abbreviations: bool = False) -> argparse.ArgumentParser:
    """The parser of ``tool_name`` in ``release``; its errors are :class:`UsageError` with argparse's message.

    Real argparse takes unambiguous ``abbreviations``; commands that we print are checked without them. A release
    builds each parser once: it is not to be changed.
    """
    parsers, key = release.tools.parsers, (tool_name, abbreviations)
    if key not in parsers:
        parsers[key] = _new_parser(release, tool_name, abbreviations=abbreviations)
    return parsers[key]


def _new_parser(release: Release, tool_name: str, *, abbreviations: bool) -> argparse.ArgumentParser:
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
