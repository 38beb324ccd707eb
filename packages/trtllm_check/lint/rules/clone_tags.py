"""Tags and branches that the repositories of TensorRT-LLM and of its Triton backend never had."""

import re
from collections.abc import Iterator
from typing import Any

from trtllm_check.lint.document import Document
from trtllm_check.lint.finding import Draft, Edit, Platform, Swap, drafts
from trtllm_check.lint.installs import clones
from trtllm_check.lint.whereabouts import BACKEND, CLONES
from trtllm_check.releases import known_releases
from trtllm_check.releases.trees import backend_branches, backend_tree, examples_tree

RULE = "clone-tag-unknown"
NUMBER = re.compile(r"(?P<v>v?)(?P<number>\d+\.\d+(?:\.\d+)?)")
MONTH = re.compile(r"(?P<r>[rv]?)(?P<month>2[3-6]\.(?:0[1-9]|1[0-2]))")
# What people put in front of a release's number, and no tag or branch of the two has.
PREFIXED = re.compile(
    r"(?:(?:trt|tensorrt)[-_]?llm(?:[-_]backend)?[-_/]|(?:release|rel|version|ver|tag)[-_]|(?:rel|version)/|release/v|r|V)"
    r"v?(?P<number>\d+\.\d+(?:\.\d+)?)"
)
RELEASE = re.compile(r"release/(?P<number>\d+\.\d+(?:\.\d+)?)")


def check(document: Document, platform: Platform) -> Iterator[Draft]:
    """All drafts of the family."""
    for clone in clones(document):
        if clone.name.lower() not in CLONES or not clone.reference:
            continue
        if clone.checkout is not None and clone.checkout.has("-b", "-B", "-c", "-C", "--orphan", "--create"):
            continue  # a branch that it makes
        is_backend = clone.name.lower() == BACKEND
        right = _backend(clone.reference) if is_backend else _tensorrt_llm(clone.reference)
        if right is None:
            continue
        known: dict[str, Any] = {"name": clone.name, "reference": clone.reference, "right": right or "one that it has"}
        edits: tuple[Edit, ...] = (Swap(clone.word, right),) if right and clone.word.text == clone.reference else ()
        form = "checkout" if clone.checkout else ""
        git = clone.checkout or clone.git
        yield from drafts(platform.release.name, RULE, clone.word, form=form, edits=edits, invocation=git, **known)


def _backend(reference: str) -> str | None:
    """What is meant by a name that the backend does not have, "" where nobody knows; None for one that it may have."""
    releases = backend_tree().package.releases
    if month := MONTH.fullmatch(reference):
        right = f"r{month['month']}"
        return right if month["r"] != "r" and right in backend_branches() else None
    if release := RELEASE.fullmatch(reference):
        return None if reference in backend_branches() else _tag(release["number"], releases)
    if prefixed := PREFIXED.fullmatch(reference):
        return _tag(prefixed["number"], releases)
    number = NUMBER.fullmatch(reference)
    return _number(number, releases) if number else None


def _tensorrt_llm(reference: str) -> str | None:
    """The same of TensorRT-LLM."""
    releases = tuple(dict.fromkeys((*examples_tree().package.releases, *known_releases())))
    if MONTH.fullmatch(reference):
        return ""
    if prefixed := PREFIXED.fullmatch(reference):
        return _tag(prefixed["number"], releases)
    number = NUMBER.fullmatch(reference)
    return _number(number, releases) if number else None


def _number(match: re.Match[str], releases: tuple[str, ...]) -> str | None:
    tag = _tag(match["number"], releases)
    if match["v"] and (match["number"] in releases or _numbers(match["number"]) > _numbers(releases[-1])):
        return None
    return tag


def _tag(number: str, releases: tuple[str, ...]) -> str:
    """``v0.12.0`` of ``0.12``."""
    minor = ".".join(number.split(".")[:2])
    same = (one for one in reversed(releases) if one.startswith(f"{minor}."))
    name = number if number in releases else next(same, "")
    return f"v{name}" if name else ""


def _numbers(text: str) -> tuple[int, ...]:
    return tuple(int(one) for one in re.findall(r"\d+", text)[:3])
