"""One release for everything: containers, engine, wheel, clones, packages and model."""

import json
import re
from collections.abc import Iterator
from itertools import pairwise
from typing import Any

from trtllm_check.lint.document import Document
from trtllm_check.lint.evidence import evidence, said
from trtllm_check.lint.facts import model_name
from trtllm_check.lint.finding import Draft, Edit, Platform, Swap, drafts, rule_data
from trtllm_check.lint.installs import Requirement, requirements
from trtllm_check.lint.invocations import Invocation
from trtllm_check.lint.rules.box import Box, boxes
from trtllm_check.lint.rules.release_sources import from_sources, without_build
from trtllm_check.lint.shell.words import Word
from trtllm_check.releases import Release, known_releases, load_release
from trtllm_check.releases.lmi import lmi_images
from trtllm_check.releases.load import container_release
from trtllm_check.releases.templates import template_releases

FAMILY = "versions"
CONTAINER = "--container-image"  # of srun, which writes a hash sign behind the registry
OF_AN_ENGINE = ("--engine_dir", "--tokenizer_dir", "--max_output_len", "--input_text", "--hf_model_dir")  # run.py's
ENGINE_TOOLS = ("quantize.py", "convert_checkpoint.py", "trtllm-build", "run.py")
TRITON_IMAGE = re.compile(r"(?:^|/)tritonserver:[\w.-]*trtllm[\w.-]*$")
MIRROR = re.compile(r"^\S*?(?:nvidia/)?tritonserver:")
TRTLLM_IMAGE = re.compile(r"(?:^|/)tensorrt-llm/release:(?P<release>[\w.-]+)$")
LMI_IMAGE = re.compile(r"(?:^|/)djl-inference:[\w.-]*tensorrtllm(?P<release>\d+(?:\.\d+)+)[\w.-]*$")
MONTH = re.compile(r":(\d\d\.\d\d)-trtllm")
NVIDIAS = "nvcr.io/nvidia/"
MODEL_FLAGS = ("--model_dir", "--meta_ckpt_dir", "--pyt_ckpt_path", "--hf_model_dir", "--tokenizer_dir")
NEW_ROPE = re.compile(r"llama-3\.[1-9]")


def check(document: Document, platform: Platform) -> Iterator[Draft]:
    """All drafts of the family."""
    release = platform.release
    if not release.builds_engines:
        yield from _removed(document, release)
    yield from _images(document, release)
    if not platform.guessed and document.of("trtllm-build"):
        yield from _retrieved(document, platform)
    yield from _engines(document, release)
    if not platform.guessed:
        yield from _told_otherwise(document, release)
    yield from from_sources(document, platform)
    wanted = list(requirements(document))
    yield from _overrun(document, wanted, release)
    yield from _model(document, wanted, release)


def _overrun(document: Document, wanted: list[Requirement], release: Release) -> Iterator[Draft]:
    """``pip install --upgrade torch`` where a container of TensorRT-LLM is used."""
    if not any(TRITON_IMAGE.search(word.text) or TRTLLM_IMAGE.search(word.text) for word in document.images):
        return
    for one in wanted:
        upgrades = one.pip is not None and one.pip.has("-U", "--upgrade")
        if one.name in ("torch", "transformers") and not one.specifier and upgrades:
            yield from drafts(release.name, "pins-overrun", one.word, invocation=one.pip, name=one.name)


def _removed(document: Document, release: Release) -> Iterator[Draft]:
    last = template_releases()[-1]
    for one in document.of(*ENGINE_TOOLS):
        if one.tool == "run.py" and not one.has(*OF_AN_ENGINE):
            continue  # of somebody else
        instead = f"{rule_data(FAMILY)['pytorch_flow'][one.tool]}; or use {last}, the last release with engines"
        yield from drafts(release.name, "engine-flow-removed", one.path, invocation=one, tool=one.tool, instead=instead)


