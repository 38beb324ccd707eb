"""TensorRT-LLM and its backend built from a clone that lacks a part: the submodules, the files of git-lfs."""

import re
from collections.abc import Iterator
from functools import lru_cache
from typing import Any

from trtllm_check.lint.document import Document
from trtllm_check.lint.finding import Draft, Platform, drafts
from trtllm_check.lint.shell.words import lines_of

REPOSITORY = re.compile(
    r"(?:NVIDIA/TensorRT-LLM|triton-inference-server/tensorrtllm_backend)(?:\.git)?/?$", re.IGNORECASE
)
BUILDS = re.compile(r"build_wheel\.py|make -C docker\b|Dockerfile\.trt_llm_backend|Dockerfile\.multi\b")
SUBMODULES = re.compile(r"submodule|--recurs")
OF_WINDOWS = re.compile(r"\.\\scripts\\build_wheel|\bPowerShell\b")
FILES = re.compile(r"\blfs\b|GIT_LFS", re.IGNORECASE)


def check(document: Document, platform: Platform) -> Iterator[Draft]:
    """The first clone of a text that builds from it."""
    texts = dict(document.texts)
    for one in document.of("git"):
        words = one.positional
        if len(words) < 2 or words[0].text != "clone" or not REPOSITORY.search(words[1].text):
            continue
        missing = _missing(texts.get(one.command.file, ""), one.command.line)
        if missing and not one.has("--recursive", "--recurse-submodules"):
            known: dict[str, Any] = {"missing": " and ".join(missing)}
            yield from drafts(platform.release.name, "source-build-incomplete", words[1], invocation=one, **known)
            return


@lru_cache(maxsize=8)
def _missing(text: str, line: int) -> tuple[str, ...]:
    """The parts that a text does not fetch which builds behind the clone on ``line``."""
    if not BUILDS.search("\n".join(lines_of(text)[max(0, line - 1) :])):
        return ()
    parts = [("submodules", SUBMODULES)]
    if not OF_WINDOWS.search(text):  # whose git comes with git-lfs, switched on
        parts.append(("git-lfs", FILES))
    return tuple(name for name, there in parts if not there.search(text))
