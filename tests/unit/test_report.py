"""The report is one page that stands alone and shows where each number comes from."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from playbook.cli.app import app
from playbook.course import runner
from playbook.course.failures import Failure
from playbook.course.report import RunFacts, environment, format_value, write_report
from playbook.course.runner import ChapterResult, RunSpec

FACTS = RunFacts("2026-01-02T03:04:05+00:00", "local", "embedded", "0.12.0", "/w", {"calib_samples": "64"})


@pytest.fixture
def page(tmp_path: Path) -> str:
    result = {"name": "fp8_perplexity", "value": 43.21, "unit": "", "origin": "measured here"}
    results = [
        ChapterResult("02-fp8", "Quantize", "ok", 12.34, key_results=[result], notebook="02-fp8.ipynb"),
        ChapterResult("03-build", "Build", "failed", 1.0, Failure("error", "what <b>", "why", "do & this", 4)),
        ChapterResult("04-run", "Run"),
    ]
    return write_report(tmp_path, FACTS, results).read_text()


def test_chapters_times_and_results_with_their_origin_are_shown(page: str) -> None:
    for text in ("1 of 3 chapters passed", "12.3 s", "not run", "fp8 perplexity", "43.21", "measured here"):
        assert text in page
    assert '<a href="02-fp8.ipynb">notebook</a>' in page
    assert "calib_samples" in page


def test_a_failure_is_told_and_escaped(page: str) -> None:
    assert "03-build: error in code cell 4" in page
    assert "what &lt;b&gt;" in page
    assert "do &amp; this" in page


def test_the_page_needs_nothing_from_elsewhere(page: str) -> None:
    assert "http" not in page
    assert "<script" not in page
    assert "src=" not in page


def test_the_environment_names_the_machine_and_the_versions() -> None:
    facts = environment()
    assert {"system", "processor", "cores", "memory", "python", "papermill"} <= facts.keys()
    assert int(facts["cores"]) >= 1


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (1234567, "1\u202f234\u202f567"),
        (0.12345, "0.1235"),
        (43.2, "43.2"),
        (12345.6, "12\u202f346"),
        ("exact", "exact"),
    ],
)
def test_numbers_are_readable(value: object, text: str) -> None:
    assert format_value(value) == text


def test_what_a_run_was_asked_is_on_disk_before_its_first_chapter(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A machine that is lost in the middle leaves the facts of its run: results.json alone does not name them."""
    seen = []

    def look(spec: RunSpec, *_: object) -> None:
        seen.append(json.loads((spec.folder / "run.json").read_text())["profile"])

    monkeypatch.setattr(runner, "run", look)
    assert CliRunner().invoke(app, ["run", "00", "--out", str(tmp_path / "run")]).exit_code == 0
    assert seen == ["local"]