def _images(document: Document, release: Release) -> Iterator[Draft]:
    for docker in document.of("docker"):
        operands = docker.positional
        if len(operands) > 1 and operands[0].text in ("run", "create", "pull"):
            yield from _image(document, operands[1], docker, docker.command.file, release)
    for command in document.commands:
        for before, word in pairwise(command.words):
            flag, sign, _ = word.text.partition("=")
            if before.text == CONTAINER or (flag == CONTAINER and sign):
                given = word if before.text == CONTAINER else word.part(len(flag) + 1)
                image = Word(given.text.replace("#", "/"), given.line, given.column)
                yield from _image(document, image, None, command.file, release)
    for box in boxes(document):
        if box.docker is None and _builds_in(document, box):
            yield from _image(document, box.place, None, box.file, release)


def _builds_in(document: Document, box: Box) -> bool:
    """True where the text that has the container also builds an engine, elsewhere."""
    return any(one.command.file == box.file and one.image != box.image for one in document.of("trtllm-build"))


def _image(document: Document, word: Word, docker: Invocation | None, file: str, release: Release) -> Iterator[Draft]:
    """One image that a container is started from, by docker or by what a file of YAML says."""
    lmi = LMI_IMAGE.search(word.text)
    if lmi and lmi["release"] != release.name and docker is not None:
        yield from _lmi(docker, word, lmi["release"], release)
    plain = TRTLLM_IMAGE.search(word.text)
    holds = release_of_the_image(word.text)
    own = (*release.containers.triton, *release.containers.tensorrt_llm)
    if holds is None or word.text in own or holds == release.name:
        return
    if not holds and (not word.text.startswith(NVIDIAS) or _is_later(word.text)):
        return  # an image of one's own, or of a month without facts: what is in it is not known
    right = release.image if plain and not release.containers.built else release.server_image
    known = {
        "image": word.text,
        "right": right,
        "holds": f"TensorRT-LLM {holds}" if holds else "none of the known releases",
    }
    build = _earlier_build(document, docker, word.text)
    rule = "container-of-another-release" if build is None else "engine-of-another-release"
    if build is not None:
        known["built"] = build.image or f"TensorRT-LLM {release.name}"
    edits = (Swap(word, right),) if docker is not None else ()
    yield from drafts(release.name, rule, word, edits=edits, invocation=docker, file=file, **known)


def release_of_the_image(image: str) -> str | None:
    """The release in an image, "" for one without facts; None for another image, and for latest, which changes."""
    plain = TRTLLM_IMAGE.search(image)
    if plain is not None:
        return plain["release"] if plain["release"][:1].isdecimal() else None
    return _holder(image) if TRITON_IMAGE.search(image) else None


def _told_otherwise(document: Document, release: Release) -> Iterator[Draft]:
    """``Engines are built with TensorRT-LLM 0.9.0``, and the only container of the text holds another release."""
    builds = document.of("trtllm-build")
    told = said(document) if builds and len(document.texts) == 1 else None
    if told is None or not told.release or told.release == release.name or any(one.image for one in builds):
        return
    lines = [one for _, text in document.texts for one in evidence(text) if one.kind != "link"]
    if lines and all(one.kind in ("container", "image") and one.release == release.name for one in lines):
        place = Word(told.text, told.line, 1)
        known: dict[str, Any] = {"image": lines[0].text, "right": release.server_image}
        known |= {"built": f"TensorRT-LLM {told.written or told.release}", "holds": f"TensorRT-LLM {release.name}"}
        yield from drafts(release.name, "engine-of-another-release", place, form="told", **known)


def _retrieved(document: Document, platform: Platform) -> Iterator[Draft]:
    """An engine of the text, and ``image_uris.retrieve(framework="djl-tensorrtllm", version="0.29.0")``."""
    release = platform.release
    for call in document.aws_calls:
        framework, version = call.settings.get("framework"), call.settings.get("version")
        if framework is None or version is None or framework.text != "djl-tensorrtllm" or version.kind != "text":
            continue
        found = [one for one in lmi_images() if one.tag.startswith(f"{version.text}-") and one.engine_release]
        if found and release.name not in {one.engine_release for one in found}:
            image = Word(found[0].tag, version.place.line, version.place.column)
            yield from _lmi(None, image, found[0].engine_release, release, call.file)


