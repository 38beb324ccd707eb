"""What bases of images lack: lists of packages, another Python, a compiler, git, MPI, a Python for pip to write to."""

import re
from collections.abc import Iterator
from typing import Any

from trtllm_check.lint.document import Document
from trtllm_check.lint.finding import Draft, Platform, drafts
from trtllm_check.lint.invocations import Invocation
from trtllm_check.releases.images import image_facts

SLIM = re.compile(r"(?:^|/)python:\S*slim\S*$|nvidia/cuda:\S*-(?:base|runtime)-\S+$|^ubuntu(?::\S+)?$|^debian\S*$")
COMPILER = re.compile(r"\bgcc\b|\bg\+\+|build-essential|\bclang\b|python3?[\d.]*-dev\b|nvcc|cuda-toolkit|conda")
OTHER_PYTHONS = re.compile(
    r"deadsnakes|conda|pyenv|uv python|python-build-standalone|apt-add-repository|add-apt-repository"
)
PYTHON = re.compile(r"python(?P<version>3\.\d{1,2})(?:-\w+)?")
ALSO = {"20.04": ("3.9",), "22.04": ("3.11",)}  # a second one, in universe
VENV = re.compile(
    r"break-system-packages|BREAK_SYSTEM|-m venv|virtualenv|uv venv|conda|pipx|EXTERNALLY-MANAGED|/venv|pyenv"
)
OURS = re.compile(r"tensorrt[-_]llm(?:$|[=<>~!\[])", re.IGNORECASE)
VLLM = re.compile(r"vllm(?:$|[=<>~!\[])")


def check(document: Document, platform: Platform) -> Iterator[Draft]:
    """All drafts of the family."""
    release = platform.release.name
    texts = dict(document.texts)
    for one in document.invocations:
        text = texts.get(one.command.file, "")
        if one.tool == "apt-get":
            yield from _apt(one, text, release)
        elif one.tool == "pip":
            yield from _pip(document, one, text, release)
    yield from _vllm(document, release)


def _apt(one: Invocation, text: str, release: str) -> Iterator[Draft]:
    """A Python that the image's Ubuntu does not have."""
    operands = one.positional
    if not operands or operands[0].text != "install" or not one.image:
        return
    known: dict[str, Any] = {"image": one.image}
    system = image_facts(one.image)
    if not system.system or OTHER_PYTHONS.search(text):
        return
    for word in operands[1:]:
        match = PYTHON.fullmatch(word.text)
        if match and match["version"] not in (system.python, *ALSO.get(system.system, ())):
            known |= {"package": word.text, "system": system.system, "python": system.python}
            yield from drafts(release, "image-base", word, form="python", invocation=one, **known)
            return


def _pip(document: Document, one: Invocation, text: str, release: str) -> Iterator[Draft]:
    operands = one.positional
    if not operands or operands[0].text != "install":
        return
    known: dict[str, Any] = {"image": one.image}
    if image_facts(one.image).managed and one.command.image and not VENV.search(text) and "uv" not in _words(one):
        yield from drafts(release, "image-base", operands[0], form="managed", invocation=one, **known)
    git = next((word for word in operands[1:] if word.text.startswith("git+") or "@git+" in word.text), None)
    installs = re.search(r"(?:install|add)\b[^&;|]*?\sgit(?:\s|$|\\)", text, re.DOTALL)
    if git is not None and SLIM.search(one.image) and not installs and text.count("FROM ") == 1 and ".sh" not in text:
        yield from drafts(release, "image-base", git, form="git", invocation=one, word=git.text, **known)
    ours = next((word for word in operands[1:] if OURS.match(word.text)), None)
    by_hand = any(other.positional[:1] and other.positional[0].text == "install" for other in document.of("apt-get"))
    if ours is not None and not one.image and by_hand and not re.search(r"mpi(?!4py|run)|conda", text.lower()):
        yield from drafts(release, "image-base", ours, form="mpi", invocation=one)


def _words(one: Invocation) -> list[str]:
    return [word.text for word in one.command.words[:3]]


def _vllm(document: Document, release: str) -> Iterator[Draft]:
    """vLLM in an image without a compiler, which it starts or which is its whole purpose."""
    for one in document.of("pip"):
        word = next((word for word in one.positional[1:] if VLLM.match(word.text)), None)
        text = dict(document.texts).get(one.command.file, "")
        if word is None or not one.command.image or not SLIM.search(one.image) or COMPILER.search(text):
            continue
        if text.count("FROM ") == 1 and document.of("vllm") and not re.search(r"\S+\.sh\b", text):
            known: dict[str, Any] = {"image": one.image}
            yield from drafts(release, "image-base", word, form="compiler", invocation=one, **known)
            return
