"""Reads ``data/sagemaker``: which versions of its images SageMaker's SDK knows, and how their tags begin."""

import re
from functools import cache
from pathlib import Path
from typing import NamedTuple

from serving_base.record import Record
from serving_base.yaml_files import read_yaml
from trtllm_check.releases.lmi import lmi_facts

TABLE = Path(__file__).parent / "data" / "sagemaker" / "images.yml"
DJL, TGI = "djl-inference", "huggingface-pytorch-tgi-inference"
REPOSITORIES = (DJL, TGI)
LIBRARY = "huggingface"
ENDED = {"djl-deepspeed": "djl-lmi"}  # djl-serving 0.28.0 renamed its container
TAG = {
    DJL: re.compile(r"(?P<version>\d+\.\d+\.\d+)-(?P<kind>[a-z]+(?:-sdk)?)(?P<engine>[\d.]*\d)(?:-(?P<cuda>cu\d+))?"),
    TGI: re.compile(r"(?P<torch>\d+\.\d+\.\d+)-(?P<kind>tgi)(?P<version>\d+\.\d+\.\d+)(?:-gpu-(?P<python>py\d+))?"),
}
FRAMEWORK = {
    "deepspeed": "djl-deepspeed",
    "lmi": "djl-lmi",
    "tensorrtllm": "djl-tensorrtllm",
    "neuronx-sdk": "djl-neuronx",
    "fastertransformer": "djl-fastertransformer",
    "tgi": "huggingface-llm",
}
DJL_KINDS = ("djl-lmi", "djl-deepspeed", "djl-tensorrtllm", "djl-neuronx")
NO_KINDS = ("vllm", "trtllm", "tensorrt", "cu", "tgi", "sglang")  # words in tags that no container of DJL has
OTHER_IMAGES = re.compile(
    r"cpu|pytorch|neuron|inf2|aarch64|onnx|nightly|snapshot"
)  # of DJL Serving, with forms of their own
BUILD = re.compile(r"-v\d+(?:\.\d+)*$")  # of one build of an image, which has shorter tags as well
WITHOUT_FORM = re.compile(r"(?P<version>\d+\.\d+(?:\.\d+)?)(?:-|$)")
# First builds of a version, which the SDK forgot: awslabs/generative-ai-cdk-constructs DeepLearningContainerImage.
FIRST_BUILDS = ("0.21.0-deepspeed0.8.0-", "0.22.1-deepspeed0.8.3-")
PATCHED = ("neuronx-sdk",)  # images of one version came out with several of Neuron's
Version = tuple[int, ...]


class SageMakerImages(Record):
    source: str
    tags: dict[str, dict[str, str]]
    aliases: dict[str, dict[str, str]]
    transformers: dict[str, dict[str, str]]
    frameworks: str

    def versions(self, framework: str) -> tuple[str, ...]:
        """Oldest first."""
        return tuple(sorted(self.tags.get(framework, {}), key=numbers))

    def known(self, framework: str, version: str) -> bool:
        return version in self.tags[framework] or version in self.aliases.get(framework, {})

    def is_newer(self, framework: str, version: str) -> bool:
        """True for what a newer SDK may know."""
        return framework not in ENDED and numbers(version) > numbers(self.versions(framework)[-1])


class UnknownTag(NamedTuple):
    """Why there is no image with a tag; ``right``: how the tag of this version begins."""

    right: str
    kind: str


@cache
def sagemaker_images() -> SageMakerImages:
    return SageMakerImages.model_validate(read_yaml(TABLE))


def numbers(version: str) -> Version:
    """Of ``0.36.0``; empty where it is none."""
    return tuple(int(part) for part in version.split(".")) if re.fullmatch(r"\d+(?:\.\d+)*", version) else ()


def unknown_tag(repository: str, tag: str) -> UnknownTag | None:
    """None for a tag that exists, may exist in a newer table, or is of another form."""
    match = TAG[repository].match(tag)
    framework = FRAMEWORK.get(match["kind"]) if match else None
    facts = sagemaker_images()
    if match is None or framework is None or facts.is_newer(framework, match["version"]):
        return None
    right = facts.tags[framework].get(match["version"])
    if right is None:
        right = _of_another_kind(match) if repository == DJL else ""
        begin = match["version"].rpartition(".")[0]
        if repository == TGI and any(one.rpartition(".")[0] == begin for one in facts.tags[framework]):
            return None  # images were built of patches that no table names
        return UnknownTag(right, framework) if right or repository == TGI else None
    if repository == TGI:
        return None if tag.startswith(right) else UnknownTag(right, framework)
    begin = f"{match['version']}-{match['kind']}{match['engine']}"
    if match["kind"] in PATCHED or f"{begin}-" in FIRST_BUILDS or re.match(rf"{re.escape(begin)}(?:-|$)", right):
        return None  # builds for several versions of CUDA came out that no table names
    others = (one.tag for one in lmi_facts().images)
    return None if any(one.startswith(f"{begin}-") for one in others) else UnknownTag(right, framework)


def shapeless_tag(tag: str) -> str:
    """The tag that is meant by one of a form that no container of DJL ever had; empty for one that may be newer."""
    if OTHER_IMAGES.search(tag) or BUILD.search(tag):
        return ""
    facts = sagemaker_images()
    version = WITHOUT_FORM.match(tag)
    formed = TAG[DJL].match(tag)
    if (formed and formed["kind"] not in NO_KINDS) or (version is None and tag != "latest"):
        return ""
    kind = "djl-tensorrtllm" if "trt" in tag else "djl-lmi"
    kinds = (kind, *(one for one in DJL_KINDS if one != kind))
    written = version["version"] if version else facts.versions("djl-lmi")[-1]
    if facts.is_newer("djl-lmi", written):
        return ""
    found = (
        right for one in kinds for number, right in facts.tags[one].items() if f"{number}.".startswith(f"{written}.")
    )
    return next(found, "")


def _of_another_kind(match: re.Match[str]) -> str:
    """The tag that is meant where a version has no container of the kind: one of the engine's, else of the version."""
    facts = sagemaker_images()
    own = facts.tags[FRAMEWORK[match["kind"]]]
    engine = f"-{match['kind']}{match['engine']}"
    of_the_engine = [tag for tag in own.values() if re.search(rf"{re.escape(engine)}(?:\.|-|$)", tag)]
    of_the_version = [facts.tags[name][match["version"]] for name in DJL_KINDS if match["version"] in facts.tags[name]]
    return (of_the_engine or of_the_version or [""])[0] if of_the_version else ""
