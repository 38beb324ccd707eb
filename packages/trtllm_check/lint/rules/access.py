"""Gated models in a container or an endpoint that nothing in the text gives a token."""

import re
from collections.abc import Iterator
from functools import cache
from typing import Any

from trtllm_check.lint.document import Document
from trtllm_check.lint.finding import Draft, Platform, drafts, rule_data
from trtllm_check.lint.reservations import MODAL
from trtllm_check.lint.rules.box import Box, boxes
from trtllm_check.lint.rules.served import LMI, served
from trtllm_check.lint.shell.words import Word

FAMILY = "access"
RULE = "gated-without-token"
PROPERTY = "option."  # of serving.properties, beside which the variables stand elsewhere
# What brings a token, or the weights, into one of Modal.
BRINGS = re.compile(r"\bSecret\b|\bVolume\b|NetworkFileSystem|CloudBucketMount|\.env\(")
MAKES_A_MODEL = ("Model", "DJLModel", "HuggingFaceModel", "CfnModel", "create_model", "ContainerDefinitionProperty")
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
    for box in boxes(document):
        word = _model(box)
        if word is not None and not box.is_open and not _brings(box) and box.engine is not None:
            done.add(word.text)
            known: dict[str, Any] = {"model": _plain(word), "where": "this container"}
            yield from drafts(release, RULE, word, file=box.file, **known)
    for one in served(document) if _is_endpoint(document) else ():
        by_variables = one.tool == LMI and not one.flag("model").startswith(PROPERTY)
        if by_variables and is_gated(one.model) and one.model not in done:
            known = {"model": one.model, "where": "the endpoint's container"}
            yield from drafts(release, RULE, one.place("model"), file=one.file, **known)


def _is_endpoint(document: Document) -> bool:
    """True for a docker run without mounts, and calls that make a model of SageMaker without an archive of weights."""
    if any(not one.has("-v", "--volume", "--mount", "--env-file") for one in document.of("docker")):
        return True
    made = [one for one in document.aws_calls if one.name in MAKES_A_MODEL]
    tables = [table for one in made for table in one.settings.tables()]
    return bool(made) and not any(table.get(*DATA) for table in tables)


def _of_modal(document: Document, release: str) -> Iterator[Draft]:
    """An ``LLM`` of a gated model in Modal, whose containers have the secrets that they are given."""
    for one in served(document):
        text = dict(document.texts).get(one.file, "")
        if one.invocation is None and is_gated(one.model) and MODAL.search(text) and not BRINGS.search(text):
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
