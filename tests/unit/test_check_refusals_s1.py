"""What TensorRT-LLM, its backend and Triton themselves refuse of a text: the checker tells it beforehand."""

import re
from functools import cache
from pathlib import Path
from typing import Any

from each import each
from serving_base.yaml_files import read_yaml
from trtllm_check.lint.finding import Finding
from trtllm_check.lint.reading import read_document
from trtllm_check.lint.recipes import check_page

REFUSALS: list[dict[str, Any]] = read_yaml(Path(__file__).parents[1] / "fixtures" / "refusals_s1.yml")["refusals"]
FEWEST = 170  # that are told


@cache
def found(number: int) -> list[Finding]:
    refusal = REFUSALS[number]
    is_shell = refusal["kind"] == "shell"
    document = read_document(refusal["text"], None if is_shell else refusal["kind"])
    findings = check_page(document, refusal["text"] if is_shell else "").findings
    return [one for one in findings if one.severity != "info"]


@each("number", [number for number, one in enumerate(REFUSALS) if "untold" not in one])
def test_it_is_told(number: int) -> None:
    refusal = REFUSALS[number]
    told = [one.severity for one in found(number) if re.search(refusal["says"], f"{one.message} {one.fix.text}")]
    assert refusal["severity"] in told, refusal["id"]


def test_most_are_told() -> None:
    assert len([one for one in REFUSALS if "untold" not in one]) >= FEWEST
    assert len({one["id"] for one in REFUSALS}) == len(REFUSALS)
