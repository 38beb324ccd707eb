"""Requests to LMI's own handlers: what stands beside ``parameters``, under another name, or has no effect there."""

import re
from collections.abc import Iterator, Mapping
from difflib import get_close_matches
from typing import Any

from trtllm_check.lint.document import Document
from trtllm_check.lint.endpoints import ServerAddress
from trtllm_check.lint.finding import Draft, Platform, drafts, rule_data
from trtllm_check.lint.rules.lmi_images import image_of
from trtllm_check.lint.shell.words import Word
from trtllm_check.lint.written_requests import WrittenRequest

FAMILY, RULE = "lmi_requests", "lmi-request"
PATHS = re.compile(r"/invocations|/predictions/[\w-]+")
OF_LMI = re.compile(
    r"djl[-_](?:inference|serving|lmi|deepspeed|tensorrtllm|neuronx)|OPTION_ROLLING_BATCH|option\.rolling_batch"
)
OF_ANOTHER = re.compile(
    r"^(?:[ \t]*\")?(?:async )?def handle\(|entryPoint\s*=\s*model\.py|huggingface-pytorch-(?:tgi|inference)"
    r"|text-generation-inference|JumpStartModel|jumpstart|get_huggingface_llm_image_uri",
    re.MULTILINE,
)
"""A handler of the reader's own, or another container, which has a schema of its own."""
OF_TENSORRT = re.compile(r"tensorrtllm|\btrtllm\b")
CHATS = ("messages", "model")
NEAR = 0.85
GREEDY_UNTIL, ROLLING_UNTIL = 31, 33  # minor versions of LMI: do_sample is asked for; the rolling batch's parser


def check(document: Document, platform: Platform) -> Iterator[Draft]:
    """All drafts of the family."""
    requests = [one for one in document.requests if PATHS.fullmatch(ServerAddress.of(one.url).path.rstrip("/"))]
    texts = [text for _, text in document.texts]
    if not requests or not any(map(OF_LMI.search, texts)) or any(map(OF_ANOTHER.search, texts)):
        return
    told = image_of(document, platform)
    minor = _minor(told.said) if not told.others else None
    has_switch = not any(map(OF_TENSORRT.search, texts))
    for request in requests:
        fields = request.fields or {}
        if not any(name in fields for name in CHATS):
            yield from _body(request, fields, minor, platform.release.name, has_switch=has_switch)


def _minor(tag: str) -> int | None:
    match = re.match(r"0\.(\d+)\.", tag)
    return int(match[1]) if match else None


def _body(
    request: WrittenRequest, fields: Mapping[str, Any], minor: int | None, release: str, *, has_switch: bool
) -> Iterator[Draft]:
    """``has_switch``: the engine samples only where do_sample says so, as TensorRT-LLM's does not."""
    data = rule_data(FAMILY)
    known = frozenset(data["parameters"].split())
    if "inputs" not in fields:
        other = next((name for name in data["instead_of_inputs"] if name in fields), "")
        if other and minor is not None and minor < ROLLING_UNTIL:
            yield from _say(request, other, "inputs", release)
        return
    for name in fields:
        if name in known or name in data["lengths"]:
            right = data["lengths"].get(name, name)
            yield from _say(request, name, "beside", release, right=right)
    given = fields.get("parameters")
    if not isinstance(given, dict):
        return
    for name in given:
        right = data["lengths"].get(name, "")
        if right and right not in given and (minor is None or minor <= ROLLING_UNTIL):
            yield from _say(request, name, "length", release, right=right, length=data["default_length"])
        elif not right and name not in known and (near := get_close_matches(name, sorted(known), 1, NEAR)):
            yield from _say(request, name, "near", release, right=near[0])
    asked = [name for name in data["sampling"] if name in given]
    if asked and has_switch and not given.get("do_sample") and minor is not None and minor <= GREEDY_UNTIL:
        yield from _say(request, asked[0], "greedy", release)


def _say(request: WrittenRequest, name: str, form: str, release: str, **known: Any) -> Iterator[Draft]:
    place: Word = request.at(name)
    yield from drafts(release, RULE, place, form=form, file=request.file, name=name, **known)
