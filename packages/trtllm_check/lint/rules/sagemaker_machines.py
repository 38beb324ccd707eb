"""Images for one kind of processor beside instances of another: Neuron, GPUs, or none."""

import re
from collections.abc import Iterator
from typing import Any

from trtllm_check.lint.document import Document
from trtllm_check.lint.finding import Draft, Platform, drafts
from trtllm_check.lint.shell.words import Word

RULE = "sagemaker-machine"
IMAGE = re.compile(
    r"\.dkr\.ecr\.[\w.-]+/(?P<image>(?:djl-inference|huggingface-pytorch-tgi-inference|huggingface-vllm|vllm)"
    r":(?P<tag>[\w.-]+))"
)
NEURON_TAG, GPU_TAG = re.compile(r"neuron"), re.compile(r"-cu\d{3}|-gpu-")
INSTANCE = re.compile(r"\bml\.(?P<family>[a-z]+\d[a-z]*(?:-\w+)?)\.(?P<size>\d*(?:xlarge|large|medium)|metal)\b")
SERVERLESS = re.compile(
    r"ServerlessInferenceConfig\(|[\"']?ServerlessConfig[\"']?\s*[:=]|\bserverless_config\s*\{|serverless_inference_config\s*="
)
OF_TGI = re.compile(r"(?P<image>get_huggingface_llm_image_uri)\((?![^()]*neuron)")
NEURON = re.compile(r"inf\d|trn\d")
GPU = re.compile(r"(?:g|gr|p)\d")


def check(document: Document, platform: Platform) -> Iterator[Draft]:
    """All drafts of the family."""
    for file, text in document.texts:
        yield from _serverless(text, file, platform.release.name)
        found = {_kind(match["family"]) for match in INSTANCE.finditer(text)}
        images = list(IMAGE.finditer(text)) if len(found) == 1 else []
        wanted = {_wanted(match["tag"]) for match in images}
        if len(wanted) != 1:
            continue
        (has,), (wants,) = found, wanted
        if wants and wants != has:
            match = images[0]
            instance = INSTANCE.search(text)
            place = Word(match["image"], text.count("\n", 0, match.start("image")) + 1, 1)
            known: dict[str, Any] = {"image": match["image"], "instance": instance[0] if instance else ""}
            yield from drafts(platform.release.name, RULE, place, form=wants, file=file, **known)


def _serverless(text: str, file: str, release: str) -> Iterator[Draft]:
    """An image for GPUs, and no machine but a serverless endpoint."""
    config = SERVERLESS.search(text)
    images = [*IMAGE.finditer(text), *OF_TGI.finditer(text)] if config and not INSTANCE.search(text) else []
    if not images or config is None or any(_wanted(match["tag"]) != "gpu" for match in IMAGE.finditer(text)):
        return
    place = Word(config[0], text.count("\n", 0, config.start()) + 1, 1)
    image = "TGI" if images[0].re is OF_TGI else images[0]["image"]
    yield from drafts(release, RULE, place, form="serverless", file=file, image=image)


def _kind(family: str) -> str:
    return "neuron" if NEURON.match(family) else "gpu" if GPU.match(family) else "cpu"


def _wanted(tag: str) -> str:
    return "neuron" if NEURON_TAG.search(tag) else "gpu" if GPU_TAG.search(tag) else ""
