"""CUDA_VISIBLE_DEVICES in a container: numbers of GPUs that are not there, and the empty text that hides them all."""

import re
from collections.abc import Iterator
from typing import Any

from trtllm_check.lint.carriers.workloads import ServedContainer
from trtllm_check.lint.document import Document
from trtllm_check.lint.finding import Draft, Platform, drafts
from trtllm_check.lint.invocations import Invocation
from trtllm_check.lint.shell.words import Word

RULE, VISIBLE, GIVEN = "gpus-renumbered", "CUDA_VISIBLE_DEVICES", "NVIDIA_VISIBLE_DEVICES"
DEVICES = re.compile(r"[\"']?\"?device=(\d+(?:,\d+)*)\"?[\"']?")
NUMBERS = re.compile(r"\d+(?:, ?\d+)*")
MAY_BE_EMPTY = re.compile(r"[\"']?\$\{(?P<name>\w+):?-\}[\"']?")


def check(document: Document, platform: Platform) -> Iterator[Draft]:
    """All drafts of the family."""
    release = platform.release.name
    for docker in document.of("docker"):
        if len(docker.positional) > 1 and docker.positional[0].text in ("run", "create"):
            yield from _docker(docker, release)
    for workload in document.workloads:
        yield from _workload(workload, release)


def _docker(docker: Invocation, release: str) -> Iterator[Draft]:
    """The host's numbers in a container that has some of its GPUs only."""
    variables = {
        name: word for word in docker.values("-e", "--env") for name, sign, _ in [word.text.partition("=")] if sign
    }
    inside = variables.get(VISIBLE)
    if inside is None:
        return
    asked = inside.text.partition("=")[2]
    given = docker.values("--gpus")
    if given and asked.strip("\"'") == "" and given[-1].text != "0":
        yield from drafts(release, RULE, inside, form="empty", invocation=docker, value="the empty text")
        return
    shown = [word.text.partition("=")[2] for name, word in variables.items() if name == GIVEN]
    shown += [match[1] for word in given if (match := DEVICES.fullmatch(word.text))]
    if shown and NUMBERS.fullmatch(shown[-1]):
        count = len(shown[-1].split(","))
        if _most(asked) >= count:
            known: dict[str, Any] = {"asked": asked, "shown": shown[-1], "last": count - 1}
            yield from drafts(release, RULE, inside, invocation=docker, **known)
    elif given and given[-1].text.isdecimal() and 0 < int(given[-1].text) <= _most(asked):
        known = _beyond(asked, int(given[-1].text), given[-1].line)
        yield from drafts(release, RULE, inside, form="count", invocation=docker, **known)


def _most(asked: str) -> int:
    """The highest number of a list; -1 for what is none."""
    return max(map(int, asked.split(","))) if NUMBERS.fullmatch(asked) else -1


def _beyond(asked: str, count: int, line: int) -> dict[str, Any]:
    missing = ",".join(one.strip() for one in asked.split(",") if int(one) >= count)
    return {"asked": asked, "missing": missing, "count": count, "last": count - 1, "line": line}


def _workload(workload: ServedContainer, release: str) -> Iterator[Draft]:
    """The same in docker compose, Kubernetes and ECS."""
    settings: dict[str, Word] = dict(workload.settings)
    inside = settings.get(VISIBLE)
    if inside is None:
        return
    count, line = workload.gpus, workload.gpus_place.line
    given = settings.get(GIVEN)
    if count is None and workload.kind == "compose" and not workload.devices and given is not None:
        count, line = (len(given.text.split(",")), given.line) if NUMBERS.fullmatch(given.text) else (None, 0)
    if workload.kind == "compose" and (workload.devices or count) and (match := MAY_BE_EMPTY.fullmatch(inside.text)):
        about: dict[str, Any] = {"value": f"empty where {match['name']} is not set"}
        yield from drafts(release, RULE, inside, form="empty", file=workload.file, **about)
    elif count and _most(inside.text) >= count:
        known = _beyond(inside.text, count, line)
        yield from drafts(release, RULE, inside, form="count", file=workload.file, **known)
