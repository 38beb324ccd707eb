"""What an image holds: folders that are not in this release's, and wheels that do not fit into another one."""

import re
from collections.abc import Iterator
from typing import Any

from trtllm_check.lint.document import Document
from trtllm_check.lint.evidence import facts_release
from trtllm_check.lint.finding import Draft, Platform, drafts
from trtllm_check.lint.invocations import Invocation
from trtllm_check.releases.load import container_release

FOLDERS = re.compile(r"(?P<folder>/app/(?:all_models|tools|scripts|ci))(?:/|$)")
# What puts something there: a mount, a copy, a clone, a link.
MADE = re.compile(r":/app(?:[/:\s\"',]|$)|(?:COPY|ADD|mkdir|WORKDIR|clone|ln)\b[^\n]*\s/app(?:[/\s]|$)")
PYTORCH_IMAGE = re.compile(r"nvcr\.io/nvidia/pytorch:")
PLAIN_TRITON = re.compile(
    r"nvcr\.io/nvidia/tritonserver:(?P<month>\d\d\.\d\d)-(?:(?:pyt|tf2|vllm)-python-)?py3(?:-min|-sdk|-igpu)?"
)
INSTALLED = ("trtllm-build", "trtllm-serve", "trtllm-bench", "trtllm-eval")
TRITON = re.compile(r"nvidia/tritonserver:[\d.]+-trtllm-")
EXACT = re.compile(r"tensorrt[-_]llm={2,3}(?P<version>\d[\w.]*)", re.IGNORECASE)
WHEEL = re.compile(r"tensorrt[-_]llm(?:$|[=<>~!\[;])", re.IGNORECASE)
KEEPS = ("--no-deps", "-c", "--constraint")


def check(document: Document, platform: Platform) -> Iterator[Draft]:
    """All drafts of the family."""
    release = platform.release
    fill = release.tools.get("fill_template.py")
    is_told = not platform.guessed and any("tritonserver" in word.text for word in document.images)
    is_without = fill is not None and not fill.container_path and is_told
    found = list(_folders(document, release.name)) if is_without else []
    if found and not any(MADE.search(text) for _, text in document.texts):
        yield from found
    for one in document.of("launch_triton_server.py"):
        yield from _backend(one, release.name)
    brings = any(WHEEL.match(word.text) for pip in document.of("pip") for word in pip.positional)
    for one in document.of(*INSTALLED) if not brings else ():
        yield from _backend(one, release.name, "tool")
    for pip in document.of("pip"):
        yield from _wheel(pip, release.name)


def _folders(document: Document, release: str) -> Iterator[Draft]:
    for cp in document.of("cp"):
        for word in cp.positional[:-1] if "tritonserver" in cp.image else ():
            if match := FOLDERS.match(word.text):
                yield from drafts(release, "image-folder", word, invocation=cp, folder=match["folder"])


def _backend(one: Invocation, release: str, form: str = "") -> Iterator[Draft]:
    """TensorRT-LLM's launch script, or a command that its wheel installs, in Triton's image without it."""
    if match := PLAIN_TRITON.fullmatch(one.image):
        instead = f"{match['month']}-trtllm-python-py3"
        known: dict[str, Any] = {"image": one.image, "instead": instead, "tool": one.tool}
        yield from drafts(release, "image-without-backend", one.path, form=form, invocation=one, **known)


def _wheel(pip: Invocation, release: str) -> Iterator[Draft]:
    """TensorRT-LLM's wheel in NVIDIA's PyTorch image, whose torch is a build of its own; another one in Triton's."""
    holds = container_release(pip.image) if TRITON.search(pip.image) else None
    for word in pip.positional if holds else ():
        exact = EXACT.fullmatch(word.text)
        if exact and facts_release(exact["version"]) == release != holds:  # else the rule on requirements says it
            known: dict[str, Any] = {"requirement": word.text, "image": pip.image, "holds": holds}
            yield from drafts(release, "wheel-of-another-release", word, form="image", invocation=pip, **known)
    if not PYTORCH_IMAGE.search(pip.image) or pip.has(*KEEPS):
        return
    for word in pip.positional:
        if WHEEL.match(word.text):
            yield from drafts(release, "wheel-in-pytorch-image", word, invocation=pip, image=pip.image)
