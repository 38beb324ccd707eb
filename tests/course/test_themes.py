"""Outputs read well in both themes of the real JupyterLab, and say there what a figure shows."""

import importlib.util
import shutil
from pathlib import Path

import pytest

from browser import drive_themes
from browser.drive_lab import THEMES
from checkout import ROOT

CHAPTERS = [next((ROOT / "notebooks").glob(f"{number}-*.ipynb")) for number in ("07", "11")]


@pytest.mark.skipif(
    not (importlib.util.find_spec("playwright") and shutil.which("chromium")),
    reason="not installed: pip install playwright, and the system's chromium",
)
@pytest.mark.parametrize("theme", THEMES)
def test_every_text_of_an_output_has_contrast_and_every_figure_a_text(theme: str, tmp_path: Path) -> None:
    with drive_themes.chromium() as browser:
        stored, many, live = drive_themes.lab_pages(browser, tmp_path, theme, CHAPTERS)
        assert stored.texts > 200 and many.cells > 400 and stored.figures + many.figures == 8
        assert live.figures == 2 and live.cells  # one of them below the knobs
        assert [seen.row() for seen in (stored, many, live) if seen.wrong] == []
        assert faint_page(browser).poor and faint_page(browser).mute == 1


def faint_page(browser: object) -> drive_themes.Seen:
    """What is said of a page that is wrong in both ways."""
    page = browser.new_page()  # type: ignore[attr-defined]
    page.set_content("<div class=wrong style='background: #fff'><p style='color: #999'>pale</p><img src=none></div>")
    return drive_themes.measured(page, ".wrong", "a page", "light")
