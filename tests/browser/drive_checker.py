"""Opens the built page of the checker from its file in a headless browser without a network, and uses it.

    .venv/bin/playbook check-page && .venv/bin/pip install playwright
    .venv/bin/python tests/browser/drive_checker.py --shots shots

Prints what was measured; exit status 1 if a step fails, a script fails or the page asks for anything but its file.
"""

from __future__ import annotations

import argparse
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
SECONDS = 120
REACHES = """() => new Promise((say) => {
  addEventListener("securitypolicyviolation", (event) => say(event.effectiveDirective));
  fetch("https://example.invalid/").catch(() => setTimeout(say, 1000, "no directive"));
})"""
IN_WORKER = """() => new Promise((say) => {
  const text = `addEventListener("securitypolicyviolation", (event) => postMessage(event.effectiveDirective));
    fetch("https://example.invalid/").catch(() => 0)`;
  const worker = new Worker(URL.createObjectURL(new Blob([text], { type: "text/javascript" })));
  worker.onmessage = (event) => say(event.data);
  setTimeout(say, 5000, "no directive");
})"""
SCRIPT = """\
pip install tensorrt_llm==0.12.0  # <b id="markup">not markup</b>, größer
trtllm-build --checkpoint_dir ckpt --output_dir engine \\
    --max_output_len 128
"""
PROBLEMS = ("hello, this is a letter to my aunt", "")


class Wrong(Exception):
    """A step that did not do what it should."""


def expect(fact: bool, what: str) -> None:
    """Raises :class:`Wrong` where ``fact`` does not hold."""
    if not fact:
        raise Wrong(what)


def opened(context: Any, address: str, asked: list[str], errors: list[str]) -> Any:
    """A page that is ready; what it asks for and what fails in it goes into the lists."""
    page = context.new_page()
    page.on("request", lambda request: asked.append(request.url))
    page.on("pageerror", lambda error: errors.append(str(error)))
    page.on("console", lambda message: errors.append(message.text) if message.type == "error" else None)
    page.goto(address)
    page.wait_for_selector("body[data-ready], #problem:not([hidden])", timeout=SECONDS * 1000)
    expect(page.locator("body[data-ready]").count() == 1, f"not ready: {page.locator('#problem').inner_text()}")
    return page


def checked(page: Any) -> None:
    """Waits for the answer to what was asked."""
    page.wait_for_function("() => /^(Checked|$)/.test(document.getElementById('status').textContent)")


def use(page: Any) -> str:
    """A text, by keyboard alone: found, shown at its place, without its markup; returns the link to it."""
    page.focus("#text")
    page.keyboard.insert_text(SCRIPT)
    page.keyboard.press("Control+Enter")
    checked(page)
    summary = page.locator("#summary").inner_text()
    expect("1 error" in summary and "0.12.0" in summary, f"the summary says {summary!r}")
    row = page.locator("#line-3.marked.error")
    expect("--max_output_len" in row.locator("mark").inner_text(), "the flag is not marked")
    expect(page.locator("#markup").count() == 0, "the text became markup")
    expect("größer" in page.locator("#line-1").inner_text(), "letters are lost")
    page.locator(".jump").first.press("Enter")
    expect(page.evaluate("() => document.activeElement.id") == "line-3", "the finding does not lead to its line")
    page.locator("#line-3 .sign").press("Enter")
    expect(page.evaluate("() => document.activeElement.id") == "finding-0", "the line does not lead to its finding")
    page.select_option("#release", "0.11.0")
    page.click("#check")
    checked(page)
    expect("0.11.0" in page.locator("#summary").inner_text(), "the chosen release does not count")
    page.select_option("#release", "0.12.0")
    page.click("#link")
    page.wait_for_function("() => location.hash.includes('text=')")
    return str(page.url)


