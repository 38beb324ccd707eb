"""What bases of images lack: lists of packages, another Python, a compiler, git, MPI, a Python for pip to write to."""

import re
from collections.abc import Iterator
from functools import lru_cache
from typing import Any

from trtllm_check.lint.document import Document
from trtllm_check.lint.finding import Draft, Platform, drafts
from trtllm_check.lint.installs import requirements
from trtllm_check.lint.invocations import Invocation
from trtllm_check.lint.shell.words import Word
from trtllm_check.lint.vllm_release import vllm_told
from trtllm_check.releases.images import image_facts, python_of
from trtllm_check.releases.vllm import vllm_facts

SLIM = re.compile(r"(?:^|/)python:\S*slim\S*$|nvidia/cuda:\S*-(?:base|runtime)-\S+$|^ubuntu(?::\S+)?$|^debian\S*$")
COMPILER = re.compile(r"\bgcc\b|\bg\+\+|build-essential|\bclang\b|python3?[\d.]*-dev\b|nvcc|cuda-toolkit|conda")
OTHER_PYTHONS = re.compile(
    r"deadsnakes|conda|pyenv|uv python|python-build-standalone|apt-add-repository|add-apt-repository"
)
PYTHON = re.compile(r"python(?P<version>3\.\d{1,2})(?:-\w+)?")
UBUNTU = re.compile(r"\bubuntu[ :_-]?(?P<system>(?:18|20|22|24)\.?04)(?![\d])", re.IGNORECASE)
OTHER_SYSTEM = re.compile(r"\bdebian\b|python:3|\bWSL\b|\bJetPack\b|ubuntu-latest|^FROM ", re.IGNORECASE | re.MULTILINE)
ALSO = {"20.04": ("3.9",), "22.04": ("3.11",)}  # a second one, in universe
VENV = re.compile(
    r"break-system-packages|BREAK_SYSTEM|-m venv|virtualenv|uv venv|conda|pipx|EXTERNALLY-MANAGED|/venv|pyenv|\.sh\b"
)
OURS = re.compile(r"tensorrt[-_]llm(?:$|[=<>~!\[])", re.IGNORECASE)
VLLM = re.compile(r"vllm(?:$|[=<>~!\[])")
WITH_TORCH = re.compile(r"nvidia/tritonserver:\S*trtllm|nvidia/tensorrt-llm/release:")
OF_TORCH = re.compile(r"(?:torchaudio|torchvision|xformers)(?:$|[=<>~!\[])")
INSTALLS_GIT = re.compile(r"(?:install|add)\b[^&;|]*?\sgit(?:\s|$|\\)")
BRINGS_MPI = re.compile(r"mpi(?!4py|run)|conda|nvidia/(?:tritonserver:\S*trtllm|tensorrt-llm/|pytorch:)", re.IGNORECASE)
OF_PYTHON = re.compile(r"python|pip")
HUB = re.compile(r"(?:https://|git@)(?:[^@/\s]+@)?(?:huggingface\.co|hf\.co)[/:](?!datasets/|spaces/)")
TRANSFER = re.compile(r"(?P<name>HF_HUB_ENABLE_HF_TRANSFER)[\"']?\s*[=: ]\s*[\"']?(?:1|[Tt]rue|ON|YES)\b")
LAST_BASE = re.compile(r"^FROM[ \t]+(?:--\S+[ \t]+)*(\S+)", re.MULTILINE)
KNOWN_BASE = re.compile(r"(?:^|/)(?:ubuntu|debian|python|nvidia/cuda|nvidia/pytorch|pytorch/pytorch)(?::|$)")
# Of huggingface_hub 1.0 on the variable does nothing; what came before these versions wants an earlier one.
OLD_HUB = {"huggingface-hub": "1.0", "transformers": "5", "vllm": "0.20"}
BENCHMARK = re.compile(r"python3?[ ]+(?P<script>\S*benchmarks/benchmark_(?P<kind>serving|latency|throughput)\.py)")
MOVED_SINCE = "0.10.2"


def check(document: Document, platform: Platform) -> Iterator[Draft]:
    """All drafts of the family."""
    release = platform.release.name
    texts = dict(document.texts)
    installed = [one.positional[1:] for one in document.of("apt-get") if _first(one) == "install"]
    by_hand = bool(installed)
    bare = any(OF_PYTHON.match(word.text) for words in installed for word in words)
    for one in document.invocations:
        text = texts.get(one.command.file, "")
        if one.tool == "apt-get":
            yield from _apt(one, text, release)
        elif one.tool == "pip":
            yield from _pip(one, text, release, bare=bare)
        elif one.tool == "git":
            yield from _weights(one, text, release, by_hand=by_hand)
    yield from _vllm(document, release)
    yield from _transfer(document, release)
    yield from _moved(document, release)


WITH_LFS = re.compile(r"tritonserver:\d\d\.\d\d-trtllm|tensorrt-llm/(?:release|devel):")  # images that install git-lfs


@lru_cache(maxsize=64)
def _has(pattern: re.Pattern[str], text: str) -> bool:
    """Each text is searched once, not once for each of its commands."""
    return pattern.search(text) is not None


