"""The course in another language: what is missing, stale or broken is found, and code and outputs stay one."""

from pathlib import Path

import pytest
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook
from typer.testing import CliRunner

from checkout import ROOT
from playbook.cli.app import app
from playbook.course.notebooks import chapters, read
from playbook.course.translation import Translated, gaps, languages, read_catalogue, shortened, spans, translated
from serving_base.errors import UsageError

TEXT = "## Open\n\nRun `lab.card()`, see [chapter 02](02-b.ipynb) and [docs](../docs/planner.md#roof)."
CHINESE = "## 打开\n\n运行 `lab.card()`，参见[第 02 章](02-b.ipynb)和[文档](../docs/planner.md#roof)。"


def book() -> object:
    cells = [new_markdown_cell(TEXT, id="01-a"), new_code_cell("lab.card()", id="01-b")]  # type: ignore[no-untyped-call]
    return new_notebook(cells=cells)  # type: ignore[no-untyped-call]


def entry(**changes: str) -> dict[str, Translated]:
    made = Translated(**({"cell": "01-a", "source": shortened(TEXT), "text": CHINESE} | changes))
    return {made.cell: made}


@pytest.mark.parametrize("language", languages(ROOT / "notebooks"))
def test_every_catalogue_is_that_of_todays_chapters(language: str) -> None:
    for chapter in chapters(ROOT / "notebooks"):
        catalogue = read_catalogue(ROOT / "notebooks" / language / f"{chapter.name}.yml")
        if catalogue:
            found = gaps(read(chapter.path), catalogue)
            assert found == [], f"{chapter.name}: playbook build --lang {language} --check"


@pytest.mark.parametrize(
    ("catalogue", "kinds"),
    [
        (entry(), []),
        ({}, ["not translated"]),
        (entry(source="0" * 12), ["stale"]),
        (entry(cell="01-z"), ["not translated", "without a cell"]),
        (entry(text=CHINESE.replace("lab.card()", "lab.map()")), ["code differs"]),
        (entry(text=CHINESE.replace("02-b.ipynb", "03-b.ipynb")), ["code differs"]),
    ],
)
def test_gaps(catalogue: dict[str, Translated], kinds: list[str]) -> None:
    assert [gap.kind for gap in gaps(book(), catalogue)] == kinds  # type: ignore[arg-type]


def test_a_copy_has_the_prose_of_the_catalogue_and_links_that_hold() -> None:
    made = translated(book(), entry(), steps=1)  # type: ignore[arg-type]
    assert made.cells[0].source == CHINESE.replace("../docs", "../../docs")
    assert made.cells[1].source == "lab.card()"
    stale = translated(book(), entry(source="0" * 12))  # type: ignore[arg-type]
    assert stale.cells[0].source == TEXT


def test_what_no_translation_may_change() -> None:
    assert spans("a `b` c\n```\nd `e`\n```\n[f](g)") == ["```\nd `e`\n```", "`b`", "g"]


def test_what_is_no_catalogue_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.yml"
    path.write_text("- cell: 01-a\n")
    with pytest.raises(UsageError, match="is no catalogue"):
        read_catalogue(path)


def test_an_unknown_language_is_refused() -> None:
    done = CliRunner().invoke(app, ["build", "--lang", "xx"])
    assert done.exit_code == 2 and "no catalogue for 'xx'" in done.output
