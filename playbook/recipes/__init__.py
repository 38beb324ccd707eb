"""Recipes: pure functions from a profile and a release's facts to the commands that TensorRT-LLM needs."""

from collections.abc import Callable, Iterable

from playbook.errors import UsageError
from playbook.profile import Profile
from playbook.recipes import fmbench, lmi, sagemaker
from playbook.recipes.build import build
from playbook.recipes.command import Command, Paths, docker_argv, on_host, shell, tool_arguments
from playbook.recipes.install import fetch, install
from playbook.recipes.profile import nsys
from playbook.recipes.quantize import convert, quantize
from playbook.recipes.run import chat_prompt, run
from playbook.recipes.triton import fill, launch, request
from playbook.releases import Release, check_arguments

__all__ = [
    "STAGES",
    "Command",
    "Paths",
    "chat_prompt",
    "checked",
    "commands",
    "docker_argv",
    "fmbench",
    "lmi",
    "on_host",
    "sagemaker",
    "shell",
    "tool_arguments",
]

Recipe = Callable[[Profile, Release, Paths], list[Command]]
STAGES: dict[str, Recipe] = {
    "install": install,
    "fetch": fetch,
    "quantize": quantize,
    "convert": convert,
    "build": build,
    "run": run,
    "profile": nsys,
    "fill": fill,
    "launch": launch,
    "lmi": lmi.compile_ahead,
    "request": lambda profile, _release, _paths: request(profile),
}


def commands(profile: Profile, release: Release, stage: str, paths: Paths | None = None) -> list[Command]:
    """The commands of ``stage`` under ``profile`` with the vocabulary of ``release``.

    ``paths`` defaults to what is printed: ``./workspace``. Raises :class:`UsageError` for an unknown stage, for a
    profile that does not use TensorRT-LLM, and for a command that the release's own parser would refuse.
    """
    if stage not in STAGES:
        raise UsageError(f"there is no stage {stage!r}", fix=f"use one of: {', '.join(STAGES)}")
    if profile.lane != "tensorrt_llm":
        raise UsageError(
            f"profile {profile.name} runs no TensorRT-LLM commands",
            why=f"its lane is {profile.lane}",
            fix="use p5, p5-8b or a profile of yours with lane: tensorrt_llm",
        )
    return checked(release, STAGES[stage](profile, release, paths or Paths.default(profile)))


def checked(release: Release, todo: Iterable[Command]) -> list[Command]:
    """The commands, after the parsers built from the release's facts took the arguments of its tools."""
    checked_commands = list(todo)
    for command in checked_commands:
        if command.tool in release.tools:
            check_arguments(release, command.tool, tool_arguments(command))
    return checked_commands
