"""The course as static pages: every chapter and page is there, with its outputs, and nothing comes from a network."""

import json
import os
import re
import subprocess
import sys
from html import unescape
from pathlib import Path

import pytest

from checkout import ROOT
from playbook import bootstrap
from playbook.course.notebooks import chapters

HERE = bootstrap.environments()["book"].python.is_file()
pytestmark = pytest.mark.skipif(
    not HERE and not os.environ.get("CI"), reason="the book's environment: python3 playbook/bootstrap.py --envs book"
)
EDITION = "h200-20261124"
"""The others' pages are made as this one's are: they would take two thirds of the time."""
LOADED = re.compile(
    r"""<(?:script|img|iframe)[^>]+src="([^"]+)|<link[^>]+rel="(?:stylesheet|preload)"[^>]+href="([^"]+)"""
)


@pytest.fixture(scope="module")
def book(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("book") / "pages"
    argv = [sys.executable, "-m", "playbook", "book", "--recorded", EDITION, "--out", str(folder)]
    done = subprocess.run(argv, capture_output=True, text=True, cwd=ROOT, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return folder


def test_every_chapter_is_a_page_with_its_outputs(book: Path) -> None:
    front = (book / "docs" / "book" / "index.html").read_text()
    for chapter in chapters(ROOT / "notebooks"):
        page = (book / "notebooks" / f"{chapter.name}.html").read_text()
        assert chapter.title in unescape(page).replace("’", "'") and "cell_output" in page
        assert f"notebooks/{chapter.name}.html" in front
    assert (book / "index.html").read_text().count("docs/book/index.html") == 1


def test_every_page_of_the_docs_is_in_the_book(book: Path) -> None:
    front = (book / "docs" / "book" / "index.html").read_text()
    assert [page.name for page in (ROOT / "docs").glob("*.md") if f"{page.stem}.html" not in front] == []


def test_no_page_loads_anything_from_a_network(book: Path) -> None:
    pages = list(book.rglob("*.html"))
    loaded = {word for page in pages for found in LOADED.findall(page.read_text()) for word in found if word}
    assert any(word.endswith(".js") or ".js?" in word for word in loaded)
    assert sorted(word for word in loaded if re.match(r"(?:https?:)?//", word)) == []


def test_a_table_that_a_cell_printed_is_a_table(book: Path) -> None:
    pages = list((book / "notebooks").glob("*.html"))
    assert [page.name for page in pages if re.search(r"<p>\|", page.read_text())] == []
    assert (book / "notebooks" / "10-choose-and-clean-up.html").read_text().count("<table") > 10


def test_the_link_to_a_recorded_chapter_leads_to_its_page(book: Path) -> None:
    found = {
        page.name: re.findall(rf'href="(\.\./recorded/{EDITION}/[^"#]+)', page.read_text())
        for page in (book / "notebooks").glob("*.html")
    }
    for name, targets in found.items():
        for target in targets:
            assert target.endswith(".html") and (book / "notebooks" / target).is_file(), (name, target)
    assert found["01-llama3-setup.html"]


def test_the_other_editions_are_left_out_where_one_is_named(book: Path) -> None:
    assert [path.name for path in (book / "recorded").iterdir() if path.is_dir()] == [EDITION]


def test_an_edition_that_is_not_there_is_refused_with_those_that_are() -> None:
    argv = [sys.executable, "-m", "playbook", "book", "--recorded", "h300"]
    done = subprocess.run(argv, capture_output=True, text=True, cwd=ROOT, check=False)
    assert done.returncode == 2 and EDITION in done.stderr, done.stderr


def test_the_search_finds_a_chapter_and_not_its_recordings(book: Path) -> None:
    text = (book / "searchindex.js").read_text(encoding="utf-8")
    index = json.loads(text[text.index("{") : text.rindex("}") + 1])
    pages = [index[kind].get("smoothquant", []) for kind in ("terms", "titleterms")]
    found = {index["docnames"][number] for numbers in pages for number in numbers}
    assert "notebooks/12-quantization-laboratory" in found, found
    assert [name for name in found if name.startswith("recorded/")] == []


def test_the_formulas_font_is_in_the_book(book: Path) -> None:
    page = (book / "notebooks" / "11-attention-and-kernels.html").read_text()
    (font,) = re.findall(r'"webFont": "([^"]+)"', page)
    assert (book / "_static" / "jax" / "output" / "HTML-CSS" / "fonts" / font / "fontdata.js").is_file()


def test_every_figure_says_what_it_shows(book: Path) -> None:
    for chapter in chapters(ROOT / "notebooks"):
        cells = json.loads(chapter.path.read_text(encoding="utf-8"))["cells"]
        found = [output["metadata"]["image/png"]["alt"] for cell in cells for output in cell.get("outputs", [])
                 if "image/png" in output.get("data", {})]  # fmt: skip
        page = (book / "notebooks" / f"{chapter.name}.html").read_text()
        assert [unescape(text) for text in re.findall(r'<img alt="([^"]*)"', page)] == found
