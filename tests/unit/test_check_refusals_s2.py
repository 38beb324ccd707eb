"""What vLLM, LMI and SageMaker refuse by what a text shows: each refusal of the collection is told at its place."""

import re
from functools import cache
from pathlib import Path
from typing import Any

from each import each
from serving_base.yaml_files import read_yaml
from trtllm_check.lint.finding import Finding
from trtllm_check.lint.reading import read_document
from trtllm_check.lint.recipes import check_page

COLLECTION = Path(__file__).parents[1] / "fixtures" / "refusals_s2.yml"
ABOVE_A_HINT = ("error", "warning")
LEAST = 190
Refusal = dict[str, Any]


@cache
def _collection() -> dict[str, list[Refusal]]:
    content: dict[str, list[Refusal]] = read_yaml(COLLECTION)
    return content


def _told(one: Refusal) -> list[Finding]:
    """The findings at the place of the refusal that name it."""
    document = read_document(one["text"], one["kind"])
    found = check_page(document, one["text"] if one["kind"] == "shell" else "").findings
    here = [each_ for each_ in found if each_.line == one["line"] and each_.severity in ABOVE_A_HINT]
    return [each_ for each_ in here if re.search(one["says"], each_.message)]


def test_the_collection_is_large_and_each_refusal_stands_once() -> None:
    names = [one["id"] for group in _collection().values() for one in group]
    assert len(_collection()["told"]) >= LEAST
    assert len(names) == len(set(names))


@each("refusal", _collection()["told"])
def test_a_refusal_is_told_at_its_place(refusal: Refusal) -> None:
    assert _told(refusal)


@each("refusal", _collection()["missed"])
def test_what_is_not_told_says_why(refusal: Refusal) -> None:
    """One that is told by now belongs among the others."""
    assert refusal["why"]
    assert not _told(refusal)
