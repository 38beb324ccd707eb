"""Gated models in a container or an endpoint that nothing in the text gives a token."""

import re
from collections.abc import Iterator
from functools import cache
from typing import Any

from trtllm_check.lint.document import Document
from trtllm_check.lint.finding import Draft, Platform, drafts, rule_data
from trtllm_check.lint.reservations import MODAL, OF_SKYPILOT
from trtllm_check.lint.rules.box import Box, boxes
from trtllm_check.lint.rules.served import LMI, TENSORRT_LLM, VLLM, Around, ServedModel, served
from trtllm_check.lint.shell.words import Word, word_at

FAMILY = "access"
RULE = "gated-without-token"
# Models that a chart or a controller takes by name, without the variables of a container beside it.
NAMED = re.compile(
    r"(?:--model_id[ =]+|^[ ]*(?:-[ ]+)?modelURL:[ ]*|storageUri:[ ]*hf://)[\"']?(?P<model>[A-Za-z][\w.-]*/[\w.-]+)",
    re.MULTILINE,
)
OF_A_POD = re.compile(r"^kind:[ ]*InferenceService\b|^servingEngineSpec:", re.MULTILINE)
DOWNLOADS = ("huggingface-cli", "hf")
PROPERTY = "option."  # of serving.properties, beside which the variables stand elsewhere
# What brings a token, or the weights, into one of Modal.
BRINGS = re.compile(r"\bSecret\b|\bVolume\b|NetworkFileSystem|CloudBucketMount|\.env\(")
# Machines of others that begin with nothing: dstack, RunPod, Cloud Run, and containers of docker's SDK without mounts.
FRESH = re.compile(
    r"^type:[ ]*(?:service|task)\b[\s\S]*^commands:|\brunpod\.create_pod\(|\brunpodctl create pod\b"
    r"|\bgcloud run deploy\b|\.containers\.run\((?![\s\S]*\b(?:volumes|mounts)[ ]*=)",
    re.MULTILINE,
)
MAKES_A_MODEL = (
    "Model",
    "DJLModel",
    "HuggingFaceModel",
    "CfnModel",
    "create_model",
    "ContainerDefinitionProperty",
    "ContainerDefinition",
)
DATA = ("modeldata", "modeldataurl", "modeldatasource")
MODEL_SETTINGS = ("HF_MODEL_ID", "MODEL_ID", "MODEL", "VLLM_MODEL")


def check(document: Document, platform: Platform) -> Iterator[Draft]:
    """All drafts of the family."""
    found = [*_without_token(document, platform), *_of_modal(document, platform.release.name)]
    tokens = re.compile(rule_data(FAMILY)["tokens"])
    if found and not any(tokens.search(text) for _, text in document.texts):
        yield from found


def _without_token(document: Document, platform: Platform) -> Iterator[Draft]:
    """Gated models in what is given no token, if the text has none."""
    release = platform.release.name
    done: set[str] = set()
    around = Around.of(document)
    starts = [one for one in served(document) if one.engine in (VLLM, TENSORRT_LLM) and is_gated(one.model)]
    for box in boxes(document):
        word = _model(box) or next((one.place("model") for one in starts if _starts_in(box, one, around)), None)
        if word is not None and not box.is_open and not _brings(box) and box.engine is not None:
            done.add(word.text)
            named = (
                _plain(word)
                if is_gated(_plain(word))
                else next(one.model for one in starts if _starts_in(box, one, around))
            )
            known: dict[str, Any] = {"model": named, "where": "this container"}
            yield from drafts(release, RULE, word, file=box.file, **known)
    for file, text in document.texts:
        for match in NAMED.finditer(text) if OF_A_POD.search(text) else ():
            if is_gated(match["model"]) and match["model"] not in done:
                done.add(match["model"])
                known = {"model": match["model"], "where": "this pod"}
                yield from drafts(
                    release, RULE, word_at(text, match.start("model"), match["model"]), file=file, **known
                )
    for download in document.of(*DOWNLOADS):
        words = [word for word in download.positional if word.text != "download"]
        is_inside = bool(download.command.image) and len(words) < len(download.positional)
        if is_inside and words and is_gated(words[0].text) and not download.has("--token"):
            known = {"model": words[0].text, "where": "this build"}
            yield from drafts(release, RULE, words[0], invocation=download, **known)
    rented = {file for file, text in document.texts if OF_SKYPILOT.search(text) or FRESH.search(text)}
    for one in served(document):
        if one.engine == VLLM and one.file in rented and is_gated(one.model) and one.model not in done:
            done.add(one.model)
            known = {"model": one.model, "where": "this machine"}
            yield from drafts(release, RULE, one.place("model"), file=one.file, **known)
    for one in served(document) if _is_endpoint(document) else ():
        by_variables = one.tool == LMI and not one.flag("model").startswith(PROPERTY)
        if by_variables and is_gated(one.model) and one.model not in done:
            known = {"model": one.model, "where": "the endpoint's container"}
            yield from drafts(release, RULE, one.place("model"), file=one.file, **known)


def _starts_in(box: Box, one: ServedModel, around: Around) -> bool:
    if box.docker is not None:
        return around.docker(one) is box.docker
    return box.workload is not None and around.workload(one) is box.workload


def _is_endpoint(document: Document) -> bool:
    """True for a docker run without mounts, and calls that make a model of SageMaker without an archive of weights."""
    if any(not one.has("-v", "--volume", "--mount", "--env-file") for one in document.of("docker")):
        return True
    made = [one for one in document.aws_calls if one.name in MAKES_A_MODEL]
    tables = [table for one in made for table in one.settings.tables()]
    return bool(made) and not any(table.get(*DATA) for table in tables)


def _of_modal(document: Document, release: str) -> Iterator[Draft]:
    """An ``LLM`` of a gated model in Modal, whose containers have the secrets that they are given."""
    files = {file for file, text in document.texts if MODAL.search(text) and not BRINGS.search(text)}
    for one in served(document):
        if one.file in files and is_gated(one.model):
            known: dict[str, Any] = {"model": one.model, "where": "Modal's container"}
            yield from drafts(release, RULE, one.place("model"), file=one.file, **known)


@cache
def _gated() -> tuple[re.Pattern[str], ...]:
    return tuple(re.compile(pattern, re.IGNORECASE) for pattern in rule_data(FAMILY)["gated"])


def is_gated(model: str) -> bool:
    """True for ``owner/name`` of a model that the hub does not give to everybody."""
    return any(pattern.fullmatch(model) for pattern in _gated())


def _plain(word: Word) -> str:
    return word.text.rpartition("=")[2].strip("\"'")


def _model(box: Box) -> Word | None:
    """The gated model that a container serves."""
    settings = (box.settings[name] for name in MODEL_SETTINGS if name in box.settings)
    return next((word for word in (*box.words, *settings) if is_gated(_plain(word))), None)


def _brings(box: Box) -> bool:
    """True if a mount may bring a login or the weights."""
    caches = re.compile(rule_data(FAMILY)["caches"])
    return any(caches.search(folder.rstrip("/")) for folder in box.mounts)
