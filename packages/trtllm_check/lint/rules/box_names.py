"""Variables of containers that nothing reads: slips of the keyboard, options as variables, tokens of other tools."""

import re
from collections.abc import Iterator
from difflib import SequenceMatcher
from functools import cache
from typing import Any

from trtllm_check.lint.document import Document
from trtllm_check.lint.finding import Draft, Platform, drafts, rule_data
from trtllm_check.lint.rules.box import FAMILY, Box, boxes
from trtllm_check.lint.rules.lmi_variables import LMI, TGI
from trtllm_check.lint.shell.words import Word

TOKEN = re.compile(r"(?:HF|HUGGING_?FACE)\w*(?:TOKEN|API_?KEY)")
READERS = {"nccl": "NCCL"}
PROPERTY = re.compile(r"-D(?P<name>ai\.djl\.[\w.]+)=")
HUB_CALLS = re.compile(r"get_huggingface_llm_image_uri|tgi-inference|text-generation-inference|djl-inference|djl-lmi")
ALIKE = 0.7
LMI_NAMES = {"HF_TRUST_REMOTE_CODE": "HF_MODEL_TRUST_REMOTE_CODE or OPTION_TRUST_REMOTE_CODE"}
LMI_SETTING = re.compile(r"^\s*[\"']?(?:OPTION_\w+|TENSOR_PARALLEL_DEGREE|HF_MODEL_ID)[\"']?\s*[=:]", re.MULTILINE)


def check(document: Document, platform: Platform) -> Iterator[Draft]:
    """All drafts of the family."""
    release = platform.release.name
    for box in boxes(document):
        for name, word in box.settings.items():
            yield from _slip(box, name, word, release)
        yield from _tokens(box, release)
    for command in document.commands:
        if command.words[:1] and command.words[0].text == "export":
            for word in command.words[1:]:
                yield from _exported(word, command.file, release)
    for call in document.aws_calls:
        yield from _sagemaker(document, call.file, release)
        break
    for file, text in document.texts:
        yield from _properties(text, file, release)
        yield from _lmi(text, file, release)


@cache
def _known(kind: str) -> frozenset[str]:
    return frozenset(rule_data(FAMILY)[kind].split())


def near(name: str, kind: str) -> str:
    """The name of ``kind`` that differs in one of its parts by a letter or two; "" for none and for a known one."""
    known = _known(kind)
    if name in known:
        return ""
    parts = name.split("_")
    for other in sorted(known):
        others = other.split("_")
        if len(others) != len(parts):
            continue
        unlike = [(one, two) for one, two in zip(parts, others, strict=True) if one != two]
        if len(unlike) == 1 and _is_slip(*unlike[0]):
            return other
    return ""


def _is_slip(one: str, two: str) -> bool:
    same_digits = re.findall(r"\d", one) == re.findall(r"\d", two)
    long = min(len(one), len(two)) > 2
    return same_digits and long and SequenceMatcher(None, one, two).ratio() >= ALIKE and abs(len(one) - len(two)) < 3


def _slip(box: Box, name: str, word: Word, release: str) -> Iterator[Draft]:
    for kind, reader in READERS.items():
        if name.startswith(f"{kind.upper()}_") and (meant := near(name, kind)):
            yield from drafts(
                release, "variable-read-by-nobody", word, file=box.file, name=name, near=meant, what=reader
            )


def _exported(word: Word, file: str, release: str) -> Iterator[Draft]:
    """``export`` of a script, ENV of a Dockerfile."""
    name, sign, _ = word.text.partition("=")
    for kind, reader in (*READERS.items(), ("common", "the program")):
        meant = near(name, kind) if sign and (kind == "common" or name.startswith(f"{kind.upper()}_")) else ""
        if meant:
            yield from drafts(release, "variable-read-by-nobody", word, file=file, name=name, near=meant, what=reader)
            return


def _tokens(box: Box, release: str) -> Iterator[Draft]:
    data = rule_data(FAMILY)
    if not re.search(data["from_the_hub"], box.image) or any(name in box.settings for name in data["tokens"]):
        return
    for name, word in box.settings.items():
        if TOKEN.fullmatch(name) and not _is_empty(word) and not ("embeddings" in box.image and name == "HF_API_TOKEN"):
            yield from drafts(
                release, "variable-read-by-nobody", word, form="token", file=box.file, name=name, image=box.image
            )
            return


def _is_empty(word: Word) -> bool:
    """True for a variable that is set to nothing: ``HUGGINGFACE_TOKEN=``."""
    return word.text.rpartition("=")[2].strip("\"'") == ""


def _sagemaker(document: Document, file: str, release: str) -> Iterator[Draft]:
    """The variables of a model that TGI or LMI serves."""
    text = dict(document.texts).get(file, "")
    tokens = rule_data(FAMILY)["tokens"]
    if not HUB_CALLS.search(text) or any(re.search(rf"[\"']{name}\\?[\"']", text) for name in tokens):
        return
    for match in re.finditer(rf"[\"'](?P<name>{TOKEN.pattern})\\?[\"']\s*:", text):
        line = text.count("\n", 0, match.start()) + 1
        place = Word(match["name"], line, match.start("name") - text.rfind("\n", 0, match.start()))
        known: dict[str, Any] = {"name": match["name"], "image": "the container"}
        yield from drafts(release, "variable-read-by-nobody", place, form="token", file=file, **known)
        return


def _properties(text: str, file: str, release: str) -> Iterator[Draft]:
    """``-Dai.djl...`` of Java."""
    for match in PROPERTY.finditer(text):
        name, known = match["name"], sorted(_known("java"))
        close = [one for one in known if SequenceMatcher(None, name, one).ratio() > 0.93 and name != one]
        if close and name not in known:
            line = text.count("\n", 0, match.start()) + 1
            place = Word(name, line, match.start("name") - text.rfind("\n", 0, match.start()))
            yield from drafts(
                release, "variable-read-by-nobody", place, file=file, name=name, near=close[0], what="DJL"
            )


def _lmi(text: str, file: str, release: str) -> Iterator[Draft]:
    """Names that LMI had for a while or never."""
    if not (LMI_SETTING.search(text) or HUB_CALLS.search(text)) or (TGI.search(text) and not LMI.search(text)):
        return
    for name, meant in LMI_NAMES.items():
        match = re.search(rf"^[ \t]*(?:export[ \t]+|-e[ \t]+)?[\"']?{name}[\"']?[ \t]*[=:]", text, re.MULTILINE)
        if match:
            line = text.count("\n", 0, match.start()) + 1
            yield from drafts(
                release,
                "variable-read-by-nobody",
                Word(name, line, 1),
                form="another form",
                file=file,
                name=name,
                near=meant,
            )