def _is_later(image: str) -> bool:
    """True for a Triton container of a month after the first one with facts."""
    month = MONTH.search(image)
    first = MONTH.search(next(iter(load_release(known_releases()[0]).containers.triton), ""))
    return month is not None and first is not None and month[1] > first[1]


def _earlier_build(document: Document, docker: Invocation | None, image: str) -> Invocation | None:
    """A trtllm-build before ``docker``, or anywhere beside a file of YAML, in another container than ``image``."""
    for one in document.invocations:
        if one is docker:
            return None
        if one.tool == "trtllm-build" and one.image != image:
            return one
    return None


def _lmi(docker: Invocation | None, word: Word, holds: str, release: Release, file: str = "") -> Iterator[Draft]:
    images = release.containers.lmi
    registry, sign, _ = word.text.rpartition(":")
    edits: tuple[Edit, ...] = (Swap(word, f"{registry}{sign}{images[0]}"),) if images and docker else ()
    available = f"{release.name} has {', '.join(images)}" if images else f"{release.name} has none"
    instead = f"use {images[0]}" if images else "build with a release that has an LMI image, or use LMI's vLLM image"
    yield from drafts(
        release.name,
        "lmi-image-of-another-release",
        word,
        edits=edits,
        invocation=docker,
        file=file,
        image=word.text.rpartition("/")[2],
        holds=holds,
        available=available,
        instead=instead,
    )


def _holder(image: str) -> str:
    """The first release with the Triton container ``image``, from wherever it is pulled; "" for none."""
    return container_release(MIRROR.sub("nvcr.io/nvidia/tritonserver:", image))


def _engines(document: Document, release: Release) -> Iterator[Draft]:
    """Engines of a folder, by what their config.json says."""
    for config in document.json_configs:
        try:
            content = json.loads(config.text)
        except (ValueError, RecursionError):
            continue
        version = content.get("version") if isinstance(content, dict) and "build_config" in content else None
        if not isinstance(version, str) or without_build(version) == without_build(release.name):
            continue
        lines = config.text.split("\n")
        number = next((i for i, line in enumerate(lines) if re.search(r'"version"\s*:', line)), 0)
        column = lines[number].find('"version"') + 1
        yield from drafts(
            release.name,
            "engine-of-another-release",
            Word(version, config.line + number, max(column, 1)),
            file=config.path,
            built=f"TensorRT-LLM {version}",
            image=release.server_image,
            holds=f"TensorRT-LLM {release.name}",
            right=release.server_image,
        )


def _model(document: Document, wanted: list[Requirement], release: Release) -> Iterator[Draft]:
    """Llama-3.1 and later against the release and its transformers, at the first command that reads the model."""
    for one in document.invocations:
        word = next((value for flag in MODEL_FLAGS for value in one.values(flag)), None)
        model = model_name(word.text) if word is not None else ""
        if word is None or not NEW_ROPE.match(model):
            continue
        support = release.models.get("llama-3.1")
        if support is not None and not support.supported:
            why = support.note or "Llama-3.1 is supported from 0.12 on"
            yield from drafts(release.name, "model-too-new", word, invocation=one, model=word.text, why=why)
            return
        installed = _old_transformers(wanted, release)
        if installed:
            yield from drafts(
                release.name,
                "transformers-too-old",
                word,
                invocation=one,
                model=word.text,
                installed=installed,
            )
        return


def _old_transformers(wanted: list[Requirement], release: Release) -> str:
    """The transformers that does not read the model's rope scaling, "" if there is none or nobody knows."""
    needed = rule_data(FAMILY)["rope_scaling_since"]
    given = [one for one in wanted if one.name == "transformers"]
    if given:
        return given[-1].word.text if given[-1].is_below(needed) else ""
    if any(one.name == "" for one in wanted):
        return ""
    pin = release.pins.get("transformers", "")
    pinned = Requirement.of(f"transformers{pin if pin[:1] in tuple('<>=~!') else f'=={pin}'}") if pin else None
    return f"transformers {pin}, the release's pin," if pinned is not None and pinned.is_below(needed) else ""
