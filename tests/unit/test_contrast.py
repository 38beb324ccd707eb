"""Stored figures read in light and dark, and say what they show; what counts contrast counts it as WCAG does."""

import base64
import io
from collections.abc import Iterator
from typing import Any

import pytest

from checkout import ROOT
from contrast import contrast, faint_texts, opaque
from playbook.course.notebooks import chapters, read


def stored_figures() -> Iterator[tuple[str, str, str]]:
    """(chapter and cell, PNG, text) of every figure that a chapter stores."""
    for chapter in chapters(ROOT / "notebooks"):
        for index, cell in enumerate(read(chapter.path).cells):
            for output in cell.get("outputs", []):
                if png := output.get("data", {}).get("image/png"):
                    yield f"{chapter.name}, cell {index}", png, output.metadata.get("image/png", {}).get("alt", "")


def test_contrast_is_that_of_the_guideline() -> None:
    assert contrast("white", "black") == pytest.approx(21)
    assert contrast("#767676", "white") == pytest.approx(4.54, abs=0.01)  # the lightest grey that is enough on white
    assert contrast("#777777", "white") < 4.5


def test_every_stored_figure_is_opaque_and_has_a_text() -> None:
    figures = list(stored_figures())
    assert len(figures) > 60
    assert [where for where, png, alt in figures if not (opaque(png) and len(alt.split()) > 5)] == []


def test_a_figure_that_a_dark_page_swallows_is_found(shown: list[tuple[Any, str]]) -> None:
    import matplotlib.pyplot as plt
    from matplotlib.figure import Figure

    with plt.style.context("dark_background"):
        figure = Figure(facecolor="none")
        figure.text(0, 0, "pale", color="#999999", bbox={"facecolor": "white"})
    assert list(faint_texts(figure)) == ["the figure is transparent", "pale: #999999 on (1.0, 1.0, 1.0, 1.0)"]
    stored = io.BytesIO()
    figure.savefig(stored, format="png")
    assert not opaque(base64.b64encode(stored.getvalue()).decode())
    assert shown == []
