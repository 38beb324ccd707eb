"""What a chapter's prose may not say on any lane, and what it must say of its default release."""

import re
from pathlib import Path
from types import SimpleNamespace

import pytest

import playbook
from playbook.articles import quote
from playbook.course.notebooks import chapter, chapters, read
from playbook.panel import panel_markdown
from playbook.profile import load_profile, profile_names
from trtllm_check.releases import load_release

ROOT = Path(__file__).parents[2]
CHAPTERS = ("02", "03", "04")
OF_ONE_LANE = {
    "the model that ships with the package": r"\btiny\b",
    "a time, which the card says": r"\*\*Time\*\*[^*]*\d",
    "the lane as the place of the reader": r"\bhere\b[^.]*(?:no GPU|CPU)",
}


def cells(number: str, kind: str) -> dict[str, str]:
    found = read(chapter(number, chapters(ROOT / "notebooks")).path)
    return {cell["id"]: cell["source"] for cell in found.cells if cell["cell_type"] == kind}


@pytest.mark.parametrize("number", CHAPTERS)
@pytest.mark.parametrize("what", OF_ONE_LANE)
def test_the_prose_is_true_on_every_lane(number: str, what: str) -> None:
    said = [name for name, text in cells(number, "markdown").items() if re.search(OF_ONE_LANE[what], text)]
    assert said == []


@pytest.mark.parametrize("number", CHAPTERS)
def test_a_chapter_asks_for_abilities_and_not_for_the_lane(number: str) -> None:
    asking = [name for name, text in cells(number, "code").items() if re.search(r"\.lane\b", text)]
    named = [name for name, text in cells(number, "code").items() if "lab.embedded" in text]
    assert asking == named == []


def test_the_chapter_names_what_its_release_does_with_kv_scales() -> None:
    """Chapter 02 teaches a calibration whose result the default release overwrites: the page says so, as the panel."""
    release = load_profile("p5").release
    assert not load_release(release).behaviour.fp8_kv_scales_used.value
    assert "1.0" in panel_markdown(load_profile("p5"), ["quantize"])
    told = " ".join(cells("02", "markdown").values())
    assert re.search(r"0\.12 overwrites them with 1\.0", told)


def test_the_article_is_quoted_and_not_retyped() -> None:
    code = "\n".join(cells("03", "code").values())
    assert "playbook.articles.quote" in code
    for line in quote("aws-build").text.splitlines():
        assert line.strip(" \\*") not in code


def test_the_planner_is_said_to_model_another_runtime() -> None:
    told = " ".join(cells("03", "markdown")["03-plan-a"].split())
    assert "another runtime" in told
    assert "PyTorch flow" in told


@pytest.mark.parametrize("name", profile_names())
def test_every_profile_of_a_gpu_can_be_planned_by_chapter_03(name: str) -> None:
    """hopper-tiny takes 512 tokens of prompt: the chapter's 1024 stopped it there, on an H200."""
    lab = SimpleNamespace(profile=load_profile(name))
    names = {"lab": lab, "playbook": playbook}
    exec(cells("03", "code")["03-plan-b"], names)
    assert names["planned"](concurrency=1)["output tokens/s"] > 0  # type: ignore[operator]


def test_a_claim_on_weight_outliers_has_its_source() -> None:
    told = [text for text in cells("02", "markdown").values() if re.search(r"weight \[?outliers\S* of its own", text)]
    assert len(told) == 1
    assert "https://arxiv.org/abs/2408.15301" in told[0]
