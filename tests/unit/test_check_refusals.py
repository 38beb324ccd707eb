"""What TensorRT-LLM, Triton, vLLM, LMI and SageMaker themselves refuse of a text: the checker tells it beforehand."""

import re
from functools import cache
from pathlib import Path
from typing import Any

from each import each
from serving_base.yaml_files import read_yaml
from trtllm_check.lint.reading import read_document
from trtllm_check.lint.recipes import check_page

Refusal = dict[str, Any]
FIXTURES = Path(__file__).parents[1] / "fixtures"
FEWEST = {"refusals_tensorrt_llm": 170, "refusals_vllm": 190}
"""That are told, of each collection."""


@cache
def collection(name: str) -> list[Refusal]:
    content: dict[str, list[Refusal]] = read_yaml(FIXTURES / f"{name}.yml")
    return content["refusals"]


def refusals(*, told: bool) -> list[Refusal]:
    return [one for name in FEWEST for one in collection(name) if told is ("untold" not in one)]


def is_told(refusal: Refusal) -> bool:
    """True where a finding names it, above a hint, of its severity and at its line where these are given."""
    document = read_document(refusal["text"], refusal["kind"])
    for one in check_page(document, refusal["text"] if refusal["kind"] == "shell" else "").findings:
        is_here = one.line == refusal.get("line", one.line) and one.severity == refusal.get("severity", one.severity)
        if is_here and one.severity != "info" and re.search(refusal["says"], f"{one.message} {one.fix.text}"):
            return True
    return False


@each("name", list(FEWEST))
def test_a_collection_is_large_and_each_refusal_stands_once(name: str) -> None:
    assert len([one for one in collection(name) if "untold" not in one]) >= FEWEST[name]
    assert len({one["id"] for one in collection(name)}) == len(collection(name))


@each("refusal", refusals(told=True))
def test_a_refusal_is_told(refusal: Refusal) -> None:
    assert is_told(refusal)


@each("refusal", refusals(told=False))
def test_what_is_not_told_says_why(refusal: Refusal) -> None:
    """One that is told by now belongs among the others."""
    assert refusal["untold"]
    assert not is_told(refusal)
