"""Looks at stored outputs in the light and the dark theme, in the real JupyterLab and in the built book.

    .venv/bin/playbook book && .venv/bin/pip install playwright    # the browser is the chromium of the system
    .venv/bin/python tests/browser/drive_themes.py 07 11 --shots shots

Nothing of a chapter is run. A notebook of its own shows what is never stored: a guess, and knobs with their figure.
Prints a table in Markdown; exit status 1 if a text of an output has less contrast with what is behind it than
WCAG 2.2 asks for (4.5 to 1, https://www.w3.org/TR/WCAG22/#contrast-minimum), or if a figure has no text for those
who cannot see it. The colours of highlighted code are JupyterLab's and Sphinx's own, and are not judged.
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

from browser.drive_lab import NOTEBOOK, READY_S, ROOT, THEMES, at_rest, choose, jupyterlab, wait_for, write_settings

LEAST = 4.5
LAB, BOOK = ".jp-Notebook .jp-OutputArea-output", "div.cell_output"
MEASURE = """([where, least]) => {
  const unjudged = 'style, script, pre code span, .highlight span';
  const shades = ([r, g, b, a = 1]) => [r, g, b, a];
  const parsed = text => shades((text.match(/[\\d.]+/g) || [0, 0, 0, 0]).map(Number));
  const over = (top, below) => [0, 1, 2].map(i => top[i] * top[3] + below[i] * (1 - top[3])).concat(1);
  const behind = element => {
    const layers = [];
    for (let at = element; at; at = at.parentElement) layers.push(parsed(getComputedStyle(at).backgroundColor));
    return layers.reverse().reduce((below, top) => over(top, below), [255, 255, 255, 1]);
  };
  const light = color => color.slice(0, 3).map(v => v / 255)
    .map(v => v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4)
    .reduce((sum, v, i) => sum + v * [0.2126, 0.7152, 0.0722][i], 0);
  const poor = new Map(), areas = [...document.querySelectorAll(where)];
  let texts = 0, cells = 0;
  for (const area of areas) {
    const walk = document.createTreeWalker(area, NodeFilter.SHOW_TEXT);
    for (let node = walk.nextNode(); node; node = walk.nextNode()) {
      const element = node.parentElement;
      if (!node.textContent.trim() || !element.getClientRects().length || element.closest(unjudged)) continue;
      texts += 1;
      cells += element.closest('td, th') ? 1 : 0;
      const back = behind(element), front = over(parsed(getComputedStyle(element).color), back);
      const [low, high] = [light(back), light(front)].sort((a, b) => a - b);
      const ratio = (high + 0.05) / (low + 0.05);
      const pair = `${front.slice(0, 3)} on ${back.slice(0, 3)}`;
      if (ratio < least && !poor.has(pair)) {
        const name = `${element.tagName.toLowerCase()}.${element.className}`;
        poor.set(pair, `${ratio.toFixed(2)} to 1: ${pair}: ${name} ${node.textContent.trim().slice(0, 60)}`);
      }
    }
  }
  const images = areas.flatMap(area => [...area.querySelectorAll('img')]);
  return { texts, cells, poor: [...poor.values()], figures: images.length, mute: images.filter(i => !i.alt).length };
}"""
LIVE = (
    """import playbook

lab = playbook.start("11", profile="local")
guess = lab.guess("themes", "Does a slider read well?", low=0, high=9, default=5, unit="times")""",
    """def drawn(height, kind):
    playbook.plots.bars({"a": {kind: height}}, title=f"{kind}: {height}", unit="times")


lab.turn(drawn, height=(1, 9, 5), kind=["first", "second"])""",
    """display(playbook.table([{"name": "a", "value": 1}]).style.format("{}"))
lab.check("it reads well", False)""",
)
"""Cells whose outputs are not stored: a guess, knobs with a figure below them, a styled table, a failed check."""
SHOWN = f"""() => {{
  const cells = {NOTEBOOK}?.content?.model?.toJSON().cells ?? [], outputs = cells.flatMap(cell => cell.outputs || []);
  const areas = [...document.querySelectorAll('.jp-Notebook .jp-OutputArea-output')];
  const filled = areas.every(area => area.childElementCount || area.textContent);
  return cells.length && areas.length >= outputs.length && filled;
}}"""
"""Whether the notebook's stored outputs are all on the page."""
HEAD = """\
| where | theme | texts | of them in tables | figures | too little contrast | figures without a text |
|---|---|---|---|---|---|---|"""


@dataclass(frozen=True)
class Seen:
    """What the outputs of one page are in one theme."""

    where: str
    theme: str
    texts: int
    cells: int
    figures: int
    poor: Sequence[str]
    mute: int

    @property
    def wrong(self) -> bool:
        return bool(self.poor or self.mute)

    def row(self) -> str:
        facts = [self.where, self.theme, self.texts, self.cells, self.figures, len(self.poor), self.mute]
        return "\n  ".join([f"| {' | '.join(map(str, facts))} |", *self.poor])


