"""Versions that SageMaker's SDK looks up, and tags of its images, against those that there are."""

import re
from collections.abc import Iterator
from difflib import get_close_matches
from typing import Any

from trtllm_check.lint.carriers.aws_calls import AwsCall
from trtllm_check.lint.carriers.settings import Setting
from trtllm_check.lint.document import Document
from trtllm_check.lint.finding import Draft, Platform, drafts
from trtllm_check.lint.shell.words import Word
from trtllm_check.releases.sagemaker import (
    DJL,
    ENDED,
    LIBRARY,
    REPOSITORIES,
    UnknownTag,
    numbers,
    sagemaker_images,
    shapeless_tag,
    unknown_tag,
)

RULE = "sagemaker-version"
RETRIEVE, LLM_URI, MODEL = "retrieve", "get_huggingface_llm_image_uri", "HuggingFaceModel"
LLM = "huggingface-llm"
MODULE = "image_uris"
TAGGED = re.compile(rf"(?<![\w.-])(?P<repository>{'|'.join(REPOSITORIES)}):(?P<tag>[A-Za-z0-9][\w.-]*)")
# What people call the images, and what image_uris.retrieve calls them: sagemaker image_uri_config/*.json.
MEANT = {
    **dict.fromkeys(("lmi", "djl", "djl-vllm", "djl-inference", "djl-serving", "vllm", "lmi-dist"), "djl-lmi"),
    **dict.fromkeys(
        ("tensorrt-llm", "tensorrtllm", "trtllm", "trt-llm", "djl-tensorrt-llm", "djl-trtllm"), "djl-tensorrtllm"
    ),
    **dict.fromkeys(("tgi", "huggingface-tgi", "text-generation-inference"), "huggingface-llm"),
    **dict.fromkeys(("deepspeed", "lmi-deepspeed"), "djl-deepspeed"),
}
# The registry of an account in a region, either of which a template or a reader may fill in.
OF_AWS = re.compile(r"(?:\b\d{12}|\}|>|\*)\.dkr\.ecr\.[\w.:${}<>*-]+/\Z")
BEFORE = 80
MOST = 6
NEAR = 0.75
OTHER_LLMS = re.compile(r"huggingface-(?:tei|neuronx|llm-neuronx|vllm)")
IMAGES = ("imageuri", "image")
NEURON = re.compile(r"\binf[12]\.|_inf1|neuron", re.IGNORECASE)  # whose images have versions of their own


def check(document: Document, platform: Platform) -> Iterator[Draft]:
    """All drafts of the family."""
    release = platform.release.name
    texts = dict(document.texts)
    for call in document.aws_calls:
        if call.name == RETRIEVE and not call.caught and MODULE in texts.get(call.file, MODULE):
            yield from _retrieved(call, release)
        elif call.name == LLM_URI:
            yield from _of_tgi(call, texts.get(call.file, ""), release)
        elif call.name == MODEL and call.maker == "python" and not NEURON.search(texts.get(call.file, "")):
            yield from _library(call, release)
    for file, text in document.texts:
        said: set[str] = set()
        for match in TAGGED.finditer(text):
            unknown = unknown_tag(match["repository"], match["tag"])
            if unknown is None and OF_AWS.search(text, max(match.start() - BEFORE, 0), match.start()):
                right = shapeless_tag(match["tag"]) if match["repository"] == DJL else ""
                unknown = UnknownTag(right, DJL) if right else None
            if unknown is None or match[0] in said:
                continue
            said.add(match[0])
            place = Word(match[0], text.count("\n", 0, match.start()) + 1, _column(text, match.start()))
            known: dict[str, Any] = {"image": match[0], "right": unknown.right, "framework": unknown.kind}
            form = "tag" if unknown.right else "no tag"
            known["versions"] = ", ".join(sagemaker_images().versions(unknown.kind)[-MOST:])
            yield from drafts(release, RULE, place, form=form, file=file, **known)


def _column(text: str, start: int) -> int:
    return start - text.rfind("\n", 0, start)


