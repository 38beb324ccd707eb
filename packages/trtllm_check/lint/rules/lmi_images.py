"""Which LMI image a text is for, and what is known about one that there are no facts on."""

import re
from functools import cache
from typing import NamedTuple

from serving_base.errors import UsageError
from trtllm_check.lint.document import Document
from trtllm_check.lint.finding import Platform
from trtllm_check.lint.shell.words import Word

REPOSITORY = "djl-inference"
# An image in a comment, or in a text that no reader takes for one.
COMMENTED = re.compile(r"(?<![\d.])0\.\d+\.\d+-(?:deepspeed|lmi|tensorrtllm|neuronx|fastertransformer)[\w.-]*\w")
UNKNOWN = "$"  # of a variable that the text does not set
TRTLLM_BATCH = re.compile(r"^\s*option\.rolling_batch\s*[=:]\s*trtllm\s*$", re.MULTILINE)
KIND = re.compile(r"\d+\.\d+\.\d+-([a-z]+)")
NUMBER = re.compile(r"\d+")


class TextImage(NamedTuple):
    """The image of a text. ``tag``: empty without facts on it; ``word``: where an unknown one stands.

    ``said``: its tag as the text has it, empty where the release's own stands in for one. ``others``: further images of
    a text that names several, with facts on all of them.
    """

    tag: str
    word: Word | None = None
    said: str = ""
    others: tuple[str, ...] = ()

    @property
    def tags(self) -> tuple[str, ...]:
        return (self.tag, *self.others)


def image_of(document: Document, platform: Platform) -> TextImage:
    """The image of the text, else the release's; without a tag if nothing is known of the one there."""
    from trtllm_check.recipes.lmi import recommended_image

    named = {word.text.rpartition(":")[2]: word for word in document.images if REPOSITORY in word.text}
    said = list(dict.fromkeys((*named, *_retrieved(document))))
    if not said and (tags := {match[0] for _, text in document.texts for match in COMMENTED.finditer(text)}):
        said = list(tags) if len(tags) == 1 else [""]
    if not said:
        wanted = _wanted_engine(document) if platform.guessed else ""
        return TextImage(wanted or recommended_image(platform.release.name).tag)
    known = [_known(tag) for tag in said]
    if all(known):
        first, *others = dict.fromkeys(known)
        return TextImage(first, None, said[0], tuple(others))
    unknown = next((tag for tag, one in zip(said, known, strict=True) if not one and UNKNOWN not in tag), "")
    return TextImage("", named.get(unknown), unknown if len(said) == 1 else "")


def _known(tag: str) -> str:
    """The tag of the facts, empty without any."""
    from trtllm_check.releases.lmi import lmi_image

    try:
        return lmi_image(tag).tag
    except UsageError:
        return ""


def _retrieved(document: Document) -> set[str]:
    """The images of ``image_uris.retrieve(framework="djl-deepspeed", version="0.24.0")``, as tags."""
    found = set()
    for call in document.aws_calls:
        framework, version = call.settings.get("framework"), call.settings.get("version")
        if framework is None or version is None or framework.kind != "text" or version.kind != "text":
            continue
        kind = framework.text.partition("djl-")[2]
        if kind:
            found |= set(_tags(kind, version.text)) or {f"{version.text}-{kind}"}
    return found


@cache
def _tags(kind: str, version: str) -> tuple[str, ...]:
    from trtllm_check.releases.lmi import lmi_facts

    tags = [one.tag for one in lmi_facts().images]
    return tuple(tag for tag in tags if tag.startswith(f"{version}-") and kind in tag)


def _wanted_engine(document: Document) -> str:
    """The newest image that takes the rolling batch of the text, where that is TensorRT-LLM's; else empty."""
    from trtllm_check.recipes.properties import check_properties
    from trtllm_check.releases.lmi import lmi_facts

    if not any(TRTLLM_BATCH.search(file.text) for file in document.properties):
        value = document.lmi_environment.get("OPTION_ROLLING_BATCH")
        if value is None or value.text != "trtllm":
            return ""
    line = "option.rolling_batch=trtllm"
    found = [one.tag for one in lmi_facts().images if one.engine_release and not check_properties(line, one.tag)]
    return max(found, key=lambda tag: [int(part) for part in tag.split("-")[0].split(".")], default="")


@cache
def of_its_kind(tag: str) -> tuple[str, ...]:
    """The known images of the kind of another one, oldest first."""
    from trtllm_check.releases.lmi import lmi_facts

    kind = KIND.match(tag)
    known = (one.tag for one in lmi_facts().images)
    return tuple(sorted((one for one in known if kind and one.split("-")[1].startswith(kind[1])), key=_numbers))


@cache
def around(tag: str) -> tuple[str, ...]:
    """The known images of its kind before and behind an unknown one; only the newest for one that is newer still."""
    before = [one for one in of_its_kind(tag) if _numbers(one) < _numbers(tag)]
    behind = [one for one in of_its_kind(tag) if _numbers(one) > _numbers(tag)]
    return (*before[-1:], *behind[:1]) if before else ()


def _numbers(tag: str) -> tuple[int, ...]:
    return tuple(int(part) for part in NUMBER.findall(tag.partition("-cu")[0]))
