"""Two runs side by side: what they differ in, and which ratios are refused, on folders as the runner writes them."""

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from course_runs.comparison import compare, differences, page, ratio_words, shown
from course_runs.runs import read_run
from playbook.cli.app import app
from playbook.course import report
from playbook.course.report import RunFacts, write_report
from playbook.course.runner import ChapterResult, write_results
from playbook.profile import load_profile
from serving_base.errors import UsageError

HERE = "measured here"


def result(name: str, value: float | str, unit: str = "tokens/s", origin: str = HERE) -> dict[str, Any]:
    return {"name": name, "value": value, "unit": unit, "origin": origin}


def run_folder(
    folder: Path,
    *results: dict[str, Any],
    profile: str = "local",
    parameters: dict[str, str] | None = None,
    **choices: Any,
) -> Path:
    """A run of two chapters, the second of which failed."""
    active = load_profile(profile)
    facts = RunFacts(
        "2026-11-23T10:15:00+00:00", active.name, active.lane, active.release, "w", parameters or {},
        active.model_dump(mode="json") | choices,
    )  # fmt: skip
    chapters = [
        ChapterResult("08-benchmark", "Benchmark", "ok", 61.5, key_results=list(results)),
        ChapterResult("09-kernels", "Kernels", "failed", 3.0),
    ]
    folder.mkdir()
    write_results(folder, chapters)
    write_report(folder, facts, chapters)
    return folder


def test_a_ratio_is_of_the_second_over_the_first(tmp_path: Path) -> None:
    a = read_run(run_folder(tmp_path / "a", result("rate", 200), result("ttft", 40.0, "ms")))
    b = read_run(run_folder(tmp_path / "b", result("rate", 300), result("ttft", 10.0, "ms"), qformat="full_prec"))
    found = compare(a, b)
    assert [(each.name, each.a, each.b, each.unlike) for each in found.differences] == [
        ("format", "fp8", "full_prec", False)
    ]
    assert [(row.name, row.ratio) for row in found.rows] == [("rate", (1.5, 1.5, 1.5)), ("ttft", (0.25, 0.25, 0.25))]
    assert found.seconds == (("08-benchmark", "61.5 s", "61.5 s"), ("09-kernels", "failed", "failed"))


@pytest.mark.parametrize(
    ("condition", "choices"),
    [
        ("model", {"model": "llama-3-8b-instruct"}),
        ("weights", {"weights": "random"}),
        ("load of chapter 08", {"benchmark": {"isl": [1, 2]}}),
    ],
)
def test_measured_results_under_unlike_conditions_have_no_ratio(
    tmp_path: Path, condition: str, choices: dict[str, Any]
) -> None:
    both = result("rate", 200), result("bytes", 4, "GB", "planned (formula)")
    found = compare(read_run(run_folder(tmp_path / "a", *both)), read_run(run_folder(tmp_path / "b", *both, **choices)))
    assert [(each.name, each.unlike) for each in found.differences] == [(condition, True)]
    rows = {row.name: row for row in found.rows}
    assert (rows["rate"].ratio, rows["rate"].why) == (None, f"unlike: {condition}")
    assert rows["bytes"].ratio == (1.0, 1.0, 1.0)


@pytest.mark.parametrize(
    ("a", "b", "why"),
    [
        (result("x", 1), None, "only in A"),
        (None, result("x", 1), "only in B"),
        (result("x", 1, "ms"), result("x", 1, "s"), "units differ: ms, s"),
        (result("x", "Triton"), result("x", "LMI"), "words"),
        (result("x", "Triton"), result("x", "Triton"), "equal"),
        (result("x", 1), result("x", 1, origin="planned"), "origins differ: measured here; planned"),
        (result("x", 0), result("x", 3), "A is 0"),
    ],
)
def test_why_there_is_no_ratio(tmp_path: Path, a: dict[str, Any] | None, b: dict[str, Any] | None, why: str) -> None:
    runs = [read_run(run_folder(tmp_path / name, *([found] if found else []))) for name, found in (("a", a), ("b", b))]
    (row,) = compare(*runs).rows
    assert (row.ratio, row.why) == (None, why)