def _retrieved(call: AwsCall, release: str) -> Iterator[Draft]:
    """``image_uris.retrieve(framework=..., version=...)``."""
    framework, version = call.settings.get("framework"), call.settings.get("version")
    if framework is None or framework.kind != "text":
        return
    facts = sagemaker_images()
    if framework.text in facts.tags:
        if version is not None and version.kind == "text":
            yield from _version(call, framework.text, version, release)
    elif framework.text not in facts.frameworks.split():
        meant = MEANT.get(framework.text.lower())
        near = (
            [meant] if meant else get_close_matches(framework.text, [*facts.tags, *facts.frameworks.split()], 1, NEAR)
        )
        if near:
            known: dict[str, Any] = {"framework": framework.text, "right": near[0]}
            yield from drafts(release, RULE, framework.place, form="framework", file=call.file, **known)


def _of_tgi(call: AwsCall, text: str, release: str) -> Iterator[Draft]:
    if OTHER_LLMS.search(text):
        return  # embeddings have an image and versions of their own
    version = call.settings.get("version")
    backend = call.settings.get("backend")
    if version is not None and version.kind == "text" and (backend is None or backend.text == LIBRARY):
        yield from _version(call, LLM, version, release)


def _version(call: AwsCall, framework: str, version: Setting, release: str) -> Iterator[Draft]:
    facts = sagemaker_images()
    if not numbers(version.text) or facts.known(framework, version.text) or facts.is_newer(framework, version.text):
        return
    versions = facts.versions(framework)
    later = ENDED.get(framework, "")
    known: dict[str, Any] = {"framework": framework, "version": version.text, "last": versions[-1], "later": later}
    if later and facts.known(later, version.text):
        yield from drafts(release, RULE, version.place, form="ended", file=call.file, **known)
        return
    known["versions"] = ", ".join(versions[-MOST:])
    known["right"] = _nearest(version.text, versions)
    yield from drafts(release, RULE, version.place, file=call.file, **known)


def _nearest(version: str, versions: tuple[str, ...]) -> str:
    """The first that is not older; else the newest."""
    return next((one for one in versions if numbers(one) >= numbers(version)), versions[-1])


def _library(call: AwsCall, release: str) -> Iterator[Draft]:
    """Versions of transformers, PyTorch and Python that have an image together."""
    given = {name: call.settings.get(name) for name in ("transformersversion", "pytorchversion", "pyversion")}
    library, torch, python = given.values()
    if call.settings.get(*IMAGES) is not None or call.settings.get("<<") is not None or library is None:
        return
    facts = sagemaker_images()
    if library.kind != "text" or not numbers(library.text):
        return
    version = facts.aliases[LIBRARY].get(library.text, library.text)
    if version not in facts.transformers:
        if numbers(version) < numbers(max(facts.transformers, key=numbers)):
            known: dict[str, Any] = {"framework": LIBRARY, "version": library.text}
            known["versions"] = ", ".join(facts.transformers)
            known["right"] = _nearest(version, tuple(facts.transformers))
            yield from drafts(release, RULE, library.place, file=call.file, **known)
        return
    pairs = facts.transformers[version]
    about: dict[str, Any] = {"version": library.text, "pairs": _pairs(pairs)}
    if torch is not None and torch.kind == "text" and numbers(torch.text):
        fitting = [one for one in pairs if one == torch.text or one.startswith(f"{torch.text}.")]
        if not fitting:
            yield from drafts(release, RULE, torch.place, form="pair", file=call.file, torch=torch.text, **about)
        elif python is not None and python.kind == "text" and python.text not in pairs[fitting[0]].split():
            yield from drafts(release, RULE, python.place, form="python", file=call.file, python=python.text, **about)
    if torch is not None and python is None:
        yield from drafts(release, RULE, library.place, form="no python", file=call.file, **about)


def _pairs(pairs: dict[str, str]) -> str:
    return " or ".join(f'pytorch_version="{torch}" with py_version="{python}"' for torch, python in pairs.items())
