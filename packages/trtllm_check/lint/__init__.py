"""The checker: what a TensorRT-LLM release would do with anyone's commands, configurations and requests.

A family of rules is a module of :mod:`trtllm_check.lint.rules` with a function ``check``.
"""

from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from trtllm_check.lint.document import Document
    from trtllm_check.lint.finding import Finding
    from trtllm_check.lint.fixing import Family

FAMILIES = (
    "arguments",
    "pairs",
    "defaults",
    "memory",
    "templates",
    "requests",
    "versions",
    "lmi",
    "containers",
    "serving",
    "shell",
)


def check_commands(
    source: "str | Path | Document", release: str, gpu: str = "", gpus: int | None = None
) -> "list[Finding]":
    """The findings in a text, a file or a folder, by file and place.

    ``release``: TensorRT-LLM's; the containers follow from it. ``gpu``: h100, h200, l4, l40s, a100 or another name
    of facts/gpus.yml. What is not given is unknown, and the rules that need it are silent.
    """
    from serving_base.errors import UsageError
    from serving_base.facts.gpus import gpus as known_gpus
    from trtllm_check.lint.document import read_document
    from trtllm_check.lint.finding import Platform, gpu_of
    from trtllm_check.lint.fixing import findings
    from trtllm_check.releases import load_release

    platform = Platform(load_release(release), gpu, gpus)
    if gpu and gpu_of(platform) is None:
        raise UsageError(f"no facts on a GPU {gpu!r}", fix=f"use one of: {', '.join(known_gpus())}")
    document = read_document(source) if isinstance(source, str | Path) else source
    return findings(document, platform, families())


def families() -> "list[Family]":
    """The families of rules."""
    return [import_module(f"{__name__}.rules.{name}").check for name in FAMILIES]
