"""A repository of all of the backend's models, of which a text fills in some and starts all."""

import posixpath
import re
from collections.abc import Iterator
from typing import Any

from trtllm_check.lint.document import Document
from trtllm_check.lint.filling import ENGINE_MODEL, Filling, fillings
from trtllm_check.lint.finding import Draft, Platform, drafts
from trtllm_check.lint.invocations import Invocation
from trtllm_check.lint.rules.names import is_open
from trtllm_check.releases.templates import release_templates, template_releases

WHOLE = re.compile(r"all_models/inflight_batcher_llm(?:/\*|/\.|/)?$")
SERVERS = ("launch_triton_server.py", "tritonserver")
HANDLE = frozenset({"rm", "mv", "sed", "for", "cp", "cat", "tee", "vi", "vim", "nano"})
CONFIG = "config.pbtxt"
FEWEST = 2  # models that are filled; a page that fills one shows an example
SET = re.compile(r"^[ \t]*(?:export[ ]+)?(?P<name>\w*(?:ENGINE|TOKENIZER)\w*)=\S", re.MULTILINE | re.IGNORECASE)
OTHERWISE = ("sed ", "cat ", "...", "…", ".py -i ${1}")  # what may fill the rest
READ = ("--model_repo", "--model-repository", "--model-store", "--model-repo")
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
    if few and filled and ENGINE_MODEL not in filled and not platform.earlier:
        yield from _unused(document, found, servers, release.name)
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


def _unused(document: Document, found: list[Filling], servers: tuple[Invocation, ...], release: str) -> Iterator[Draft]:
    """One model is filled, and the variables for the others' engine and tokenizer are set and go nowhere."""
    read = {word.text.rstrip("/") for one in servers for word in one.values(*READ)}
    one = found[0]
    text = next((text for file, text in document.texts if file == one.invocation.command.file), "")
    if posixpath.dirname(posixpath.dirname(one.path)) not in read or len(document.texts) != 1:
        return
    names = [match["name"] for match in SET.finditer(text) if len(re.findall(rf"\b{match['name']}\b", text)) == 1]
    if names and not any(word in text for word in OTHERWISE):
        known: dict[str, Any] = {"model": one.model, "names": " and ".join(dict.fromkeys(names))}
        yield from drafts(release, "model-never-filled", one.word, form="unused", invocation=one.invocation, **known)


def _shows_others(document: Document, found: list[Filling]) -> bool:
    """True where a text has more to say of its configurations than the commands that fill them."""
    filling = "".join(one.path for one in found).count(CONFIG)
    said = sum(text.count(CONFIG) + text.count("...") + text.count("…") for _, text in document.texts)
    return said > filling or len(document.texts) != 1


def _last(server: Invocation) -> tuple[str, ...]:
    """The last part of the repository that a server reads."""
    values = server.values(*READ)
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
