"""Slides: what the rules choose of a notebook, and that nothing of its prose or its figures is lost."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from nbformat import NotebookNode
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook, new_output

from course_slides.heights import PAGE_HEIGHT, fits, height, picture_height, png_size
from course_slides.pages import front, page, reachable, shown_printed
from course_slides.slides import PRINTED_LINES, Figure, Slide, TableOrText, shown_sentences, slides
from playbook.course.notebooks import Chapter, chapters, read
from playbook.course.translation import read_catalogue, translated

HEAD = "iVBORw0KGgoAAAANSUhEUgAAA4QAAADwCAYAAABv"
"""The head of a PNG of 900 by 240."""
COURSE = chapters(Path(__file__).parents[2] / "notebooks")


def notebook(*cells: Any) -> NotebookNode:
    made: NotebookNode = new_notebook(cells=list(cells))  # type: ignore[no-untyped-call]
    return made


def prose(text: str) -> Any:
    return new_markdown_cell(text)  # type: ignore[no-untyped-call]


def code(source: str, *outputs: Any, tags: tuple[str, ...] = ()) -> Any:
    return new_code_cell(source, outputs=list(outputs), metadata={"tags": list(tags)})  # type: ignore[no-untyped-call]


def shows(data: Mapping[str, str], metadata: Mapping[str, Any] | None = None) -> Any:
    return new_output("display_data", data=dict(data), metadata=dict(metadata or {}))  # type: ignore[no-untyped-call]


def prints(text: str) -> Any:
    return new_output("stream", name="stdout", text=text)  # type: ignore[no-untyped-call]


def test_a_heading_and_each_prose_cell_under_it_begin_a_slide() -> None:
    found = slides(
        notebook(prose("# 01 · Title\n\nA first."), prose("## Part\n\nOne. Two."), prose("More. Even more."))
    )
    assert [(slide.level, slide.heading, slide.sentences) for slide in found] == [
        (1, "01 · Title", ["A first."]),
        (2, "Part", ["One."]),
        (0, "Part", ["More."]),
    ]
    assert [slide.notes for slide in found] == [["A first."], ["One. Two."], ["More. Even more."]]


def test_prose_after_an_exercise_goes_on_under_the_part_and_not_under_the_exercise() -> None:
    found = slides(notebook(prose("## Part"), prose("### Exercise 1\n\nDo."), prose("Now go on.")))
    assert [slide.heading for slide in found] == ["Part", "Exercise 1", "Part"]


@pytest.mark.parametrize(
    ("text", "sentences"),
    [
        ("One is 1.5 times two. And more.", ["One is 1.5 times two."]),
        ("Is it? It is.", ["Is it?"]),
        ("A name `a. b` stays whole. More.", ["A name `a. b` stays whole."]),
        ("Read [a. b](c.md) now. More.", ["Read [a. b](c.md) now."]),
        ("First. Second. **Guess first:** how many?", ["First.", "**Guess first:** how many?"]),
        (
            "First. **Guess first:** it halves. How many? Then more.",
            ["First.", "**Guess first:** it halves.", "How many?"],
        ),
        ("一句话。第二句。**先猜:**多少?", ["一句话。"]),
        ("- a list\n- alone", []),
        ("$$y = x$$\n\nThen a sentence. Another.", ["Then a sentence."]),
        ("<details><summary>Hint</summary>No. Yes.</details>\n\nA task. More.", ["A task."]),
        ("two lines\nof one sentence. More.", ["two lines of one sentence."]),
    ],
)
def test_a_slide_shows_the_first_sentence_and_those_in_bold(text: str, sentences: list[str]) -> None:
    assert shown_sentences(text)[: len(sentences) or None] == sentences


def test_a_part_without_a_sentence_shows_its_table_and_a_list_is_shown_whole() -> None:
    table, listed = slides(
        notebook(prose("## If\n\n| a | b |\n|---|---|\n| 1 | 2 |\n\n## Now\n\nYou can.\n\n- one\n  more\n- two"))
    )
    assert table.sentences == ["| a | b |\n|---|---|\n| 1 | 2 |"]
    assert listed.sentences == ["You can."] and listed.items == ["one more", "two"]


def test_a_heading_in_a_fence_is_none() -> None:
    (only,) = slides(notebook(prose("## Part\n\nA file.\n\n```\n# a comment\n```")))
    assert only.notes == ["A file.\n\n```\n# a comment\n```"] and only.sentences == ["A file."]


def test_outputs_go_to_the_slide_of_the_prose_above() -> None:
    (slide,) = slides(
        notebook(
            prose("## Part\n\nA claim."),
            code("x: int = 1", tags=("parameters",)),
            code(
                "plot()",
                shows({"image/png": "AAAA\n", "text/plain": "<Figure>"}, {"image/png": {"alt": "what it shows"}}),
                shows({"text/html": "<style>td {}</style><table></table>", "text/plain": "a"}),
                shows({"text/markdown": "It **is** so.", "text/plain": "It is so."}),
                shows({"text/markdown": "a\n```\nb\n```"}),
                shows({"application/vnd.playbook.result+json": "{}", "text/plain": "ratio = 2 x [measured here]"}),
                prints("✓ it holds\n✗ NOT SOLVED YET: empty\nplain words\n"),
            ),
        )
    )
    assert slide.pictures == [
        Figure("AAAA", "what it shows"),
        TableOrText("<table></table>"),
        TableOrText("a\n```\nb\n```", markdown=True),
    ]
    assert slide.findings == ["It **is** so."]
    assert slide.lines == ["ratio = 2 x [measured here]", "✓ it holds"]
    assert (slide.printed, slide.code) == ("plain words", ["plot()"])


def test_an_exercise_shows_its_whole_task_and_tells_the_speaker_what_goes_wrong() -> None:
    cells = prose("### Exercise\n\nFirst. Second.\n\nThird."), code("lab.exercise(\n    '02-1', 3)")
    (slide,) = slides(notebook(*cells), {"02-1": "often wrong", "02-2": "another"})
    assert slide.sentences == ["First. Second.", "Third."]
    assert slide.notes == ["First. Second.\n\nThird.", "often wrong"]


def test_printed_text_is_shown_where_nothing_better_is_and_then_cut() -> None:
    long = Slide("a", 2, printed="\n".join(map(str, range(PRINTED_LINES + 3))))
    assert shown_printed(long).splitlines()[-2:] == [str(PRINTED_LINES - 1), "…"]
    assert shown_printed(Slide("a", 2, printed="x", findings=["y"])) == ""
    assert shown_printed(Slide("a", 2, printed="x")) == "x"


def test_what_answers_a_guess_comes_with_a_step_of_its_own() -> None:
    told, asking, title = (
        Slide("a", 2, ["A."]),
        Slide("a", 2, ["A.", "**Guess:** b?"]),
        Slide("a", 1, ["**You** will."]),
    )
    assert [slide.asks for slide in (told, asking, title)] == [False, True, False]
    assert 'class="fragment"' in page("a", [asking]) and "fragment" not in page("a", [told, title])


def test_a_link_leads_to_a_page_or_to_other_slides_and_else_only_its_words_stay() -> None:
    text = "[a](https://a.b/c), [b](02-fp8.ipynb#part), [c](../docs/x.md), [d](../../notebooks/03-e.ipynb)"
    assert reachable(text) == "[a](https://a.b/c), [b](02-fp8.html), c, [d](03-e.html)"


def test_the_page_escapes_what_a_cell_printed_and_names_no_address_to_load_from() -> None:
    slide = Slide("A < B", 2, sentences=["**See** `x < y`."], lines=["<b>"], pictures=[Figure(HEAD, 'a "b"')])
    text = page("A < B", [slide])
    assert "A &lt; B" in text and "&lt;b&gt;" in text and 'alt="a &#34;b&#34;"' in text
    assert "<strong>See</strong>" in text and "://" not in text
    assert '<a href="02-a.html">02 &amp;</a>' in front("Slides", [("02 &", "02-a.html")])


@pytest.mark.parametrize("item", COURSE, ids=lambda item: item.name)
def test_every_chapter_gives_slides_with_all_its_prose_and_figures(item: Chapter) -> None:
    source = read(item.path)
    found = slides(source)
    assert found[0].level == 1 and item.title in found[0].heading
    assert not [slide.heading for slide in found if not slide.sentences and not slide.items]
    told = [("#" * slide.level + slide.heading if slide.level else "") + "".join(slide.notes) for slide in found]
    assert "".join("".join(told).split()) == "".join(
        "".join(cell.source.split()) for cell in source.cells if cell.cell_type == "markdown"
    )
    figures = [
        output for cell in source.cells for output in cell.get("outputs", ()) if "image/png" in output.get("data", {})
    ]
    assert sum(isinstance(one, Figure) for slide in found for one in slide.pictures) == len(figures)


def a_slide(*, items: int = 0, rows: int = 0, lines: int = 0) -> Slide:
    table = TableOrText("<tr></tr>" * rows)
    listed = ["An item of a list that is about as long as this one, which is one line."] * items
    return Slide(
        "Part", 2, sentences=["One."], items=listed, pictures=[table] * bool(rows), lines=["✓ a check"] * lines
    )


@pytest.mark.parametrize(("slide", "on_it"), [(a_slide(items=3, rows=8), 1), (a_slide(items=9, rows=9), 0)])
def test_a_table_that_does_not_fit_stands_below(slide: Slide, on_it: int) -> None:
    first, *below = page("Title", [slide]).split("<section>\n<h2")[1:]
    assert fits(slide) == bool(on_it)
    assert (first.count("<tr>"), [part.count("<tr>") for part in below]) == ((8, []) if on_it else (0, [9]))


def test_a_figure_keeps_its_proportions_and_a_long_table_scrolls_by_itself() -> None:
    assert png_size(HEAD) == (900, 240)
    assert 270 < picture_height(Figure(HEAD, "")) < 300
    assert picture_height(TableOrText("<tr>" * 50)) == picture_height(TableOrText("<tr>" * 500))


def test_chinese_letters_take_the_room_of_two() -> None:
    short, long = (Slide("Part", 2, sentences=[letter * 80]) for letter in "a缓")
    assert height(long) > height(short)


@pytest.mark.parametrize("language", ["", "zh"])
@pytest.mark.parametrize("chapter", COURSE, ids=lambda chapter: chapter.name[:2])
def test_no_slide_of_the_course_is_higher_than_the_page(chapter: Chapter, language: str) -> None:
    notebook = read(chapter.path)
    if language:
        notebook = translated(notebook, read_catalogue(chapter.path.parent / language / f"{chapter.name}.yml"))
    high = {}
    for number, slide in enumerate(slides(notebook), 1):
        on_it = height(slide) - (0 if fits(slide) else sum(map(picture_height, slide.pictures[:1])))
        if on_it > PAGE_HEIGHT:
            high[number] = f"{slide.heading}: about {on_it:.0f} px"
    assert high == {}
