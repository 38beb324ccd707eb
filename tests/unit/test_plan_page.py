"""docs/planner.md says what the planner does: its keys, its formulas, its assumptions, its errors, its example."""

import re
import shlex
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from statistics import fmean
from typing import Any

import pytest
import typer
from test_plan_published import BOUNDS, GROUPS, ROWS
from typer.testing import CliRunner

from benchmarks.planner import published
from serving_base.yaml_files import read_yaml
from serving_planner import formulas, parse_case, plan
from serving_planner.cli import plan_command
from serving_planner.cost_model.step import OPERATIONS
from serving_planner.plans import Plan

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "planner.md"
TEXT = PAGE.read_text(encoding="utf-8")
DATA = ROOT / "packages" / "serving_planner" / "data"
LEEWAY = 0.001  # the page gives a tenth of a per cent


def plain(text: str) -> str:
    """With single spaces, however it was wrapped."""
    return " ".join(text.split())


def anchors(text: str) -> set[str]:
    """Where a link within the page may lead: headings as GitHub names them, and explicit anchors."""
    headings = re.findall(r"^#+ (.+)$", re.sub(r"^```.*?^```", "", text, flags=re.MULTILINE | re.DOTALL), re.MULTILINE)
    slugs = {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}
    return slugs | set(re.findall(r'<a id="(\w+)"></a>', text))


def dead_links(text: str) -> list[str]:
    """Links to files or places that do not exist."""
    links = re.findall(r"\]\((?!https?:)([^)]+)\)", text)
    return [
        link
        for link in links
        if (link[1:] not in anchors(text) if link.startswith("#") else not (PAGE.parent / link.split("#")[0]).exists())
    ]


def without_formula(text: str) -> list[str]:
    """Keys of a plan whose paragraph does not exist or does not have the line of formulas.yml."""
    places = anchors(text)
    missing = [key for key in {*Plan.model_fields, *formulas()} if key not in places]
    for key, line in formulas().items():
        paragraph = re.search(rf'^- <a id="{key}"></a>.*?(?=^- |^#)', text, re.MULTILINE | re.DOTALL)
        if not paragraph or f"*{line}*." not in plain(paragraph[0]):
            missing.append(key)
    return missing


def table(text: str, first: str) -> list[list[str]]:
    """The cells of the table whose first column is called ``first``."""
    found = re.search(rf"^\| {re.escape(first)} \|.*\n\| ---.*\n((?:\|.*\n)+)", text, re.MULTILINE)
    assert found, f"no table of {first}"
    return [[cell.strip() for cell in row.strip("|").split("|")] for row in found[1].splitlines()]


def share(text: str) -> float | None:
    """9.0 % as 0.09; "none" as None."""
    return None if text == "none" else float(text.removesuffix(" %")) / 100


def flattered(stated: float | None, real: float) -> bool:
    """Whether the page states a smaller error than there is."""
    return stated is None or stated < real - LEEWAY


@cache
def errors() -> dict[str, list[float]]:
    """Of the headline rows, planned in closed form where they are throughputs: by group and by class."""
    found: dict[str, list[float]] = {}
    for item in published.compare(row for row in ROWS if row.headline):
        assert item.error is not None, item
        names = [name for name, member in GROUPS.items() if member(item.row)]
        for name in (*names, item.row.klass.removesuffix(" output_tokens_per_s")):
            found.setdefault(name, []).append(item.error)
    return found


def mape(values: Iterable[float]) -> float:
    return fmean(map(abs, values))


def test_every_key_has_its_place_and_its_formula() -> None:
    assert without_formula(TEXT) == []


def test_a_key_without_its_place_or_with_another_formula_is_noticed() -> None:
    assert without_formula(TEXT.replace('<a id="floor">', '<a id="flor">')) == ["floor", "floor"]
    assert without_formula(TEXT.replace("output_tokens_per_s / GPUs*", "output_tokens_per_s / replicas*")) == [
        "output_tokens_per_s_per_gpu"
    ]


