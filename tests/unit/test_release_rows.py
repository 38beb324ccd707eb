"""Rows for chapters out of the releases' data: queues of the templates, ways to run an engine, coverage of Llama-3."""

import pytest

from trtllm_check.flows.offers import llama_coverage, ways_to_run
from trtllm_check.releases import load_release
from trtllm_check.releases.load import known_releases
from trtllm_check.releases.templates import queue_rows, release_templates, template_releases


def spans(rows: list[dict[str, str]], names: tuple[str, ...] | list[str]) -> list[str]:
    """Every release that the rows cover, in their order."""
    covered: list[str] = []
    for row in rows:
        first, _, last = row["releases"].partition(" to ")
        covered += names[names.index(first) : names.index(last or first) + 1]
    return covered


def test_queues_cover_every_release_with_templates_once() -> None:
    names = list(template_releases())
    assert spans(queue_rows(), names) == names


@pytest.mark.parametrize(("release", "queue"), [("0.11.0", "delayed"), ("0.12.0", "limited")])
def test_the_limit_of_the_engines_queue_came_with_0_12(release: str, queue: str) -> None:
    assert release_templates(release).models["tensorrt_llm"].queue == queue
    names = list(template_releases())
    (row,) = (row for row in queue_rows() if release in spans([row], names))
    assert row["tensorrt_llm"] == queue
    assert row["tensorrt_llm_bls"] == "none"


def test_coverage_says_what_the_release_says() -> None:
    names = list(known_releases())
    rows = llama_coverage()
    assert spans(rows, names) == names
    for row in rows:
        for name in spans([row], names):
            support = load_release(name).models["llama-3.1"]
            assert row["llama-3.1"].startswith("yes" if support.supported else "no")
            assert support.note in row["llama-3.1"]


def test_one_way_goes_on_after_the_engines() -> None:
    assert [way["way"] for way in ways_to_run() if "to " not in way["releases"]] == ["PyTorch flow (no engine)"]
