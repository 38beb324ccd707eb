"""Stages stream, sample and steps: one engine asked in other ways than the stage run does, without a server."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import PurePosixPath

from serving_base.errors import UsageError
from trtllm_check.deployment import Deployment
from trtllm_check.recipes.command import Command, Paths, place
from trtllm_check.recipes.flags import FlagValue, required
from trtllm_check.recipes.run import RUN, ask, on_all_ranks
from trtllm_check.releases import Release

SAMPLING_FLAGS = {"temperature": "--temperature", "top_k": "--top_k", "top_p": "--top_p", "seed": "--random_seed"}
STEPS_SCRIPT = "executor_steps.py"


def stream(profile: Deployment, release: Release, paths: Paths, prompt: str, *, max_output_len: int) -> Command:
    """Print the answer to ``prompt`` after every token."""
    asked = ask(profile, release, paths, prompts=[prompt], max_output_len=max_output_len)
    why = "--streaming prints the answer so far; an interval of 1 does so after every token (the default is 5)."
    return _with(asked, release, {"--streaming": True, "--streaming_interval": 1}, stage="stream", why=why)


def sample(command: Command, release: Release, sampling: Mapping[str, float]) -> Command:
    """The same question, decoded as ``sampling`` says: ``temperature``, ``top_k``, ``top_p``, ``seed``.

    Without ``top_p`` all of the ``top_k`` tokens may be drawn; the tool's own default is 0.
    """
    unknown = sorted(set(sampling) - set(SAMPLING_FLAGS))
    if unknown:
        raise UsageError(f"no sampling parameter is called {unknown[0]!r}", fix=f"use {', '.join(SAMPLING_FLAGS)}")
    given = {"top_p": 1.0, **sampling} if sampling else {}
    flags: dict[str, FlagValue] = {SAMPLING_FLAGS[name]: value for name, value in given.items()}
    return _with(command, release, flags, stage="run", why=command.why)


def steps(profile: Deployment, release: Release, paths: Paths, *, script: str, requests: str, slots: int) -> Command:
    """Run a few requests under both batching policies and write what every step did.

    ``script``: the playbook's own, on TensorRT-LLM's Python bindings of the executor, as the container sees it;
    ``requests``: the JSON file with the prompts, whose answer goes beside it.
    """
    answer = str(PurePosixPath(requests).with_name("steps.json"))
    arguments = ("--engine_dir", paths.engine, "--requests", requests, "--slots", str(slots), "--output", answer)
    return Command(
        "steps",
        STEPS_SCRIPT,
        (*on_all_ranks(profile), "python3", script, *arguments),
        place(profile, release),
        env=release.environment_of(profile),
        why="The executor's own statistics, per step and request; one load of the engine serves both policies.",
    )


def _with(command: Command, release: Release, flags: Mapping[str, FlagValue], *, stage: str, why: str) -> Command:
    argv = (*command.argv, *required(release, RUN, flags))
    return replace(command, stage=stage, argv=argv, why=why)
