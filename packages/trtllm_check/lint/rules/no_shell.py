"""Commands of compose, Kubernetes and Dockerfiles that need a shell and have none."""

import re
from collections.abc import Iterator
from pathlib import PurePosixPath
from typing import Any

from trtllm_check.lint.carriers.workloads import ServedContainer
from trtllm_check.lint.document import Document
from trtllm_check.lint.finding import Draft, Platform, drafts
from trtllm_check.lint.programs import SHELLS, VLLM_IMAGE
from trtllm_check.lint.shell.words import Word

OPERATORS = frozenset({"&&", "||", "|", ";", ">", ">>", "2>&1", "&"})
BUILTINS = frozenset({"cd", "export", "source", "set", "ulimit"})
VARIABLE = re.compile(r"\$(?:\{(?P<braced>[A-Za-z_]\w*)\}|(?P<plain>[A-Za-z_]\w*))")
SHELL_LIKE = re.compile(r"ash|dash|env|tini|dumb-init|.*[-_]?entrypoint|.*\.sh|ray|mpirun|su|gosu")
GIVEN = {"compose": "docker compose", "kubernetes": "Kubernetes", "ecs": "ECS"}


def check(document: Document, platform: Platform) -> Iterator[Draft]:
    """All drafts of the family."""
    for one in document.workloads:
        yield from _workload(one, platform.release.name)


def _workload(one: ServedContainer, release: str) -> Iterator[Draft]:
    words = one.words
    if not words or _has_shell(words) or (one.kind != "kubernetes" and one.replaced):
        return
    if one.kind == "kubernetes" and not one.replaced and not VLLM_IMAGE.search(one.image):
        return  # behind an entry point that may be a shell
    where = GIVEN[one.kind]
    whole = " ".join(word.text for word in words)
    shell = f'["/bin/sh", "-c", "{whole[:60]}{" ..." if len(whole) > 60 else ""}"]'
    first, *others = words
    known: dict[str, Any] = {"where": where, "shell": shell}
    name = first.text.split(" ")[0]
    if name in BUILTINS or (" && " in first.text and " " in first.text):
        yield from drafts(release, "no-shell-there", first, form="first", file=one.file, mark=name, **known)
        return
    for word in others:
        if word.text in OPERATORS:
            program = PurePosixPath(first.text).name
            yield from drafts(release, "no-shell-there", word, file=one.file, mark=word.text, program=program, **known)
            return
    if one.kind == "kubernetes":
        yield from _variables(one, release)


def _variables(one: ServedContainer, release: str) -> Iterator[Draft]:
    """``$NAME`` among Kubernetes' arguments, of a variable that the container has: it wants ``$(NAME)``."""
    own = {name for name, _ in one.settings}
    for word in one.words:
        for match in VARIABLE.finditer(word.text):
            name = match["braced"] or match["plain"]
            if name in own and match["plain"]:
                known: dict[str, Any] = {"where": GIVEN[one.kind], "mark": match[0], "right": f"$({name})"}
                yield from drafts(release, "no-shell-there", word, form="variable", file=one.file, **known)
                return


def _has_shell(words: tuple[Word, ...]) -> bool:
    """True where a shell, or a script that may be one, is what starts."""
    names = [PurePosixPath(word.text.split(" ")[0]).name for word in words[:3]]
    started = any(name in SHELLS or SHELL_LIKE.fullmatch(name) for name in names)
    return started or any(re.fullmatch(r"-\w*c", word.text) for word in words)
