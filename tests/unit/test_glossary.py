"""The words of the course: one line each, a page, links at the first use in a chapter, and what lacks one."""

import json
import re
from pathlib import Path

import pytest

from checkout import ROOT
from course_exercises.glossary import PAGE, Term, first_use, glossary_page, terms, undefined
from course_exercises.glossary_links import link_chapter, linked, main
from course_runs.edition import source_hash
from each import each
from playbook.course.notebooks import Chapter, chapters, read
from playbook.course.translation import gaps, read_catalogue

COURSE = chapters(ROOT / "notebooks")
LINK = re.compile(rf"\[([^\]]*)\]\({re.escape(PAGE)}#([\w-]+)\)")
CACHE = Term(term="KV cache", says="Keys and values.", chapter="01", zh="KV 缓存")
RANK = Term(term="rank", also=("ranks",), says="A process.", chapter="03")


def test_a_term_stands_once_and_its_chapter_exists() -> None:
    spellings = [word for term in terms() for word in term.spellings]
    assert len(spellings) == len(set(spellings))
    assert {term.chapter for term in terms()} <= {item.number for item in COURSE}
    assert len({term.anchor for term in terms()}) == len(terms())


@each("term", terms())
def test_a_term_is_said_in_one_line(term: Term) -> None:
    assert term.says.endswith(".") and len(term.says.split()) <= 25


@each("term", terms())
def test_a_term_is_used_in_the_chapter_that_teaches_it(term: Term) -> None:
    cells = read(next(item for item in COURSE if item.number == term.chapter).path).cells
    text = "\n\n".join(cell["source"] for cell in cells)
    assert any(word.lower() in text.lower() for word in term.spellings)


@pytest.mark.parametrize("item", COURSE, ids=lambda item: item.name)
def test_each_link_of_a_chapter_leads_to_a_term(item: Chapter) -> None:
    anchors = {term.anchor: term for term in terms()}
    prose = [cell["source"] for cell in read(item.path).cells if cell["cell_type"] == "markdown"]
    found = [match for text in prose for match in LINK.findall(text)]
    assert [anchor for _, anchor in found if anchor not in anchors] == []
    assert [word for word, anchor in found if word not in anchors[anchor].spellings] == []
    assert len(found) == len({anchor for _, anchor in found}), "a term is linked once, at its first use"


def test_the_page_has_each_anchor_and_each_chapter() -> None:
    page = glossary_page({item.number: (item.title, f"../notebooks/{item.path.name}") for item in COURSE})
    headings = {line.removeprefix("## ") for line in page.splitlines() if line.startswith("## ")}
    assert headings == {term.term for term in terms()}
    assert all((ROOT / "docs" / path).exists() for path in re.findall(r"\]\((\.\./[^)]+)\)", page))


def test_the_first_use_is_one_in_a_sentence() -> None:
    text = "# The rank\n\n`rank` and [a rank](there), $rank$\n\n| rank |\n\nA frank word, then two ranks, one rank."
    begin, end = first_use(text, RANK.spellings) or (0, 0)
    assert (text[begin:end], text[:begin].endswith("then two ")) == ("ranks", True)
    assert first_use("<details><summary>Hint</summary>a rank</details>", RANK.spellings) is None
    assert first_use("一个 rank的进程，KV 缓存也在", ("KV 缓存",)) == (11, 16)


def test_a_term_is_linked_where_both_languages_have_it() -> None:
    english, other = linked(
        ["The KV cache.", "Its KV cache, a rank."], ["缓存。", "KV 缓存，一个 rank。"], [CACHE, RANK]
    )
    assert english[0] == "The KV cache."
    assert english[1] == f"Its [KV cache]({PAGE}#kv-cache), a [rank]({PAGE}#rank)."
    assert other == ["缓存。", f"[KV 缓存]({PAGE}#kv-cache)，一个 [rank]({PAGE}#rank)。"]
    assert linked(english, other, [CACHE, RANK]) == (english, other)


def test_links_are_set_into_a_chapter_and_its_catalogue_and_only_once(tmp_path: Path) -> None:
    notebook, catalogue = tmp_path / "99-a.ipynb", tmp_path / "99-a.yml"
    sources = {"a": "An engine has ranks.", "b": "Stale: a bubble."}
    cells = [{"cell_type": "markdown", "id": key, "metadata": {}, "source": [text]} for key, text in sources.items()]
    metadata = {"kernelspec": {"name": "python3", "display_name": "", "language": "python"}}
    notebook.write_text(json.dumps({"cells": cells, "metadata": metadata, "nbformat": 4, "nbformat_minor": 5}))
    hashes = {"a": source_hash(sources["a"])[:12], "b": "0" * 12}
    told = {"a": "引擎有 rank。\n\n第二段。", "b": "气泡。"}
    entries = (f'- cell: {key}\n  source: "{hashes[key]}"\n  text: |-\n' for key in told)
    texts = ("".join(f"    {line}\n" if line else "\n" for line in text.split("\n")) for text in told.values())
    catalogue.write_text("".join(a + b for a, b in zip(entries, texts, strict=True)))
    assert link_chapter(notebook, catalogue) == 3
    once = (notebook.read_text(), catalogue.read_text())
    assert [gap.kind for gap in gaps(read(notebook), read_catalogue(catalogue))] == ["stale"], "what was stale stays so"
    assert f"[rank]({PAGE}#rank)。" in read_catalogue(catalogue)["a"].text
    link_chapter(notebook, catalogue)
    assert (notebook.read_text(), catalogue.read_text()) == once


def test_the_tool_goes_over_the_chapters_that_are_named_and_advises(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "notebooks" / "zh").mkdir(parents=True)
    cell = {"cell_type": "markdown", "id": "a", "metadata": {}, "source": ["The QZX of an engine."]}
    for name in ("98-a", "99-b"):
        (tmp_path / "notebooks" / f"{name}.ipynb").write_text(json.dumps({"cells": [cell]}))
        entry = f'- cell: a\n  source: "{source_hash("The QZX of an engine.")[:12]}"\n  text: |-\n    引擎的 QZX。\n'
        (tmp_path / "notebooks" / "zh" / f"{name}.yml").write_text(entry)
    monkeypatch.chdir(tmp_path)
    main(["99"])
    assert capsys.readouterr().out == "99-b.ipynb: 1 links; without a line: QZX\n"


def test_an_acronym_without_a_line_is_named() -> None:
    assert undefined("The QZX of two GPUs, `ABC` and TTFT. QZX again.") == ["QZX"]
    assert undefined("KV and ranks", [CACHE]) == []
