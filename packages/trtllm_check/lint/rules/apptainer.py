"""Apptainer and Singularity: containers that see no GPU, and exec without a program."""

import posixpath
import re
from collections.abc import Iterator, Sequence
from typing import Any

from trtllm_check.lint.document import Document
from trtllm_check.lint.finding import Draft, Platform, drafts
from trtllm_check.lint.hosted_words import VALUED
from trtllm_check.lint.shell.words import ShellCommand, Word

RULE = "apptainer"
PROGRAMS = ("apptainer", "singularity")
STARTS = ("run", "exec", "shell")
IMAGE = re.compile(
    r"(?:docker|oras|library|shub|docker-daemon)://\S+|\S+\.(?:sif|simg|img)|\$\{?\w*(?:SIF|IMAGE|IMG)\w*\}?"
)
SERVES = re.compile(r"vllm|trt-?llm|tensorrt|tritonserver|sglang", re.IGNORECASE)
OF_A_GPU = ("--nv", "--rocm", "--nvccli")
CPU = re.compile(r"cpu|rocm|tpu|neuron|hpu", re.IGNORECASE)


def check(document: Document, platform: Platform) -> Iterator[Draft]:
    """All drafts of the family."""
    for command in document.commands:
        words = _of_apptainer(command.words)
        if words is not None:
            yield from _start(words, command, platform.release.name)


def _of_apptainer(words: Sequence[Word]) -> Sequence[Word] | None:
    for at, word in enumerate(words[:-2]):
        if posixpath.basename(word.text) in PROGRAMS and words[at + 1].text in STARTS:
            return words[at + 1 :]
    return None


def _start(words: Sequence[Word], command: ShellCommand, release: str) -> Iterator[Draft]:
    """``exec`` takes an image and a program, ``run`` an image and the words of its own program."""
    verb, options, at = words[0].text, [], 1
    while at < len(words) and words[at].text.startswith("-"):
        name, sign, _ = words[at].text.partition("=")
        options.append(name)
        at += 2 if name in VALUED and not sign else 1
    if at >= len(words) or IMAGE.fullmatch(words[at].text) is None or any("$" in one for one in options):
        return
    image, rest = words[at], words[at + 1 :]
    if verb == "exec" and rest and rest[0].text.startswith("--"):
        known: dict[str, Any] = {"word": rest[0].text, "image": image.text}
        yield from drafts(release, RULE, rest[0], form="no program", file=command.file, **known)
    text = " ".join(word.text for word in (image, *rest))
    is_served = SERVES.search(text) is not None and CPU.search(text) is None
    starts = verb == "run" or any(word.text in ("serve", "-m") for word in rest)
    if is_served and starts and verb != "shell" and not any(one in OF_A_GPU for one in options):
        yield from drafts(release, RULE, words[0], file=command.file, image=image.text)
