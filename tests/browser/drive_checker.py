"""Opens the built page of the checker from its file in the browsers of this machine without a network, and uses it.

    .venv/bin/playbook check-page && apt-get install chromium-driver firefox-esr webkit2gtk-driver xvfb
    .venv/bin/python tests/browser/drive_checker.py --shots shots

Prints what was measured; exit status 1 if a step fails in a browser or there is none. Of all that it needs nothing is
in the environment but Python: see webdriver.py.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "tests"))

from browser.webdriver import BROWSERS, Browser, Installed, window  # noqa: E402

FETCHES = """return await fetch(words[0], { mode: "no-cors" }).then(() => "reached", () => "kept")"""
IN_WORKER = """return await new Promise((say) => {
  const text = `fetch("${words[0]}", { mode: "no-cors" })
    .then(() => postMessage("reached"), () => postMessage("kept"))`;
  const worker = new Worker(URL.createObjectURL(new Blob([text], { type: "text/javascript" })));
  worker.onmessage = (event) => say(event.data);
})"""
ASKED = """return performance.getEntriesByType("resource").map((one) => one.name)
  .filter((name) => !/^(blob|data|file):/.test(name))"""
UNTIL = (
    "for (;;) { const said = (() => { %s })(); if (said) return said; await new Promise((go) => setTimeout(go, 50)) }"
)
READY = 'return document.body.dataset.ready || (document.getElementById("problem").hidden ? "" : "not ready")'
STATUS = 'const said = document.getElementById("status").textContent; return /^(%s)/.test(said) && said'
TEXT = 'return document.querySelector(words[0])?.innerText ?? ""'
SCRIPT = """\
pip install tensorrt_llm==0.12.0  # <b id="markup">not markup</b>, größer
trtllm-build --checkpoint_dir ckpt --output_dir engine \\
    --max_output_len 128
"""
PROBLEMS = ("hello, this is a letter to my aunt", "")
LONG = "trtllm-build --checkpoint_dir ckpt --output_dir engine --max_output_len 128\n" * 9_000
PHONE = 390


class Wrong(Exception):
    """A step that did not do what it should."""


def expect(fact: object, what: str) -> None:
    """Raises :class:`Wrong` where ``fact`` does not hold."""
    if not fact:
        raise Wrong(what)


def opened(browser: Browser, address: str) -> str:
    """A page that is ready; the seconds it took."""
    browser.open(address)
    said = browser.run(UNTIL % READY)
    expect(said != "not ready", f"not ready: {browser.run(TEXT, '#problem')}")
    return str(said)


def checked(browser: Browser) -> str:
    """What the page says once it has an answer to what was asked."""
    return str(browser.run(UNTIL % (STATUS % "Checked")))


def asked(browser: Browser, text: str) -> None:
    """Put ``text`` where a reader would, and press the button."""
    browser.run(
        'document.getElementById("text").value = words[0]; document.getElementById("status").textContent = "";'
        'document.getElementById("check").click()',
        text,
    )


def use(browser: Browser) -> str:
    """A text is pasted, and its findings walked by keyboard; returns the link to it."""
    browser.run(
        """const field = document.getElementById("text");
        field.focus(); field.value = ""; field.setRangeText(words[0]);
        field.dispatchEvent(new Event("paste", { bubbles: true }))""",
        SCRIPT,
    )
    checked(browser)
    browser.run('document.getElementById("status").textContent = ""; document.getElementById("text").focus()')
    browser.press("Control", "Enter")
    checked(browser)
    summary = browser.run(TEXT, "#summary")
    expect("1 error" in summary and "0.12.0" in summary, f"the summary says {summary!r}")
    expect("--max_output_len" in browser.run(TEXT, "#line-3.marked.error mark"), "the flag is not marked")
    expect(browser.run('return document.getElementById("markup") === null'), "the text became markup")
    expect("größer" in browser.run(TEXT, "#line-1"), "letters are lost")
    for selector, leads in ((".jump", "line-3"), ("#line-3 .sign", "finding-0")):
        browser.run("document.querySelector(words[0]).focus()", selector)
        browser.press("Enter")
        at = browser.run("return document.activeElement.id")
        expect(at == leads, f"{selector} leads to {at!r}, not to {leads}")
    browser.run('document.getElementById("example").focus()')
    browser.press("Tab")
    expect(browser.run("return document.activeElement.id") == "clear", "Tab does not go on to the next button")
    for release in ("0.11.0", "0.12.0"):
        browser.run('document.getElementById("release").value = words[0]', release)
        asked(browser, SCRIPT)
        checked(browser)
        expect(release in browser.run(TEXT, "#summary"), "the chosen release does not count")
    browser.run('document.getElementById("link").click()')
    return str(browser.run(UNTIL % 'return location.hash.includes("text=") && location.href'))


def refuse(browser: Browser) -> None:
    """A text that is no commands is told so; an empty one too; a broken link as well."""
    for text in PROBLEMS:
        asked(browser, text)
        said = browser.run(UNTIL % TEXT.replace("words[0]", '"#problem"'))
        expect("nothing in" in said and "fix:" in said, f"{text!r} is not refused: {said!r}")
        expect(browser.run('return document.getElementById("result").hidden'), f"{text!r} has a result")
        browser.run('document.getElementById("problem").hidden = true')
    browser.run('location.hash = "#text=AAAA"')
    said = browser.run(UNTIL % TEXT.replace("words[0]", '"#problem:not([hidden])"'))
    expect("the link does not carry a text" in said, f"a broken link says {said!r}")


@contextmanager
def listening() -> Iterator[tuple[str, list[str]]]:
    """A server of this machine: its address, and the paths that it was asked for."""
    paths: list[str] = []

    class Answer(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            paths.append(self.path)
            self.send_response(204)
            self.end_headers()

        def log_message(self, *words: object) -> None:
            """Nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Answer) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}/", paths
        server.shutdown()


