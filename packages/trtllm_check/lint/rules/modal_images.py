"""Images of Modal that get a Python of their own, which does not see what the image's Python has installed."""

import re
from collections.abc import Iterator
from typing import Any

from trtllm_check.lint.document import Document
from trtllm_check.lint.finding import Draft, Platform, drafts
from trtllm_check.lint.reservations import MODAL
from trtllm_check.lint.shell.words import word_at

ADDED = re.compile(
    r"\bfrom_registry\(\s*f?[\"'](?P<image>[^\"'\s]+)[\"'](?:[^()]|\([^()]*\))*?"
    r"(?P<option>\badd_python\s*=\s*[\"'](?P<version>3\.\d+)[\"'])"
)
# What the Python of an image has; an image of another name may have it anywhere.
MODULES = (
    (re.compile(r"(?:docker\.io/)?(?:vllm/vllm-openai|rocm/vllm(?:-dev)?|lmcache/vllm-openai)(?::|@|$)"), "vllm"),
    (re.compile(r"nvcr\.io/nvidia/(?:tritonserver:[\w.-]*-vllm-|vllm:)"), "vllm"),
    (re.compile(r"nvcr\.io/nvidia/(?:tritonserver:[\w.-]*-trtllm-|tensorrt-llm/release(?::|$))"), "tensorrt_llm"),
    (re.compile(r"(?:docker\.io/)?lmsysorg/sglang(?::|@|$)"), "sglang"),
)
ELSEWHERE = re.compile(r"_from_requirements|_from_pyproject|uv_sync|poetry_install|PYTHONPATH|sys\.path|requirements")


def check(document: Document, platform: Platform) -> Iterator[Draft]:
    """``from vllm import LLM`` in an image of vLLM's with ``add_python``."""
    for file, text in document.texts:
        if not MODAL.search(text) or ELSEWHERE.search(text):
            continue
        for match in ADDED.finditer(text):
            module = next((name for image, name in MODULES if image.match(match["image"])), "")
            if module and _is_used(text, module) and not _is_installed(text, module):
                place = word_at(text, match.start("option"), match["option"])
                known: dict[str, Any] = {"module": module, "version": match["version"], "image": match["image"]}
                yield from drafts(platform.release.name, "modal-python", place, file=file, **known)


def _is_used(text: str, module: str) -> bool:
    """True for an import, and for ``python -m``, which are the added Python's."""
    pattern = rf"^[ \t]*(?:from|import)[ ]+{module}\b|[\"']-m[\"'],\s*[\"']{module}\b|\bpython3? -m {module}\b"
    return re.search(pattern, text, re.MULTILINE) is not None


def _is_installed(text: str, module: str) -> bool:
    name = module.replace("_", "[-_]")
    inside = rf"install\w*\([^)]*?(?<![\w/-]){name}(?![\w/-])"
    return re.search(rf"{inside}|\binstall[ ][^\n]*[ \"']{name}(?![\w/-])", text) is not None