def test_nothing_of_b_is_a_ratio_of_nothing(tmp_path: Path) -> None:
    a, b = (read_run(run_folder(tmp_path / name, result("x", value))) for name, value in (("a", 3), ("b", 0)))
    assert compare(a, b).rows[0].ratio == (0.0, 0.0, 0.0)


def test_repeated_runs_give_the_spread(tmp_path: Path) -> None:
    a, a2, b = (
        read_run(run_folder(tmp_path / name, result("rate", value)))
        for name, value in (("a", 100), ("a2", 125), ("b", 250))
    )
    (row,) = compare(a, b, again_a=[a2]).rows
    assert (row.a, row.b, row.ratio) == (100, 250, (2.0, 2.5, 2.5))
    assert ratio_words(row.ratio) == "2.5 (2 to 2.5)"


def test_a_repetition_must_be_one(tmp_path: Path) -> None:
    a, b = (read_run(run_folder(tmp_path / name)) for name in "ab")
    other = read_run(run_folder(tmp_path / "c", parameters={"streams": "4"}))
    with pytest.raises(UsageError, match="does not repeat") as told:
        compare(a, b, again_b=[other])
    assert told.value.why == "they differ in: parameters"
    with pytest.raises(UsageError, match="stands on both sides"):
        compare(a, b, again_b=[a])
    with pytest.raises(UsageError, match="stands on both sides"):
        compare(a, a)


def test_a_run_says_which_playbook_made_it(tmp_path: Path) -> None:
    facts = json.loads((run_folder(tmp_path / "a") / "run.json").read_text())
    assert facts["playbook"] == report.playbook_version()
    assert facts["playbook"]["version"].count(".") == 2
    assert facts["choices"]["model"] == "tiny"
    assert facts["environment"]["gpus"]


def test_a_run_of_an_older_playbook_is_read_and_says_what_it_lacks(tmp_path: Path) -> None:
    a, b = (run_folder(tmp_path / name, result("rate", 1)) for name in "ab")
    facts = json.loads((a / "run.json").read_text())
    del facts["choices"], facts["playbook"]
    (a / "run.json").write_text(json.dumps(facts))
    found = {each.name: each.a for each in differences(read_run(a), read_run(b))}
    assert found["model"] == found["playbook"] == "not written down"
    assert compare(read_run(a), read_run(b)).rows[0].why.startswith("unlike: model")


def test_what_is_no_run_is_refused_with_the_next_step(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="is not a folder"):
        read_run(tmp_path / "nowhere")
    run = run_folder(tmp_path / "20261123-101500")
    with pytest.raises(UsageError, match="holds no finished run") as told:
        read_run(tmp_path)
    assert "20261123-101500" in told.value.fix
    (run / "results.json").write_text("{")
    with pytest.raises(UsageError, match="is not JSON"):
        read_run(run)
    (run / "results.json").write_text('[{"chapter": "08"}]')
    with pytest.raises(UsageError, match="does not hold a run's files") as told:
        read_run(run)
    (run / "results.json").unlink()
    with pytest.raises(UsageError, match="holds no finished run"):
        read_run(run)


def test_the_command_prints_both_and_writes_the_page(tmp_path: Path) -> None:
    a = run_folder(tmp_path / "a", result("rate", 12345))
    b = run_folder(tmp_path / "b", result("rate", 24690), qformat="full_prec", weights="random")
    target = tmp_path / "pages" / "c.html"
    done = CliRunner().invoke(app, ["compare", str(a), str(b), "--html", str(target)])
    assert done.exit_code == 0, done.output
    assert "weights (unlike)" in done.output
    written = target.read_text()
    for words in ("12,345", "24,690", "full_prec", "unlike: weights", "says nothing"):
        assert words in written
    assert "http" not in written


def test_a_page_shows_what_it_is_given_as_text(tmp_path: Path) -> None:
    a, b = (read_run(run_folder(tmp_path / name, result("<b>x</b>", "<script>"))) for name in "ab")
    assert "<script>" not in page(compare(a, b))
    assert "&lt;script&gt;" in page(compare(a, b))


def test_values_have_four_digits() -> None:
    assert [shown(value) for value in (None, "LMI", 6280, 0.123456, 23456.7)] == [
        "",
        "LMI",
        "6,280",
        "0.1235",
        "23,457",
    ]
