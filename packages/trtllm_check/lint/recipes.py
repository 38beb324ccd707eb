"""Pages with several recipes, each for a release of its own: what a section says is checked for that release."""

import re
from collections.abc import Sequence
from typing import NamedTuple

from trtllm_check.lint import ReleaseAsked, check_commands, target
from trtllm_check.lint.document import Document
from trtllm_check.lint.evidence import evidence
from trtllm_check.lint.finding import Finding
from trtllm_check.lint.reading import read_document
from trtllm_check.lint.shell.pasted import fences

HEADING = re.compile(r"^(?P<marks>#{1,3})[ ]+\S[^\n]*$", re.MULTILINE)
SURE = ("wheel", "clone", "container", "checkout")
MAKES = re.compile(
    r"^[^\n#]*(?:\btrtllm-(?:build|serve)\b|\b(?:convert_checkpoint|build|quantize|fill_template)\.py\b)", re.MULTILINE
)


class Checked(NamedTuple):
    """The findings of a text, and the release that it was checked for, or several with commas."""

    findings: list[Finding]
    asked: ReleaseAsked


def check_page(document: Document, text: str, release: str = "", gpu: str = "", gpus: int | None = None) -> Checked:
    """``document``, which is ``text``, as :func:`~trtllm_check.lint.check_commands` has it; each recipe by itself."""
    parts = [] if release else recipes(text)
    if not parts:
        asked = target(document, release)
        return Checked(check_commands(document, asked, gpu, gpus), asked)
    found: dict[tuple[int, str, str], Finding] = {}
    asked_of: dict[str, ReleaseAsked] = {}
    for part in parts:
        read = read_document(part)
        asked = target(read)
        asked_of.setdefault(asked.release, asked)
        for one in check_commands(read, asked, gpu, gpus):
            found.setdefault((one.line, one.rule, one.message), one)
    names = ", ".join(asked_of)
    ordered = sorted(found.values(), key=lambda one: one.line)
    return Checked(ordered, ReleaseAsked(names, "each told by its own section"))


def recipes(text: str) -> list[str]:
    """The page once for each of its recipes, with the others blanked; nothing for a page of one release.

    A recipe is a section that names one release, and makes or serves an engine.
    """
    if text.count("\n#") < 2 or len({one.release for one in evidence(text) if one.kind in SURE}) < 2:
        return []
    for sections in _by_depth(text):
        told = {span: releases for span in sections if (releases := _releases(text, span))}
        if len({next(iter(releases)) for releases in told.values()}) > 1 and all(
            len(one) == 1 for one in told.values()
        ):
            return [_without(text, [other for other in told if other != span]) for span in told]
    return []


def _by_depth(text: str) -> list[list[tuple[int, int]]]:
    """The sections of the page, by the depth of their headings, the widest first: where each begins and ends."""
    blocks = [(one.start, one.end) for one in fences(text)]
    headings = [
        (match.start(), len(match["marks"]))
        for match in HEADING.finditer(text)
        if not any(start <= match.start() < end for start, end in blocks)
    ]
    found: list[list[tuple[int, int]]] = []
    for depth in sorted({one for _, one in headings}):
        starts = [start for start, one in headings if one <= depth]
        ends = [*starts[1:], len(text)]
        sections = [(s, e) for s, e in zip(starts, ends, strict=True) if (s, depth) in headings]
        if len(sections) > 1:
            found.append(sections)
    return found


def _releases(text: str, span: tuple[int, int]) -> set[str]:
    """The releases that a section names; none for one that makes no engine."""
    section = text[slice(*span)]
    if MAKES.search(section) is None:
        return set()
    return {one.release for one in evidence(section) if one.kind in SURE and one.release}


def _without(text: str, spans: Sequence[tuple[int, int]]) -> str:
    """The text with some sections blanked; each line keeps its number."""
    for start, end in spans:
        text = text[:start] + re.sub(r"[^\n]", " ", text[start:end]) + text[end:]
    return text
