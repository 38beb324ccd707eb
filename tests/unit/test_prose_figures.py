"""A figure in a sentence is decided in the code, or known to be no measurement; others are written by a cell."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from nbformat import NotebookNode
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook

from playbook.course.notebooks import chapters, read

KNOWN_FILE = Path(__file__).parents[1] / "fixtures" / "prose_figures.yml"
KNOWN: dict[str, list[dict[str, Any]]] = yaml.safe_load(KNOWN_FILE.read_text(encoding="utf-8"))
KINDS = {"definition", "published", "example", "planned"}
NUMBER = r"\d[\d,]*(?:\.\d+)?"
UNITS = r"percent|ms|µs|us|s|seconds?|minutes?|min|hours?|h|times|x|bytes?|tokens/s|steps|USD"
UNIT = rf"(?:%|[kMGT]i?B\b|(?:{UNITS})\b)"
WITH_UNIT = rf"(?<![\w.$/-])({NUMBER})(?= (?:(?:and|or|to) {NUMBER} )?{UNIT}|%|x\b)"
WITH_DECIMALS = r"(?<![\w.$/-])(\d+\.\d+)(?![\w.])"
FIGURE = re.compile(f"{WITH_UNIT}|{WITH_DECIMALS}")
NOT_PROSE = re.compile(r"```.*?```|`[^`]*`|\]\([^)]*\)|^\|.*$", re.DOTALL | re.MULTILINE)


def typed_figures(notebook: NotebookNode) -> Iterator[tuple[str, str]]:
    """(cell id, figure) of each number with a unit, or with decimals, that no code cell of the notebook holds."""
    code = "\n".join(cell.source for cell in notebook.cells if cell.cell_type == "code").replace("_", "")
    decided = set(re.findall(NUMBER, code))
    for cell in notebook.cells:
        if cell.cell_type == "markdown":
            for match in FIGURE.finditer(NOT_PROSE.sub(" ", cell.source)):
                figure = (match[1] or match[2]).replace(",", "")
                if figure not in decided:
                    yield cell.id, figure


@pytest.mark.parametrize("chapter", chapters(), ids=lambda chapter: chapter.number)
def test_no_sentence_holds_a_figure_of_its_own(chapter: Any) -> None:
    known = {(entry["cell"], str(entry["figure"])) for entry in KNOWN.get(chapter.number, [])}
    found = set(typed_figures(read(chapter.path)))
    assert sorted(found - known) == [], "write it by a cell, with lab.say, or say in prose_figures.yml what it is"
    assert sorted(known - found) == [], "no longer in the chapter: take it out of prose_figures.yml"


@pytest.mark.parametrize("number", sorted(KNOWN))
def test_each_known_figure_says_what_it_is(number: str) -> None:
    for entry in KNOWN[number]:
        assert entry["kind"] in KINDS
        assert entry["why"]


@pytest.mark.parametrize(
    ("text", "code", "found"),
    [
        ("It took 42 s here.", "", ["42"]),
        ("It grew from 6.6 to 9 % of a step.", "", ["6.6", "9"]),
        ("FP8 is 1.57x faster, or 12,204 tokens/s.", "", ["1.57", "12204"]),
        ("The limit is 4096 bytes, as set above.", "limit = 4_096", []),
        ("Chapter 05, TP 2, 70B and `wait 3 s` are no figures.\n\n| a | 3 s |\n|---|---|", "", []),
        ("Release 0.12.0 says so.", "", []),
    ],
)
def test_a_typed_figure_is_seen(text: str, code: str, found: list[str]) -> None:
    notebook = new_notebook(cells=[new_markdown_cell(text), new_code_cell(code)])  # type: ignore[no-untyped-call]
    assert [figure for _, figure in typed_figures(notebook)] == found
