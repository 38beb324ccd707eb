"""YAML that was cut out of a file below its first lines: what stands above it is put back, as far as its keys tell.

A piece that begins deeper than it goes on is no YAML by itself. The keys above that it lacks are those that Kubernetes
and compose have there; they stand at the place of its first character.
"""

import re
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import NamedTuple

from trtllm_check.lint.carriers.script import joined
from trtllm_check.lint.shell.words import Word

LONGEST = 20_000
KEY = re.compile(r"(?:- +)?[\"']?(?P<key>[A-Za-z_][\w./-]*)[\"']?:(?:[ ]|$)")
ITEM = re.compile(r"-(?: +|$)")
OPTION = re.compile(r"- +[\"']?--?[A-Za-z]")
PAIR = re.compile(r"- +[\"']?[A-Z][A-Z0-9_]*=")
PORT = re.compile(r"- +[\"']?\d+:\d+")
OF_CONTAINERS = frozenset(
    {
        *("image", "imagePullPolicy", "args", "command", "env", "envFrom", "volumeMounts", "ports"),
        *("resources", "livenessProbe", "readinessProbe", "startupProbe", "securityContext", "workingDir"),
        *("lifecycle"),
    }
)
OF_SERVICES = frozenset(
    {
        *("image", "command", "entrypoint", "environment", "deploy", "restart", "depends_on", "networks"),
        *("volumes", "ports", "shm_size", "ipc", "runtime", "env_file", "container_name", "healthcheck"),
        *("ulimits", "build", "gpus", "privileged"),
    }
)
OF_PODS = frozenset(
    {
        *("containers", "initContainers", "volumes", "nodeSelector", "tolerations", "affinity"),
        *("restartPolicy", "serviceAccountName", "hostIPC", "hostNetwork", "imagePullSecrets"),
        *("runtimeClassName", "terminationGracePeriodSeconds", "priorityClassName", "shareProcessNamespace"),
    }
)
OF_COMPOSE = frozenset(("volumes", "networks", "secrets", "configs"))
# What a list of mappings is, by a key of its entries.
LISTS = (
    ("image", "containers"),
    ("mountPath", "volumeMounts"),
    ("containerPort", "ports"),
    ("emptyDir", "volumes"),
    ("persistentVolumeClaim", "volumes"),
    ("hostPath", "volumes"),
    ("value", "env"),
    ("valueFrom", "env"),
    ("operator", "tolerations"),
)
UNKNOWN = "above"


class Level(NamedTuple):
    """Lines that stand at one margin or deeper, down to the next line that stands less deep."""

    margin: int
    lines: tuple[str, ...]

    @property
    def keys(self) -> frozenset[str]:
        """Those at the margin."""
        found = (KEY.match(line[self.margin :]) for line in self.lines if _margin(line) == self.margin)
        return frozenset(match["key"] for match in found if match)

    @property
    def is_list(self) -> bool:
        return ITEM.match(self.lines[0].lstrip()) is not None


def completed(word: Word) -> Word | None:
    """``word`` below the keys that it lacks; None for what begins at its margin, and for what is no such piece."""
    if len(word.text) > LONGEST:
        return None
    above = "".join(_above(_levels(word.text)))
    if not above:
        return None
    place = word.places[0] if word.places else (word.line, word.column)
    return joined([Word(above, *place, (place,) * len(above)), word])


def with_keys_above(text: str) -> str:
    """The same for a text without places; as it is where nothing lacks."""
    return "".join(_above(_levels(text))) + text if len(text) <= LONGEST else text


def _margin(line: str) -> int:
    return len(line) - len(line.lstrip(" "))


def _levels(text: str) -> list[Level]:
    """The levels from the first line on, each less deep than the one before; [] where a line is no YAML."""
    found: list[Level] = []
    lines: list[str] = []
    margin, is_list = -1, False
    for line in text.split("\n"):
        line = line.rstrip()
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        here = _margin(line)
        if margin < 0:
            margin, is_list = here, ITEM.match(line.lstrip()) is not None
        is_next = here < margin or (here == margin and is_list and ITEM.match(line.lstrip()) is None)
        if is_next:
            found.append(Level(margin, tuple(lines)))
            lines, margin, is_list = [], here, False
            if KEY.match(line.lstrip()) is None and ITEM.match(line.lstrip()) is None:
                return []
        lines.append(line)
    return [*found, Level(margin, tuple(lines))] if found else []


def _above(levels: Sequence[Level]) -> Iterator[str]:
    """The lines that stand above, the outermost first."""
    if (
        len(levels) < 2
        or levels[0].margin == 0
        or not all(KEY.match(one.lines[0].lstrip()) or one.is_list for one in levels)
    ):
        return
    if not any(one.keys & (OF_CONTAINERS | OF_SERVICES | OF_PODS) for one in levels):
        return
    for below, level in reversed(list(pairwise(levels))):
        yield from _between(below, level)


def _between(below: Level, level: Level) -> Iterator[str]:
    """The key at the margin of ``level`` that holds what stands in ``below``."""
    blank = " " * level.margin
    gap = below.margin - level.margin
    if below.is_list:
        yield f"{blank}{_of_items(below, level)}:\n"
    elif level.margin == 0 and level.keys <= OF_COMPOSE and gap == 4 and below.keys & OF_SERVICES:
        yield f"services:\n{' ' * 2}service:\n"
    elif level.margin == 0 and level.keys <= OF_COMPOSE and gap == 2 and not below.keys & OF_SERVICES:
        yield "services:\n"
    elif below.keys & OF_CONTAINERS and level.keys & OF_PODS and gap >= 2:
        yield f"{blank}containers:\n{' ' * (below.margin - 2)}-\n"
    elif below.keys & OF_SERVICES and not level.keys & OF_CONTAINERS:
        yield f"{blank}service:\n"
    else:
        yield f"{blank}{UNKNOWN}:\n"


def _of_items(below: Level, level: Level) -> str:
    first = below.lines[0].lstrip()
    is_compose = bool(level.keys & (OF_SERVICES - OF_CONTAINERS)) and not level.keys & (OF_CONTAINERS - OF_SERVICES)
    if PORT.match(first):
        return "ports"
    if PAIR.match(first):
        return "environment"
    keys = {match["key"] for line in below.lines if (match := KEY.match(line.lstrip()))}
    if not OPTION.match(first) and keys:
        return next((name for key, name in LISTS if key in keys), UNKNOWN)
    return "command" if is_compose else "args"
