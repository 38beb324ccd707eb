"""Folders that Triton is told to read in a container of compose, Kubernetes or Slurm, and that no volume brings there.

Only NVIDIA's own images are judged, which hold no models, and only commands that start the server and nothing else.
"""

import posixpath
import re
from collections.abc import Iterator
from difflib import get_close_matches
from itertools import pairwise
from typing import Any, NamedTuple

from trtllm_check.lint.document import Document
from trtllm_check.lint.filling import fillings
from trtllm_check.lint.finding import Draft, Platform, drafts, rule_data
from trtllm_check.lint.rules.box import boxes
from trtllm_check.lint.rules.names import is_open
from trtllm_check.lint.shell.words import ShellCommand, Word

RULE = "path-not-mounted"
FAMILY = "containers"
IMAGE = re.compile(r"^(?:nvcr\.io[/#])?nvidia/(?:tritonserver|tensorrt-llm/release):\S+$")
REPOSITORY = re.compile(r"--model[-_](?:repository|store|repo)(?:[ =]|\s+)[\"']?(?P<path>/[^\s\"',;&|]+)")
ELSE = re.compile(r"&&|;|\|\||\n|\b(?:cp|mv|ln|aws|gsutil|gcloud|git|wget|curl|mkdir|rsync|tar|hf|huggingface-cli)\b")
STARTS = re.compile(r"(?:^|[\s/\"'])(?:tritonserver\b|launch_triton_server\.py)")
MERGED = re.compile(
    r"<<:|\bextends:|\{\{|\bkserve\b|ServingRuntime|InferenceService"
)  # others add volumes of their own
MOUNTS, CONTAINER = "--container-mounts", "--container-image"
PATH_VARIABLES = ("engine_dir", "tokenizer_dir")
ECS = "ecs"
NO_MODELS = ("/dev", "/root/.cache", "/tmp", "/etc")
NEAR = 0.8


class MountedServer(NamedTuple):
    """A server in a container: its command, the folders that it sees, where it stands."""

    command: str
    visible: tuple[str, ...]
    place: Word
    file: str


def check(document: Document, platform: Platform) -> Iterator[Draft]:
    """All drafts of the family."""
    servers = [*_workloads(document), *_of_slurm(document)]
    release = platform.release.name
    for one in servers:
        given = REPOSITORY.search(one.command)
        if given is not None and not _sees(one, given["path"]) and not _is_near(one, given["path"]):
            yield from _hidden(one.place, given["path"], one.file, release)
    started = [
        docker for docker in document.of("docker") if docker.positional[:1] and STARTS.search(_text(docker.command))
    ]
    if len(servers) == 1 and not started and len(document.texts) == 1:
        yield from _named(document, servers[0], platform)


def _text(command: ShellCommand) -> str:
    return " ".join(word.text for word in command.words)


def _workloads(document: Document) -> Iterator[MountedServer]:
    texts = dict(document.texts)
    for box in boxes(document):
        if box.workload is None or box.workload.kind == ECS or not IMAGE.match(box.image):
            continue
        is_plain = STARTS.search(box.text) and not ELSE.search(box.text) and not MERGED.search(texts.get(box.file, ""))
        if is_plain and not any(map(is_open, box.mounts)):
            visible = tuple(mount for mount in box.mounts if mount)
            if not all(mount.startswith(NO_MODELS) for mount in visible):  # else the models' volume is left out
                yield MountedServer(box.text, visible, box.place, box.file)


def _of_slurm(document: Document) -> Iterator[MountedServer]:
    """``srun --container-image=IMAGE --container-mounts=HOST:INSIDE,... tritonserver ...``."""
    for command in document.commands:
        text = _text(command)
        if not command.words or "srun" not in text or not STARTS.search(text) or ELSE.search(text):
            continue
        given: dict[str, str] = {}
        for before, word in pairwise(command.words):
            flag, sign, value = word.text.partition("=")
            if before.text in (MOUNTS, CONTAINER):
                given[before.text] = word.text
            elif sign and flag in (MOUNTS, CONTAINER):
                given[flag] = value
        if MOUNTS in given and IMAGE.match(given.get(CONTAINER, "")) and not is_open(given[MOUNTS]):
            inside = tuple(one.split(":")[1 if ":" in one else 0] for one in given[MOUNTS].split(","))
            yield MountedServer(text, inside, command.words[0], command.file)


def _sees(one: MountedServer, path: str) -> bool:
    """True also where it is not known."""
    path = posixpath.normpath(path)
    folders = [*one.visible, *rule_data(FAMILY)["in_image"]]
    return is_open(path) or any(path == folder or f"{path}/".startswith(f"{folder.rstrip('/')}/") for folder in folders)


def _is_near(one: MountedServer, path: str) -> bool:
    """True for a folder around a volume, and for a slip that another rule speaks of."""
    parts = path.rstrip("/").split("/")
    begins = ["/".join(parts[:end]) for end in range(2, len(parts) + 1)]
    return any(
        folder.startswith(f"{path.rstrip('/')}/") or get_close_matches(folder, begins, 1, NEAR)
        for folder in one.visible
    )


def _named(document: Document, one: MountedServer, platform: Platform) -> Iterator[Draft]:
    """What a config.pbtxt or a command on the host fills in for the one server of the text."""
    release = platform.release.name
    for filling in fillings(document, platform.release) if document.of("fill_template.py") else ():
        values = {filling.values.get(name, ""): name for name in reversed(PATH_VARIABLES)}
        for path, name in values.items() if not filling.invocation.image else ():
            if path.startswith("/") and "$" not in path and not _sees(one, path):
                yield from _hidden(filling.word, path, filling.invocation.command.file, release, name)
    if document.configs:
        from trtllm_check.lint.config_files import paths_in

        for config in document.configs:
            for name, place in paths_in(config):
                if not _sees(one, place.text):
                    yield from _hidden(place, place.text, config.path, release, name)


def _hidden(place: Word, path: str, file: str, release: str, name: str = "") -> Iterator[Draft]:
    known: dict[str, Any] = {"path": f"{name} {path}" if name else path, "folder": posixpath.dirname(path) or "/"}
    yield from drafts(release, RULE, place, form="volume", file=file, **known)
