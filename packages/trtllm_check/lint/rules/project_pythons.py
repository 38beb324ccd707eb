"""The Pythons that a project supports, against those of what it depends on: poetry and uv resolve for all of them."""

import re
from collections.abc import Iterator
from typing import Any

from trtllm_check.lint.carriers.requirements import as_range
from trtllm_check.lint.document import Document
from trtllm_check.lint.finding import Draft, Platform, drafts
from trtllm_check.lint.installs import Requirement, is_typed, requirements
from trtllm_check.lint.shell.words import Word
from trtllm_check.releases.packages import needs_of, takes, versions_of

MINORS = tuple(f"3.{minor}" for minor in range(7, 17))
POETRY = re.compile(
    r"^\[tool\.poetry\.dependencies\][^\[]*?^python[ \t]*=[ \t]*[\"'](?P<range>[^\"'\n]+)[\"']",
    re.MULTILINE | re.DOTALL,
)
PROJECT = re.compile(r"^requires-python[ \t]*=[ \t]*[\"'](?P<range>[^\"'\n]+)[\"']", re.MULTILINE)
OF_UV = re.compile(r"^\[(?:\[)?tool\.uv\b", re.MULTILINE)


def check(document: Document, platform: Platform) -> Iterator[Draft]:
    """The first package that leaves one of the project's Pythons out."""
    for file, text in document.texts:
        poetry, project = POETRY.search(text), PROJECT.search(text)
        match = poetry or (project if OF_UV.search(text) else None)
        supported = as_range(match["range"]) if match is not None else None
        if match is None or not supported:
            continue
        asked = [minor for minor in MINORS if takes(supported, f"{minor}.9")]
        for one in requirements(document):
            if not one.name or not one.specifier or is_typed(one.pip):
                continue
            left_out = _left_out(one, asked, above=poetry is not None)
            if left_out:
                place = Word(match[0].rpartition("\n")[2], text.count("\n", 0, match.end()) + 1, 1)
                known: dict[str, Any] = {"range": match["range"], "one": one.word.text, "missing": left_out[0]}
                known |= {"wants": left_out[1], "tool": "poetry" if poetry is not None else "uv"}
                yield from drafts(platform.release.name, "project-python", place, file=file, **known)
                return


def _left_out(one: Requirement, asked: list[str], *, above: bool) -> tuple[str, str] | None:
    """A Python that no version of the package takes, and what the last of them says; uv heeds lower bounds alone."""
    fitting = [one.exact] if one.exact else [each for each in versions_of(one.name) if takes(one.specifier, each)]
    found = [needs_of(one.name, version) for version in fitting]
    pythons = [needs.python for needs in found if needs is not None and needs.python]
    if not pythons or len(pythons) != len(found):
        return None
    for python in dict.fromkeys(pythons):
        known = python if above else ",".join(part for part in python.split(",") if part.startswith(">"))
        missing = [minor for minor in asked if not takes(known, f"{minor}.9")]
        if not missing:
            return None
    return missing[0], pythons[-1]
