"""Reads ``data/<release>.yml``: the tools, flags, template variables and containers of one TensorRT-LLM release.

Code asks a release what it has (``release.tool("trtllm-build").has("--use_fused_mlp")``), never which one it is,
so a further release is a further file.
"""

import datetime
import re
from functools import cache
from pathlib import Path
from typing import Any, Literal

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from playbook.errors import PlaybookError, UsageError

DATA_DIR = Path(__file__).parent / "data"
Value = str | int | float | bool
Confidence = Literal["high", "medium", "low"]


class _Facts(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Argument(_Facts):
    """One argument of a tool, in argparse's terms. Without ``choices`` every value of ``type`` is taken."""

    type: Literal["str", "int", "float", "bool"] = "str"
    action: Literal["store", "store_true", "store_false", "append", "BooleanOptionalAction"] = "store"
    default: Value | list[Value] | None = None
    choices: tuple[Value, ...] = ()
    nargs: Literal["+", "*", "?"] | None = None
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


class Tool(_Facts):
    """One command line tool: where it is in the container, and what it takes."""

    path: str
    launcher: tuple[str, ...] = ()
    confidence: Confidence
    source: str
    note: str = ""
    arguments: dict[str, Argument]

    def has(self, flag: str) -> bool:
        """True if the tool takes ``flag``, under this name or as an alias."""
        return self.argument(flag) is not None

    def argument(self, flag: str) -> Argument | None:
        if flag in self.arguments:
            return self.arguments[flag]
        return next((argument for argument in self.arguments.values() if flag in argument.aliases), None)

    def accepts(self, flag: str, value: Value) -> bool:
        """True if the tool takes ``flag`` with ``value``."""
        argument = self.argument(flag)
        if argument is None or argument.is_switch:
            return False
        return not argument.choices or value in argument.choices


class Source(_Facts):
    """The commits that the facts were read at."""

    repo: str
    commit: str
    backend_repo: str = ""
    backend_commit: str = ""


class Containers(_Facts):
    """Images, the recommended one first."""

    triton: tuple[str, ...]
    lmi: tuple[str, ...] = ()
    source: str


class Support(_Facts):
    supported: bool
    note: str = ""
    source: str


class Checkout(_Facts):
    """A clone that the tools need because the container does not hold it."""

    url: str
    tag: str
    folder: str
    submodules: tuple[str, ...] = ()
    source: str


class Download(_Facts):
    """The hub's command line client in the container."""

    argv: tuple[str, ...]
    source: str


class Fact(_Facts):
    value: bool
    source: str


class Behaviour(_Facts):
    """How the tools behave where their arguments do not tell."""

    paged_context_fmha_with_fp8_kv: Fact
    fp8_kv_scales_used: Fact
    fp8_kv_block_reuse: Fact
    fill_template_escapes: Fact
    launch_returns_at_once: Fact


class TemplateModel(_Facts):
    """Variables of one model's ``config.pbtxt``: ``typed`` ones must be filled, ``free`` ones may stay."""

    typed: tuple[str, ...]
    free: tuple[str, ...] = ()

    @property
    def variables(self) -> tuple[str, ...]:
        return self.typed + self.free


class Templates(_Facts):
    """The model repository's templates (``inflight_batcher_llm``)."""

    path: str
    source: str
    models: dict[str, TemplateModel]


class Note(_Facts):
    text: str
    source: str


class Release(_Facts):
    """One TensorRT-LLM release."""

    name: str = Field(alias="release")
    date: datetime.date
    source: Source
    containers: Containers
    python: str
    pins: dict[str, str] = {}
    models: dict[str, Support] = {}
    checkout: Checkout | None = None
    download: Download
    behaviour: Behaviour
    notes: tuple[Note, ...] = ()
    tools: dict[str, Tool]
    templates: Templates

    @property
    def image(self) -> str:
        """The container that builds and serves: engines must be run by the TensorRT that built them."""
        return self.containers.triton[0]

    def tool(self, name: str) -> Tool:
        if name not in self.tools:
            raise UsageError(
                f"TensorRT-LLM {self.name} has no facts on a tool {name!r}", fix=f"use one of: {', '.join(self.tools)}"
            )
        return self.tools[name]


def known_releases(folder: Path = DATA_DIR) -> list[str]:
    """Names of the releases that have a data file, oldest first."""
    return sorted((path.stem for path in folder.glob("*.yml")), key=_version_key)


@cache
def load_release(name: str, folder: Path = DATA_DIR) -> Release:
    """Read and check the facts of release ``name``; :class:`UsageError` for one that has no data file."""
    names = known_releases(folder)
    if name not in names:
        raise UsageError(
            f"no facts on TensorRT-LLM release {name!r}",
            why=f"there is no {name}.yml among the release data",
            fix=f"use one of: {', '.join(names)}",
        )
    path = folder / f"{name}.yml"
    try:
        release = Release.model_validate(_read_yaml(path))
    except (ValidationError, yaml.YAMLError) as error:
        raise PlaybookError(f"{path} is not a valid release file", why=str(error), fix="mend what it names") from error
    if release.name != name:
        raise PlaybookError(f"{path} describes release {release.name}", fix=f"rename it to {release.name}.yml")
    return release


def _read_yaml(path: Path) -> Any:
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # libyaml's parser, ten times faster, if there
    return yaml.load(path.read_text(encoding="utf-8"), Loader=loader)


def _version_key(name: str) -> list[tuple[int, str]]:
    return [(int(part), "") if part.isdigit() else (-1, part) for part in re.findall(r"\d+|[a-z]+", name)]