def refuse(page: Any) -> None:
    """A text that is no commands is told so; an empty one too."""
    for text in PROBLEMS:
        page.fill("#text", text)
        page.click("#check")
        checked(page)
        said = page.locator("#problem").inner_text()
        expect("nothing in" in said and "fix:" in said, f"{text!r} is not refused: {said!r}")
        expect(page.locator("#result").is_hidden(), f"{text!r} has a result")


def no_network(context: Any, address: str) -> None:
    """The page's own policy keeps it and its workers from a network, also where there is one."""
    page = context.new_page()
    page.goto(address)
    for what, script in (("the page", REACHES), ("a worker", IN_WORKER)):
        said = page.evaluate(script)
        expect(said == "connect-src", f"{what} is kept from the network by {said}")
    page.close()


def stop(page: Any) -> None:
    """A text that takes long can be stopped, and the page goes on."""
    line = "trtllm-build --checkpoint_dir ckpt --output_dir engine --max_output_len 128\n"
    page.evaluate("(text) => { document.getElementById('text').value = text }", line * 9_000)
    page.click("#check")
    page.locator("#stop").click(timeout=SECONDS * 1000)
    page.wait_for_function("() => document.getElementById('status').textContent.startsWith('Ready')")
    expect(page.locator("#problem").is_hidden() and page.locator("#stop").is_hidden(), "stopping is shown as a problem")


def broken_link(page: Any) -> None:
    """A link that lost a part says so."""
    page.evaluate("() => { location.hash = '#text=AAAA' }")
    page.wait_for_selector("#problem:not([hidden])")
    said = page.locator("#problem").inner_text()
    expect("the link does not carry a text" in said, f"a broken link says {said!r}")


def pictures(page: Any, shots: Path, name: str) -> None:
    """The example, light and dark."""
    page.click("#example")
    checked(page)
    for scheme in ("light", "dark"):
        page.emulate_media(color_scheme=scheme)
        page.screenshot(path=shots / f"checker-{name}-{scheme}.png", full_page=True)


def main(words: Sequence[str] | None = None) -> int:
    from playwright.sync_api import sync_playwright

    parser = argparse.ArgumentParser(description="Use the checker's page.")
    parser.add_argument("--page", type=Path, default=ROOT / "build" / "checker" / "index.html")
    parser.add_argument("--shots", type=Path, default=Path("shots"), help="folder of the screenshots")
    options = parser.parse_args(words)
    options.shots.mkdir(parents=True, exist_ok=True)
    asked: list[str] = []
    errors: list[str] = []
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        context = browser.new_context(viewport={"width": 1280, "height": 900}, offline=True)
        try:
            page = opened(context, options.page.resolve().as_uri(), asked, errors)
            ready = page.evaluate("() => document.body.dataset.ready")
            print(f"ready after {ready} s, {options.page.stat().st_size} bytes")
            link = use(page)
            print(f"link of {len(link)} characters")
            refuse(page)
            broken_link(page)
            no_network(context, options.page.resolve().as_uri())
            stop(page)
            pictures(page, options.shots, "wide")
            page.set_viewport_size({"width": 420, "height": 900})
            wide = page.evaluate("() => document.documentElement.scrollWidth - innerWidth")
            expect(wide <= 0, f"a narrow page scrolls {wide} px aside")
            pictures(page, options.shots, "narrow")
            again = opened(context, link, asked, errors)
            checked(again)
            expect(again.input_value("#text") == SCRIPT, "the link does not carry the text")
            expect("1 error" in again.locator("#summary").inner_text(), "the link's text is not checked")
        except Wrong as wrong:
            errors.append(str(wrong))
        browser.close()
    outside = sorted({url for url in asked if not url.startswith(("file:", "data:", "blob:", "about:"))})
    print("\n".join([f"asked of a network: {len(outside)}", *outside, f"errors: {len(errors)}", *errors]))
    return int(bool(outside or errors))


if __name__ == "__main__":
    sys.exit(main())
