"""Opens built slides in a headless browser: what does not fit, and what a page asks of a network.

    .venv/bin/playbook slides && .venv/bin/pip install playwright
    .venv/bin/python tests/browser/drive_slides.py --shots shots

Prints a table in Markdown; exit status 1 if a slide is higher than the screen, so that it scrolls, a script fails, a
page asks for anything but its files, or the speaker sees no notes.
"""

from __future__ import annotations

import argparse
import shutil
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
TOO_HIGH = """() => {
  const slide = Reveal.getCurrentSlide(), height = Reveal.getConfig().height;
  return Math.max(0, slide.scrollHeight - slide.clientHeight, slide.scrollHeight - height);
}"""
HEAD = """\
| chapter | slides | with code below | scrolled | asked of a network | errors | words of the first notes |
|---|---|---|---|---|---|---|"""


def look(browser: Any, path: Path, shots: Path, wanted: set[int]) -> tuple[str, bool]:
    """One chapter's row, and whether something is wrong with it."""
    page = browser.new_page(viewport={"width": 1280, "height": 720})
    asked: list[str] = []
    errors: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    page.on("pageerror", lambda error: errors.append(str(error)))
    page.goto(path.as_uri())
    page.wait_for_function("() => window.Reveal && Reveal.isReady()")
    count = page.evaluate("() => Reveal.getHorizontalSlides().length")
    below = page.evaluate(
        "() => Reveal.getHorizontalSlides().filter(s => s.querySelectorAll('section').length > 1).length"
    )
    high = []
    for index in range(count):
        page.evaluate(f"() => Reveal.slide({index}, 0)")
        over = page.evaluate(TOO_HIGH)
        high += [f"{index + 1}: {over} px"] if over else []
        if index in wanted or over:
            page.screenshot(path=shots / f"{path.stem[:2]}-{index + 1:02}.png")
    page.evaluate("() => Reveal.slide(1, 0)")
    with page.expect_popup() as opened:
        page.keyboard.press("s")
    speaker = opened.value
    speaker.wait_for_function("() => document.querySelector('.speaker-controls-notes .value')?.innerText.trim()")
    notes = speaker.locator(".speaker-controls-notes .value").inner_text()
    if wanted:
        speaker.set_viewport_size({"width": 1280, "height": 800})
        speaker.screenshot(path=shots / f"{path.stem[:2]}-speaker.png")
    outside = sorted({url for url in asked if not url.startswith(("file:", "data:", "blob:", "about:"))})
    page.close()
    facts = [path.stem[:2], count, below, ", ".join(high) or "-", len(outside), len(errors), len(notes.split())]
    row = f"| {' | '.join(map(str, facts))} |"
    return "\n  ".join([row, *outside, *errors]), bool(high or outside or errors or not notes.strip())


def main() -> int:
    from playwright.sync_api import sync_playwright

    parser = argparse.ArgumentParser(description="Look at built slides.")
    parser.add_argument("chapters", nargs="*", help="such as 04; all of them by default")
    parser.add_argument("--slides", type=Path, default=ROOT / "build" / "slides")
    parser.add_argument("--shots", type=Path, default=Path("shots"), help="folder of the screenshots")
    parser.add_argument("--pictures", type=int, nargs="*", default=[], help="slides to take a picture of, such as 1 4")
    options = parser.parse_args()
    options.shots.mkdir(parents=True, exist_ok=True)
    paths = sorted(options.slides.resolve().glob("[0-9][0-9]-*.html"))
    wrong = []
    print(HEAD)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        for path in [path for path in paths if not options.chapters or path.name[:2] in options.chapters]:
            row, bad = look(browser, path, options.shots, {number - 1 for number in options.pictures})
            print(row, flush=True)
            wrong += [path.stem] if bad else []
        browser.close()
    return int(bool(wrong))


if __name__ == "__main__":
    sys.exit(main())