def test_links_lead_to_files_and_to_places_of_the_page() -> None:
    assert dead_links(TEXT) == []
    assert dead_links("# A page\n[a](#a-page) [b](#b) [c](nothing.md) [d](releases.md#flags)") == ["#b", "nothing.md"]


def test_files_that_are_only_named_exist() -> None:
    names = set(re.findall(r"`(?:python )?((?:benchmarks|playbook|tests|docs)/[\w./]+)", TEXT))
    assert names and [name for name in names if not (ROOT / name).exists()] == []


def test_every_operation_is_explained() -> None:
    explained = {name for row in table(TEXT, "operation") for name in re.findall(r"`(\w+)`", row[0])}
    assert set(OPERATIONS) == explained


def test_what_is_assumed_is_what_the_data_hold() -> None:
    rows = table(TEXT, "file: key")
    assert len(rows) > 10
    for place, value, reason in rows:
        file, path = place.split(": ")
        found: Any = read_yaml(DATA / file)
        for key in path.split("."):
            found = found[key]
        assert float(value) == found, place
        assert reason


def test_the_bounds_are_those_of_the_test_and_no_error_is_above_its_bound() -> None:
    rows = table(TEXT, "group")
    assert {row[0]: share(row[3]) for row in rows} == BOUNDS
    for name, count, stated, bound, _ in rows:
        assert int(count) == sum(map(GROUPS[name], ROWS)), name
        error, limit = share(stated), share(bound)
        assert error is not None and (limit is None or error <= limit), name


def test_the_stated_errors_are_not_smaller_than_the_real_ones() -> None:
    stated = {row[0]: share(row[2]) for row in table(TEXT, "group")}
    classes = table(TEXT, "class")
    stated |= {row[0]: share(row[3]) for row in classes}
    assert {row[0]: int(row[1]) for row in classes} == {row[0]: len(errors()[row[0]]) for row in classes}
    throughput = {row.klass for row in ROWS if row.headline and row.metric in published.THROUGHPUT}
    assert {name.removesuffix(" output_tokens_per_s") for name in throughput} == {row[0] for row in classes}
    assert [name for name, error in stated.items() if flattered(error, mape(errors()[name]))] == []


def test_a_flattering_error_is_noticed() -> None:
    assert flattered(share("8.9 %"), 0.0913)
    assert not flattered(share("9.1 %"), 0.0913)
    assert share("none") is None and share("10.5 %") == pytest.approx(0.105)


def examples() -> list[tuple[str, list[str]]]:
    """(command, lines of its output) of every console block."""
    blocks = re.findall(r"^```console\n\$ playbook plan ([^\n]*)\n(.*?)^```", TEXT, re.MULTILINE | re.DOTALL)
    return [(command, output.splitlines()) for command, output in blocks]


def unlike(shown: Iterable[str], printed: str) -> list[str]:
    """Lines that were not printed, in order; one that ends in "..." is the start of a line."""
    left, missing = iter(printed.splitlines()), []
    for line in filter(None, shown):
        start = line.removesuffix("...")
        if not any(other == line or (start != line and other.startswith(start)) for other in left):
            missing.append(line)
            left = iter(printed.splitlines())
    return missing


@pytest.mark.parametrize(("command", "shown"), examples())
def test_the_examples_print_what_the_page_shows(command: str, shown: list[str]) -> None:
    app = typer.Typer()
    app.command()(plan_command)
    assert unlike(shown, CliRunner().invoke(app, shlex.split(command)).stdout) == []


def test_an_example_that_prints_something_else_is_noticed() -> None:
    assert len(examples()) == 2
    assert unlike(["a 1", "b 2 ..."], "a 1\nxx\nb 2 and 3\n") == []
    assert unlike(["a 1", "b 2"], "a 1\nb 3\n") == ["b 2"]


def test_the_case_of_a_plan_gives_the_same_plan() -> None:
    first = plan(model="llama3-8b", gpu="h100-sxm", isl=128, osl=16, concurrency=8)
    assert plan(parse_case(first.model_dump(mode="json")["case"])) == first
