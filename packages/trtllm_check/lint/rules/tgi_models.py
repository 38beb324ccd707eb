"""Models that the text-generation-inference of the text does not know: by their names, and by its version."""

import re
from collections.abc import Iterator
from functools import cache
from typing import Any

from trtllm_check.lint.document import Document
from trtllm_check.lint.finding import Draft, Platform, drafts, rule_data
from trtllm_check.lint.shell.words import Word
from trtllm_check.releases.models import END, parts

FAMILY = "tgi_models"
VERSION = re.compile(
    r"tgi-inference:[\d.]+-tgi(?P<dlc>\d+\.\d+\.\d+)|text-generation-inference:v?(?P<hub>\d+\.\d+\.\d+)(?![\w.])"
    r"|get_huggingface_llm_image_uri\((?:[^()]|\([^()]*\))*?version\s*=\s*\\?[\"'](?P<sdk>\d+\.\d+\.\d+)"
)
OTHERS = re.compile(r"neuronx|gaudi|llamacpp|trtllm|djl-|vllm-openai|trust.remote.code", re.IGNORECASE)
MODEL = re.compile(
    r"(?:HF_MODEL_ID|MODEL_ID|--model-id)\\?[\"']?(?:\s*[:=,]\s*|[ ]+|\s+value:\s*)\\?[\"']?(?P<id>[\w.-]+/[\w.-]+)"
)


def check(document: Document, platform: Platform) -> Iterator[Draft]:
    """All drafts of the family."""
    for file, text in document.texts:
        versions = {match["dlc"] or match["hub"] or match["sdk"] for match in VERSION.finditer(text)}
        if len(versions) == 1 and not OTHERS.search(text):
            yield from _models(text, versions.pop(), file, platform.release.name)


def _models(text: str, version: str, file: str, release: str) -> Iterator[Draft]:
    said: set[str] = set()
    for match in MODEL.finditer(text):
        name = match["id"]
        last = name.rpartition("/")[2].lower()
        found = next((one for pattern, one in _patterns() if pattern.fullmatch(last)), None)
        if found is None or name in said or parts(version) >= parts(found["since"]):
            continue
        said.add(name)
        at = match.start("id")
        place = Word(name, text.count("\n", 0, at) + 1, at - text.rfind("\n", 0, at))
        known: dict[str, Any] = {"model": name, "type": found["type"], "since": found["since"], "version": version}
        yield from drafts(release, "tgi-model", place, file=file, **known)


@cache
def _patterns() -> tuple[tuple[re.Pattern[str], dict[str, str]], ...]:
    return tuple((re.compile(one["name"] + END), one) for one in rule_data(FAMILY)["models"])
