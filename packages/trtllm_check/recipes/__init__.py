"""Recipes: pure functions from a profile and a release's facts to the commands that TensorRT-LLM needs."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Any

from serving_base.errors import NotInRelease, UsageError
from trtllm_check.deployment import Deployment
from trtllm_check.recipes import pytorch, triton
from trtllm_check.recipes.build import build
from trtllm_check.recipes.command import Command, Paths, docker_argv, on_host, shell, tool_arguments
from trtllm_check.recipes.gate import gate
from trtllm_check.recipes.install import fetch, install
from trtllm_check.recipes.quantize import convert, quantize
from trtllm_check.recipes.run import chat_prompt, nsys, run, summarize
from trtllm_check.releases import Release, build_parser

if TYPE_CHECKING:
    from trtllm_check.recipes import fmbench, lmi, longbench, quotas, sagemaker

__all__ = [
    "STAGES",
    "Command",
    "Paths",
    "Road",
    "chat_prompt",
    "checked",
    "commands",
    "docker_argv",
    "fmbench",
    "lmi",
    "longbench",
    "on_host",
    "quotas",
    "road",
    "sagemaker",
    "shell",
    "tool_arguments",
]

LAZY = (
    "fmbench",
    "lmi",
    "longbench",
    "quotas",
    "sagemaker",
)  # imported when first used: most commands need none of them


def __getattr__(name: str) -> Any:
    if name in LAZY:
        return import_module(f"{__name__}.{name}")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def _lmi(profile: Deployment, release: Release, paths: Paths) -> list[Command]:
    from trtllm_check.recipes.lmi import compile_ahead

    return compile_ahead(profile, release, paths)


Recipe = Callable[[Deployment, Release, Paths], list[Command]]
STAGES: dict[str, Recipe] = {
    "install": install,
    "fetch": fetch,
    "quantize": quantize,
    "convert": convert,
    "build": build,
    "run": run,
    "summarize": summarize,
    "gate": gate,
    "profile": nsys,
    "serve": pytorch.serve,
    "fill": triton.fill,
    "launch": triton.launch,
    "request": triton.request,
    "lmi": _lmi,
}


@dataclass(frozen=True)
class Road:
    """All commands from the first stage to the last, and what the release, the profile or an image cannot do."""

    commands: tuple[Command, ...]
    left_out: tuple[str, ...]


def commands(profile: Deployment, release: Release, stage: str, paths: Paths | None = None) -> list[Command]:
    """The commands of ``stage`` under ``profile`` with the vocabulary of ``release``.

    ``paths`` defaults to what is printed: ``./workspace``. Raises :class:`UsageError` for an unknown stage, for a
    profile that does not use TensorRT-LLM, and for a command that the release's own parser would refuse, and
    :class:`NotInRelease` for a stage that the release does not have.
    """
    held = _held(profile, release)
    return checked(held, _made(profile, held, stage, paths))


def _held(profile: Deployment, release: Release) -> Release:
    """The release as the runner of the profile finds it."""
    return release if profile.runner == "native" else release.in_container


def _made(profile: Deployment, held: Release, stage: str, paths: Paths | None) -> list[Command]:
    if stage not in STAGES:
        raise UsageError(f"there is no stage {stage!r}", fix=f"use one of: {', '.join(STAGES)}")
    if not profile.on_gpus:
        raise UsageError(
            f"profile {profile.name} runs no TensorRT-LLM commands",
            why="its machine has no GPU",
            fix="use p5, p5-8b or a profile of yours that names a gpu",
        )
    return list(STAGES[stage](profile, held, paths or Paths.default(profile)))


def road(profile: Deployment, release: Release, stage: str = "", paths: Paths | None = None) -> Road:
    """The commands of all stages in order, or of one. What the release does not have is left out and named.

    :class:`NotInRelease` if it is the one stage that was asked for.
    """
    held = _held(profile, release)
    todo: list[Command] = []
    left_out: list[str] = []
    for name in [stage] if stage else STAGES:
        try:
            todo += _made(profile, held, name, paths)
        except NotInRelease as error:
            if stage:
                raise
            left_out.append(f"{name}: {error.what}" + (f": {error.why}" if error.why else ""))
    left_out += [f"{command.stage}: {sentence}" for command in todo for sentence in command.left_out]
    return Road(tuple(checked(held, todo)), tuple(dict.fromkeys(left_out)))


def checked(release: Release, todo: Iterable[Command]) -> list[Command]:
    """The commands, after the parsers built from the release's facts took the arguments of its tools."""
    checked_commands = list(todo)
    used = {command.tool for command in checked_commands}
    parsers = {tool: build_parser(release, tool) for tool in release.tools if tool in used}
    for command in checked_commands:
        if command.tool in parsers:
            parsers[command.tool].parse_args(list(tool_arguments(command)))
    return checked_commands
