"""A repository of all of the backend's models, of which a text fills in some and starts all."""

import posixpath
import re
from collections.abc import Iterator
from typing import Any

from trtllm_check.lint.document import Document
from trtllm_check.lint.filling import Filling, fillings
from trtllm_check.lint.finding import Draft, Platform, drafts
from trtllm_check.lint.invocations import Invocation
from trtllm_check.lint.rules.names import is_open
from trtllm_check.releases.templates import release_templates, template_releases

WHOLE = re.compile(r"all_models/inflight_batcher_llm(?:/\*|/\.|/)?$")
SERVERS = ("launch_triton_server.py", "tritonserver")
HANDLE = frozenset({"rm", "mv", "sed", "for", "cp", "cat", "tee", "vi", "vim", "nano"})
CONFIG = "config.pbtxt"
FEWEST = 2  # models that are filled; a page that fills one shows an example
EXPLICIT = ("--model-control-mode", "--load-model")


def check(document: Document, platform: Platform) -> Iterator[Draft]:
    """The models that nothing fills in, at the server that loads them."""
    release = platform.release
    servers = document.of(*SERVERS)
    if not servers or release.name not in template_releases() or any(one.has(*EXPLICIT) for one in servers):
        return
    found = fillings(document, release)
    models = release_templates(release.name).models
    filled = {one.model for one in found}
    few = len(filled & models.keys()) < FEWEST
    if any(map(is_open, filled)) or (few and (not filled or _shows_others(document, found))):
        return
    repositories = {posixpath.dirname(posixpath.dirname(one.path)) for one in found}
    repository = repositories.pop()
    if repositories or not is_whole(document, repository):
        return
    left = [name for name, spec in models.items() if name not in filled and spec.typed]
    left = [name for name in left if not _is_taken_away(document, name)]
    if left:
        name = posixpath.basename(repository)
        server = next((one for one in servers if name in _last(one)), servers[0])
        known: dict[str, Any] = {"models": " and ".join(left), "variables": ", ".join(models[left[0]].typed[:2])}
        yield from drafts(release.name, "model-never-filled", server.path, invocation=server, **known)


def _shows_others(document: Document, found: list[Filling]) -> bool:
    """True where a text has more to say of its configurations than the commands that fill them."""
    filling = "".join(one.path for one in found).count(CONFIG)
    said = sum(text.count(CONFIG) + text.count("...") + text.count("…") for _, text in document.texts)
    return said > filling or len(document.texts) != 1


def _last(server: Invocation) -> tuple[str, ...]:
    """The last part of the repository that a server reads."""
    values = server.values("--model_repo", "--model-repository", "--model-store", "--model-repo")
    return tuple(posixpath.basename(word.text.rstrip("/")) for word in values)


def is_whole(document: Document, repository: str) -> bool:
    """True for the folder of the backend itself, and for a copy of all of it."""
    if WHOLE.search(repository):
        return True
    name = posixpath.basename(repository.rstrip("/"))
    for one in document.of("cp"):
        *sources, target = [word.text for word in one.positional] or [""]
        is_here = name and posixpath.basename(target.rstrip("/*.")) == name
        if is_here and any(WHOLE.search(word) for word in sources):
            return True
    return False


def _is_taken_away(document: Document, model: str) -> bool:
    """True also where a command edits it otherwise, or a loop goes over several names."""
    for command in document.commands:
        first, *rest = [word.text for word in command.words] or [""]
        if posixpath.basename(first) in HANDLE and any(model in word.split("/") for word in rest):
            return True
    return False
