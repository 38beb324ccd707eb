"""Models with an encoder and a decoder in Triton: releases that serve a decoder alone, and the second engine."""

import re
from collections.abc import Iterator
from typing import Any

from trtllm_check.lint.document import Document
from trtllm_check.lint.filling import ENGINE_MODEL, Filling, fillings
from trtllm_check.lint.finding import Draft, Platform, drafts
from trtllm_check.lint.rules.names import is_open
from trtllm_check.releases.templates import release_templates, template_releases

RULE = "encoder-decoder"
ENCODER_DECODER = re.compile(
    r"(?<![a-z\d])(?P<name>(?:flan[-_]?|m|by|u)?t5|m?bart|nllb|whisper|pegasus|marian(?:mt)?|m2m[-_]?100|madlad)(?![a-z\d])",
    re.IGNORECASE,
)
ENCODER = "encoder_engine_dir"
DECODER = ("engine_dir", "gpt_model_path")
OTHERS = ("tokenizer_dir",)
PYTHON = re.compile(r"python", re.IGNORECASE)


def check(document: Document, platform: Platform) -> Iterator[Draft]:
    """All drafts of the family."""
    release = platform.release.name
    if release not in template_releases() or not document.of("fill_template.py"):
        return
    found = fillings(document, platform.release)
    engines = [one for one in found if one.model == ENGINE_MODEL and any(name in one.values for name in DECODER)]
    for one in engines:
        model = _model(one, found)
        if not model or PYTHON.search(one.values.get("triton_backend", "")):
            continue
        variables = release_templates(release).models[ENGINE_MODEL].variables
        is_known = ENCODER in variables
        if not one.values.keys() <= {*variables}:
            continue  # a template of one's own
        if is_known and (not one.known or any(ENCODER in other.values for other in found)):
            continue
        known: dict[str, Any] = {"model": model}
        form = "" if not is_known else "no encoder"
        yield from drafts(release, RULE, one.word, form=form, invocation=one.invocation, **known)


def _model(engine: Filling, found: list[Filling]) -> str:
    """The model of both kinds that the engine's folder or the tokenizer's tells; "" for none."""
    paths = [engine.values[name] for name in DECODER if name in engine.values]
    paths += [one.values[name] for one in found for name in OTHERS if name in one.values]
    for path in paths:
        match = ENCODER_DECODER.search(path) if not is_open(path) else None
        if match is not None:
            return match["name"]
    return ""
