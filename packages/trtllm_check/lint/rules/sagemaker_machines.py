"""Images for one kind of processor beside instances of another: Neuron, GPUs, or none, as serverless endpoints."""

import re
from collections.abc import Iterator
from typing import Any

from trtllm_check.lint.document import Document
from trtllm_check.lint.finding import Draft, Platform, drafts
from trtllm_check.lint.shell.words import word_at

RULE = "sagemaker-machine"
IMAGE = re.compile(
    r"\.dkr\.ecr\.[\w.-]+/(?P<image>(?:djl-inference|huggingface-pytorch-tgi-inference|huggingface-vllm|vllm)"
    r":(?P<tag>[\w.-]+))"
)
# The images that SageMaker's SDK names itself.
OF_THE_SDK = re.compile(
    r"(?P<image>get_huggingface_llm_image_uri\(\s*(?:backend\s*=\s*)?[\"'](?P<tag>huggingface(?:-neuronx)?|lmi)[\"']"
    r"|image_uris\.retrieve\(\s*(?:framework\s*=\s*)?[\"'](?:djl-(?P<djl>lmi|tensorrtllm|neuronx|deepspeed|fastertransformer)))"
)
OF_TERRAFORM = re.compile(r"image_tag\s*=\s*\"(?P<image>(?P<tag>0\.\d+\.\d+-[\w.-]+))\"")
NEURON_TAG, GPU_TAG = re.compile(r"neuron"), re.compile(r"-cu\d{3}|-gpu-")
INSTANCE = re.compile(r"\bml\.(?P<family>[a-z]+\d[a-z]*(?:-\w+)?)\.(?P<size>\d*(?:xlarge|large|medium)|metal)\b")
SERVERLESS = re.compile(
    r"ServerlessInferenceConfig\(|[\"']?ServerlessConfig[\"']?\s*[:=]|\bserverless_config\s*\{|serverless_inference_config\s*="
)
KINDS = (IMAGE, OF_THE_SDK, OF_TERRAFORM)
NEURON = re.compile(r"inf\d|trn\d")
GPU = re.compile(r"(?:g|gr|p)\d")


def check(document: Document, platform: Platform) -> Iterator[Draft]:
    """All drafts of the family."""
    for file, text in document.texts:
        found = {_kind(match["family"]) for match in INSTANCE.finditer(text)}
        serverless = SERVERLESS.search(text) if not found else None
        images = [one for kind in KINDS for one in kind.finditer(text)] if len(found) == 1 or serverless else []
        wanted = {_wanted(match) for match in images}
        if serverless is not None:
            found = {"serverless"}
        if len(wanted) != 1:
            continue
        (has,), (wants,) = found, wanted
        if wants and wants != has:
            match = images[0]
            instance = INSTANCE.search(text)
            place = word_at(text, match.start("image"), match["image"])
            if serverless is not None:
                place = word_at(text, serverless.start(), serverless[0])
            known: dict[str, Any] = {"image": _called(match), "instance": instance[0] if instance else ""}
            yield from drafts(platform.release.name, RULE, place, form=has if serverless else wants, file=file, **known)


def _called(match: re.Match[str]) -> str:
    """The image as people call it."""
    if match.re is not OF_THE_SDK:
        return match["image"]
    return f"djl-{match['djl']}" if match["djl"] else f"the image of {match['tag']} for LLMs"


def _kind(family: str) -> str:
    return "neuron" if NEURON.match(family) else "gpu" if GPU.match(family) else "cpu"


def _wanted(match: re.Match[str]) -> str:
    """What the image is made for; "" where its tag does not say."""
    if match.re is OF_THE_SDK:
        return "neuron" if "neuronx" in match["image"] else "gpu"
    tag = match["tag"]
    return "neuron" if NEURON_TAG.search(tag) else "gpu" if GPU_TAG.search(tag) else ""