def measured(page: Any, outputs: str, where: str, theme: str) -> Seen:
    """Every text of the page's ``outputs``, a selector of CSS."""
    return Seen(where, theme, **page.evaluate(MEASURE, [outputs, LEAST]))


@contextmanager
def live_notebook() -> Iterator[Path]:
    """A notebook of the cells of :data:`LIVE`, in a folder of the checkout, where JupyterLab finds it."""
    empty: dict[str, object] = {"cell_type": "code", "metadata": {}, "outputs": [], "execution_count": None}
    cells = [empty | {"id": f"live-{n}", "source": source} for n, source in enumerate(LIVE)]
    kernel = {"name": "python3", "display_name": "Python 3 (ipykernel)"}
    notebook = {"nbformat": 4, "nbformat_minor": 5, "metadata": {"kernelspec": kernel}, "cells": cells}
    with TemporaryDirectory(dir=ROOT, prefix="themes-") as folder:
        path = Path(folder, "live.ipynb")
        path.write_text(json.dumps(notebook), encoding="utf-8")
        yield path


def lab_pages(browser: Any, shots: Path, theme: str, chapters: Sequence[Path]) -> Iterator[Seen]:
    """The stored outputs of ``chapters`` in JupyterLab, and then the outputs of :data:`LIVE`."""
    settings = (shots / f"settings-{theme}").resolve()
    write_settings(settings, theme)
    with TemporaryDirectory() as workspace, live_notebook() as live, jupyterlab(Path(workspace), settings) as server:
        for path in [*chapters, live]:
            page = browser.new_page(viewport={"width": 1400, "height": 1800})
            page.goto(server.address(path.relative_to(ROOT)))
            page.wait_for_selector(".jp-InputPrompt", timeout=READY_S * 1000)
            page.wait_for_function(f"() => document.body.dataset.jpThemeName === '{THEMES[theme]}'")
            for _ in range(2):  # with &reset the page may be loaded a second time
                page.wait_for_function(SHOWN, timeout=READY_S * 1000)
                page.wait_for_timeout(1500)
            if path == live:
                wait_for(page, at_rest, READY_S)
                choose(page, "Run", "Run All Cells")
                wait_for(page, lambda state: state["errors"] and at_rest(state), READY_S)
                page.wait_for_selector(".jupyter-widgets .jp-OutputArea-output img", timeout=READY_S * 1000)
            yield measured(page, LAB, f"JupyterLab {path.stem[:4].removesuffix('-')}", theme)
            page.screenshot(path=shots / f"lab-{path.stem[:2]}-{theme}.png")
            page.close()
            server.end_kernels()


def book_pages(browser: Any, shots: Path, theme: str, pages: Sequence[Path]) -> Iterator[Seen]:
    """The outputs on ``pages`` of the built book for a reader whose system has this theme."""
    for path in pages:
        page = browser.new_page(viewport={"width": 1400, "height": 1800}, color_scheme=theme)
        page.goto(path.resolve().as_uri())
        page.wait_for_function(f"() => document.documentElement.dataset.theme === '{theme}'")
        yield measured(page, BOOK, f"book {path.stem[:2]}", theme)
        page.screenshot(path=shots / f"book-{path.stem[:2]}-{theme}.png")
        page.close()


@contextmanager
def chromium() -> Iterator[Any]:
    """The system's browser without a window."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        yield browser
        browser.close()


def main() -> int:
    parser = argparse.ArgumentParser(description="Measure the contrast of outputs in both themes.")
    parser.add_argument("chapters", nargs="*", help="such as 07; all of them by default")
    parser.add_argument("--shots", type=Path, default=Path("shots"), help="folder of the screenshots")
    parser.add_argument("--book", type=Path, default=ROOT / "build" / "book", help="left out where it is not built")
    options = parser.parse_args()
    options.shots.mkdir(parents=True, exist_ok=True)
    paths = sorted((ROOT / "notebooks").glob("[0-9][0-9]-*.ipynb"))
    chosen = [path for path in paths if not options.chapters or path.name[:2] in options.chapters]
    pages = [options.book / "notebooks" / f"{path.stem}.html" for path in chosen]
    wrong = False
    print(HEAD, flush=True)
    with chromium() as browser:
        for theme in THEMES:
            for seen in [
                *lab_pages(browser, options.shots, theme, chosen),
                *book_pages(browser, options.shots, theme, [page for page in pages if page.exists()]),
            ]:
                print(seen.row(), flush=True)
                wrong = wrong or seen.wrong
    return int(wrong)


if __name__ == "__main__":
    sys.exit(main())
