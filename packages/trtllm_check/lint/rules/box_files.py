"""What a container is told that it does not have: a file that a variable names, a program that is not on its PATH."""

import posixpath
import re
from collections.abc import Iterator
from typing import Any

from trtllm_check.lint.document import Document
from trtllm_check.lint.finding import Draft, Platform, drafts, rule_data
from trtllm_check.lint.programs import VLLM_IMAGE
from trtllm_check.lint.rules.box import Box, boxes
from trtllm_check.lint.rules.names import is_open

FAMILY = "containers"
# Variables that name a file which the user writes, and no image has.
FILES = (
    *("LMCACHE_CONFIG_FILE", "VLLM_LOGGING_CONFIG_PATH", "MOONCAKE_CONFIG_PATH", "GOOGLE_APPLICATION_CREDENTIALS"),
    *("NIXL_CONFIG_FILE", "FLEXKV_CONFIG_PATH"),
)
BROUGHT = re.compile(r"^[ ]+-?[ ]*(?:configs|secrets):|\{\{|\bextends:|<<:", re.MULTILINE)
# lmcache/vllm-openai of these tags has vLLM in /opt/venv, which is not on its PATH: vllm-project/production-stack
# helm/templates/deployment-vllm-multi.yaml (command), and production-stack#441.
IN_A_VENV = re.compile(r"(?:^|/)lmcache/vllm-openai:(?:latest-nightly|nightly-[\w.-]+|2025-05-(?:17|27)-v1)$")
VENV = "/opt/venv/bin"
PROGRAM = "vllm"


def check(document: Document, platform: Platform) -> Iterator[Draft]:
    """All drafts of the family."""
    release = platform.release.name
    brought = {file for file, text in document.texts if BROUGHT.search(text)}
    for box in boxes(document):
        if box.file not in brought:
            yield from _files(box, release)
        yield from _program(document, box, release)


def _files(box: Box, release: str) -> Iterator[Draft]:
    if VLLM_IMAGE.search(box.image) is None or box.is_open or any(map(is_open, box.mounts)):
        return
    for name, word in box.settings.items():
        path = word.text.strip("\"'") if name in FILES else ""
        if path.startswith("/") and not is_open(path) and not _has(box, path):
            known: dict[str, Any] = {"path": path, "folder": posixpath.dirname(path) or "/", "name": name}
            yield from drafts(release, "path-not-mounted", word, form="variable", file=box.file, **known)


def _has(box: Box, path: str) -> bool:
    folders = (*box.mounts, *rule_data(FAMILY)["in_image"])
    return any(f"{posixpath.normpath(path)}/".startswith(f"{folder.rstrip('/')}/") for folder in folders if folder)


def _program(document: Document, box: Box, release: str) -> Iterator[Draft]:
    """``entrypoint: vllm serve MODEL`` in an image whose vLLM is in a folder of its own."""
    if not IN_A_VENV.search(box.image) or not box.replaced:
        return
    found = [*(box.docker.values("--entrypoint") if box.docker is not None else ()), *box.words[:1]]
    if box.workload is not None:
        inside = [one for one in document.commands if one.image == box.image and box.workload.holds(one.line)]
        found = [one.words[0] for one in inside if one.words and one.words[0].text != "export"] or found
    for word in found[:1]:
        if word.text.partition(" ")[0] == PROGRAM:
            known: dict[str, Any] = {"program": PROGRAM, "image": box.image, "instead": f"{VENV}/{PROGRAM}"}
            yield from drafts(release, "program-not-in-image", word, file=box.file, **known)
