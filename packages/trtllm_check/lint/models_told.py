"""Since when TensorRT-LLM has the models that a text is about: no release before that is what the text is for."""

import re
from collections.abc import Iterator
from functools import lru_cache
from typing import NamedTuple

from trtllm_check.lint.document import Document
from trtllm_check.releases import known_releases
from trtllm_check.releases.load import in_range
from trtllm_check.releases.models import NamedModel, lacks_tensorrt_llm, named_model

FAMILIES = "qwen|llama|gemma|phi|mistral|mixtral|deepseek|nemotron|gpt|exaone|falcon|internlm|starcoder|opt|bloom|glm"
NAME = re.compile(rf"(?<![\w.-])[\w.-]*(?:{FAMILIES})[\w.-]*", re.IGNORECASE)
FAMILY = re.compile(FAMILIES, re.IGNORECASE)
# As prose and names of functions write it: "Qwen 3 8B", build_qwen3_8b.
APART = re.compile(
    r"(?P<family>qwen|llama|gemma)[ _-]?(?P<version>\d(?:\.\d)?)[ _-](?P<size>\d+(?:\.\d+)?)[ _-]?b(?![a-z])",
    re.IGNORECASE,
)
WRITTEN = {"qwen": "qwen{version}-{size}b", "llama": "llama-{version}-{size}b", "gemma": "gemma-{version}-{size}b"}
SIZED = re.compile(r"\d+b(?![a-z])", re.IGNORECASE)
OF_ANOTHER = "distill"  # a model of one class that learned from another
OF_OURS = "tensorrt_llm"
TOOLS = ("trtllm-build", "convert_checkpoint.py", "quantize.py", "trtllm-serve", "trtllm-bench")
OF_ENGINES = "trtllm-build"
MOST = 200  # names that differ


class ModelTold(NamedTuple):
    """The releases that have the model ``name``. ``certain``: an earlier one does not have its class at all."""

    name: str
    line: int
    releases: tuple[str, ...]
    certain: bool


def model_told(document: Document) -> ModelTold | None:
    """The bound that the models set; None where one of them is as old as the facts, or where none is told.

    Of a text that starts none of TensorRT-LLM's own tools a container's release is not bounded so.
    """
    if not document.of(*TOOLS):
        return None
    return _told(document.texts, builds=bool(document.of(OF_ENGINES)))


@lru_cache(maxsize=8)
def _told(texts: tuple[tuple[str, str], ...], *, builds: bool) -> ModelTold | None:
    found: dict[str, ModelTold] = {}
    unknown: set[str] = set()
    families: set[str] = set()
    for _, text in texts:
        for name, start in _names(text):
            if name in found or name in unknown or OF_ANOTHER in name.lower():
                continue
            if len(found) + len(unknown) > MOST:
                return None
            model = named_model(name)
            releases = _with(model, builds=builds) if model is not None else ()
            family = FAMILY.findall(name)[-1].lower()
            if model is not None:
                found[name] = ModelTold(name, text.count("\n", 0, start) + 1, releases, not model.since.get(OF_OURS))
                families.add(family)
            elif SIZED.search(name):
                unknown.add(name)
    if not found or any(FAMILY.findall(name)[-1].lower() not in families for name in unknown):
        return None
    oldest = max(found.values(), key=lambda one: len(one.releases))
    return oldest if 0 < len(oldest.releases) < len(known_releases()) else None


def _names(text: str) -> Iterator[tuple[str, int]]:
    """What may be a model's name, and where it stands."""
    for match in NAME.finditer(text):
        yield match[0].strip(".-_"), match.start()
    for match in APART.finditer(text):
        written = WRITTEN[match["family"].lower()]
        yield written.format(version=match["version"], size=match["size"]), match.start()


def _with(model: NamedModel, *, builds: bool) -> tuple[str, ...]:
    first = model.since.get(OF_OURS, "")
    return tuple(
        name
        for name in known_releases()
        if lacks_tensorrt_llm(model.architecture, name, engine=builds) is None and in_range(name, first)
    )