def no_network(browser: Browser, page: str, folder: Path) -> None:
    """The page's own policy keeps it and its workers from a server that a page without one reaches."""
    other = folder / "without-policy.html"
    other.write_text("<!doctype html><title>no policy</title>", encoding="utf-8")
    with listening() as (address, paths):
        for what, script in (("page", FETCHES), ("worker", IN_WORKER)):
            said = browser.run(script, f"{address}{what}")
            expect(said == "kept" and not paths, f"the {what} reached a server: {paths}")
        asked_for = [name for name in browser.run(ASKED) if not name.startswith(address)]
        expect(not asked_for, f"the page asked for {asked_for}")
        browser.open(other.resolve().as_uri())
        browser.run(FETCHES, f"{address}without")
        expect(paths == ["/without"], "a page without a policy reaches no server either: this step shows nothing")
    opened(browser, page)


def long_text(browser: Browser) -> str:
    """While a text takes long the page answers, and can be stopped; returns how the page did."""
    asked(browser, LONG)
    slowest = browser.run(
        """let slowest = 0, beats = 0, before = performance.now();
        while (document.getElementById("stop").hidden || ++beats < 50) {
          await new Promise((go) => setTimeout(go, 20));
          slowest = Math.max(slowest, performance.now() - before); before = performance.now();
          if (document.getElementById("status").textContent.startsWith("Checked")) return -1;
        }
        document.getElementById("stop").click();
        return slowest"""
    )
    expect(slowest >= 0, "a long text could not be stopped")
    browser.run(UNTIL % (STATUS % "Ready"))
    expect(browser.run('return document.getElementById("problem").hidden'), "stopping is shown as a problem")
    return f"the page answered after {slowest:.0f} ms at most"


def narrow(browser: Browser) -> int:
    """As narrow as a telephone, or as the browser makes its window: nothing scrolls aside."""
    width = browser.size(PHONE, 900)
    wide = browser.run("return document.documentElement.scrollWidth - innerWidth")
    expect(wide <= 0, f"a page of {width} px scrolls {wide} px aside")
    return width


def example(browser: Browser, path: Path) -> None:
    """A picture of the example."""
    browser.run('document.getElementById("status").textContent = ""; document.getElementById("example").click()')
    checked(browser)
    browser.picture(path)


def drive(installed: Installed, page: Path, shots: Path) -> list[str]:
    """All steps in one browser; what was seen. :class:`Wrong` for the first that fails."""
    address, seen = page.resolve().as_uri(), []
    shots.mkdir(parents=True, exist_ok=True)
    with window(installed) as browser:
        browser.size(1280, 900)
        seen.append(f"ready after {opened(browser, address)} s")
        seen.append(str(browser.run("return navigator.userAgent")))
        example(browser, shots / f"checker-{installed.name}-light.png")
        link = use(browser)
        refuse(browser)
        no_network(browser, address, shots)
        seen.append(long_text(browser))
        opened(browser, link)
        checked(browser)
        expect(
            browser.run('return document.getElementById("text").value') == SCRIPT, "the link does not carry the text"
        )
        expect("1 error" in browser.run(TEXT, "#summary"), "the link's text is not checked")
        seen.append(f"a page of {narrow(browser)} px does not scroll aside")
        example(browser, shots / f"checker-{installed.name}-narrow.png")
    with window(installed, dark=True) as browser:
        browser.size(1280, 900)
        opened(browser, address)
        ground = browser.run("return getComputedStyle(document.body).backgroundColor")
        expect(ground == "rgb(20, 24, 29)", f"the dark page is {ground}")
        example(browser, shots / f"checker-{installed.name}-dark.png")
    return seen


def main(words: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="Use the checker's page.")
    parser.add_argument("--page", type=Path, default=ROOT / "build" / "checker" / "index.html")
    parser.add_argument("--shots", type=Path, default=Path("shots"), help="folder of the screenshots")
    parser.add_argument("--browser", choices=[one.name for one in BROWSERS], help="this one alone")
    options = parser.parse_args(words)
    there = [one for one in BROWSERS if not one.lacks and options.browser in (None, one.name)]
    failed = not there
    for one in there:
        try:
            print(f"{one.name}: {'; '.join(drive(one, options.page, options.shots))}")
        except Wrong as wrong:
            failed = True
            print(f"{one.name}: {wrong}")
    print("not here:", ", ".join(f"{one.name} ({', '.join(one.lacks)})" for one in BROWSERS if one.lacks) or "none")
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