def _apt(one: Invocation, text: str, release: str) -> Iterator[Draft]:
    """A Python that the image's Ubuntu does not have."""
    operands = one.positional
    if not operands or operands[0].text != "install" or _has(OTHER_PYTHONS, text):
        return
    found = [(word, match["version"]) for word in operands[1:] if (match := PYTHON.fullmatch(word.text))]
    if not found:
        return
    system = image_facts(one.image).system if one.image else _told_system(text)
    python = python_of(system)
    for word, version in found:
        if python and version not in (python, *ALSO.get(system, ())):
            known: dict[str, Any] = {"package": word.text, "system": system, "python": python}
            form = "python" if one.image else "python, told"
            yield from drafts(release, "image-base", word, form=form, invocation=one, **known)
            return


@lru_cache(maxsize=64)
def _told_system(text: str) -> str:
    """The one Ubuntu that a text without images for its commands speaks of, "" where it speaks of several or none."""
    found = {match["system"] for match in UBUNTU.finditer(text)}
    found = {one if "." in one else f"{one[:2]}.{one[2:]}" for one in found}
    return found.pop() if len(found) == 1 and not OTHER_SYSTEM.search(text) else ""


def _first(one: Invocation) -> str:
    return one.positional[0].text if one.positional else ""


def _pip(one: Invocation, text: str, release: str, *, bare: bool) -> Iterator[Draft]:
    """``bare``: the text installs Python first, and so begins on a machine without anything."""
    operands = one.positional
    if not operands or operands[0].text != "install":
        return
    known: dict[str, Any] = {"image": one.image}
    is_managed = image_facts(one.image).managed and bool(one.command.image) and "uv" not in _words(one)
    elsewhere = one.has("--target", "-t", "--prefix", "--root", "--dry-run")
    if is_managed and not elsewhere and not _has(VENV, text) and not _has(OTHER_PYTHONS, text):
        yield from drafts(release, "image-base", operands[0], form="managed", invocation=one, **known)
    git = next((word for word in operands[1:] if word.text.startswith("git+") or "@git+" in word.text), None)
    if (
        git is not None
        and SLIM.search(one.image)
        and not _has(INSTALLS_GIT, text)
        and text.count("FROM ") == 1
        and ".sh" not in text
    ):
        yield from drafts(release, "image-base", git, form="git", invocation=one, word=git.text, **known)
    if WITH_TORCH.search(one.image) and not one.has("--no-deps", "-c", "--constraint", "--target", "-t"):
        word = next((word for word in operands[1:] if OF_TORCH.match(word.text)), None)
        if word is not None and "venv" not in text:
            yield from drafts(release, "image-base", word, form="torch", invocation=one, name=word.text, **known)
    ours = next((word for word in operands[1:] if OURS.match(word.text)), None)
    if ours is not None and not one.image and bare and not _has(BRINGS_MPI, text):
        yield from drafts(release, "image-base", ours, form="mpi", invocation=one)


def _words(one: Invocation) -> list[str]:
    return [word.text for word in one.command.words[:3]]


def _vllm(document: Document, release: str) -> Iterator[Draft]:
    """vLLM in an image without a compiler, which it starts or which is its whole purpose."""
    for one in document.of("pip"):
        word = next((word for word in one.positional[1:] if VLLM.match(word.text)), None)
        text = dict(document.texts).get(one.command.file, "")
        if word is None or not one.command.image or not SLIM.search(one.image) or _has(COMPILER, text):
            continue
        if text.count("FROM ") == 1 and document.of("vllm") and not re.search(r"\S+\.sh\b", text):
            known: dict[str, Any] = {"image": one.image}
            yield from drafts(release, "image-base", word, form="compiler", invocation=one, **known)
            return


def _weights(one: Invocation, text: str, release: str, *, by_hand: bool) -> Iterator[Draft]:
    """A clone from the hub where the text sets up the machine, and git-lfs is not in it."""
    words = one.positional
    if (
        len(words) > 1
        and words[0].text == "clone"
        and HUB.match(words[1].text)
        and by_hand
        and "lfs" not in text.lower()
        and not WITH_LFS.search(text)
    ):
        yield from drafts(release, "image-base", words[1], form="weights", invocation=one)


def _transfer(document: Document, release: str) -> Iterator[Draft]:
    """The variable for faster downloads without the package that it wants."""
    wanted = list(requirements(document))
    if not any(one.is_below(OLD_HUB.get(one.name, "0")) for one in wanted) or any(not one.name for one in wanted):
        return
    for file, text in document.texts:
        match = TRANSFER.search(text)
        base = LAST_BASE.findall(text)[-1:]
        if base and not KNOWN_BASE.search(base[0]):
            continue  # which may bring it
        if match and not re.search(r"hf[-_](?:transfer|xet)\b", text.replace(match[0], ""), re.IGNORECASE):
            place = Word(match["name"], text.count("\n", 0, match.start("name")) + 1, 1)
            yield from drafts(release, "image-base", place, form="transfer", file=file)


def _moved(document: Document, release: str) -> Iterator[Draft]:
    """vLLM's scripts for measuring, where its release is told."""
    for file, text in document.texts:
        for match in BENCHMARK.finditer(text) if "benchmarks/benchmark_" in text else ():
            told = vllm_told(document)
            if told is None or told.release.place < vllm_facts().releases.index(MOVED_SINCE):
                return
            start = match.start("script")
            place = Word(match["script"], text.count("\n", 0, start) + 1, start - text.rfind("\n", 0, start))
            known: dict[str, Any] = {"script": match["script"], "version": told.release.written}
            instead = f"vllm bench {'serve' if match['kind'] == 'serving' else match['kind']}"
            yield from drafts(release, "script-moved", place, file=file, instead=instead, **known)
            return
