"""Drives the real JupyterLab in a headless browser over chapters, and looks at what a person would see.

    .venv/bin/pip install playwright        # the browser is the chromium of the system
    .venv/bin/python tests/browser/drive_lab.py 04 02 --shots shots

Each chapter is opened, run with *Run All Cells*, its kernel restarted when half of the cells have run, run again to its
end, and then every slider on it is moved. A notebook is never saved. Prints a table in Markdown; exit status 1 if a
cell failed. Not a part of ``make test``: it takes the time of the chapters, and a browser.
"""

from __future__ import annotations

import argparse
import json
import os
import secrets
import shutil
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
READY_S = 90
THEMES = {"light": "JupyterLab Light", "dark": "JupyterLab Dark"}
NOTEBOOK = "window.jupyterapp.shell.currentWidget"
STATE = f"""() => {{
  const widget = {NOTEBOOK}, cells = widget.content.model.toJSON().cells.filter(c => c.cell_type === 'code');
  const outputs = cells.flatMap(c => c.outputs);
  const text = o => [o.text, o.data && o.data['text/plain'], o.data && o.data['text/markdown']].flat(2).join('');
  return {{
    status: widget.sessionContext.session?.kernel?.status ?? 'none',
    cells: cells.filter(c => [c.source].flat().join('').trim()).length,
    ran: cells.filter(c => c.execution_count !== null).length,
    waiting: [...document.querySelectorAll('.jp-InputPrompt')].filter(p => p.innerText.includes('[*]')).length,
    checks: outputs.map(text).join('\\n').split('✓').length - 1,
    errors: outputs.filter(o => o.output_type === 'error').map(o => o.ename + ': ' + o.evalue),
    warnings: outputs.filter(o => o.name === 'stderr').map(text),
  }};
}}"""


@dataclass
class Driven:
    """What one chapter showed."""

    chapter: str
    cells: int = 0
    before_restart: int = 0
    ran: int = 0
    checks: int = 0
    seconds: float = 0
    errors: list[str] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    moved: list[str] = field(default_factory=list)
    outside: list[str] = field(default_factory=list)

    @property
    def failed(self) -> bool:
        return bool(self.errors or self.outside or self.ran < self.cells)

    def row(self) -> str:
        parts = [self.chapter, self.before_restart, f"{self.ran} of {self.cells}", self.checks, len(self.moved)]
        return f"| {' | '.join(map(str, [*parts, len(self.warnings), len(self.errors), f'{self.seconds:.0f}']))} |"


HEAD = """\
| chapter | cells run before the restart | cells run after it | checks held | sliders moved | stderr | errors | s |
|---|---|---|---|---|---|---|---|"""


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


@dataclass(frozen=True)
class Server:
    """A running JupyterLab."""

    port: int
    token: str

    def address(self, path: Path) -> str:
        return f"http://127.0.0.1:{self.port}/lab/tree/{path}?token={self.token}&reset"

    def call(self, path: str, method: str = "GET") -> Any:
        url = f"http://127.0.0.1:{self.port}/api{path}?token={self.token}"
        with urllib.request.urlopen(urllib.request.Request(url, method=method), timeout=30) as answer:
            return json.loads(answer.read() or "null")

    def end_kernels(self) -> None:
        for session in self.call("/sessions"):
            self.call(f"/sessions/{session['id']}", "DELETE")


@contextmanager
def jupyterlab(workspace: Path, settings: Path) -> Iterator[Server]:
    """A JupyterLab on the course, ended with the block. ``settings``: a folder of its own."""
    server = Server(free_port(), secrets.token_hex(16))
    argv = [sys.executable, "-m", "playbook", "lab", "--no-browser", "--allow-root", "--ip=127.0.0.1"]
    argv += [f"--port={server.port}", f"--IdentityProvider.token={server.token}", "--ServerApp.port_retries=0"]
    argv += ["--LabApp.expose_app_in_browser=True"]
    environment = os.environ | {"PLAYBOOK_WORKSPACE": str(workspace)}
    environment |= {"JUPYTERLAB_SETTINGS_DIR": str(settings.resolve())}
    process = subprocess.Popen(argv, cwd=ROOT, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        end_s = time.monotonic() + READY_S
        while time.monotonic() < end_s:
            try:
                server.call("")
                break
            except OSError:
                time.sleep(0.5)
        yield server
    finally:
        process.terminate()
        process.wait(60)


def write_settings(folder: Path, theme: str) -> None:
    """A theme, and no autosave: what is driven here must not change the committed notebooks."""
    for plugin, values in {
        "apputils-extension/themes": {"theme": THEMES[theme]},
        "docmanager-extension/plugin": {"autosave": False},
        "notebook-extension/tracker": {"windowingMode": "none"},
    }.items():
        path = folder / "@jupyterlab" / f"{plugin}.jupyterlab-settings"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(values))


def choose(page: Any, menu: str, entry: str) -> None:
    """An entry of a menu of the main bar."""
    page.locator(".lm-MenuBar-itemLabel", has_text=menu).first.click()
    page.locator(".lm-Menu-itemLabel").get_by_text(entry, exact=True).first.click()


def wait_for(page: Any, done: Any, seconds: float) -> dict[str, Any]:
    """The notebook's state once ``done(state)``, or as it is when the time is over."""
    end_s = time.monotonic() + seconds
    while True:
        state: dict[str, Any] = page.evaluate(STATE)
        if done(state) or time.monotonic() > end_s:
            return state
        page.wait_for_timeout(500)


def at_rest(state: dict[str, Any]) -> bool:
    return state["status"] == "idle" and not state["waiting"]


def drive(page: Any, chapter: str, seconds: float) -> Driven:
    """Run the open notebook halfway, restart its kernel, and run it to its end."""
    start_s = time.monotonic()
    choose(page, "Edit", "Clear Outputs of All Cells")
    wait_for(page, lambda state: state["status"] == "idle", READY_S)
    choose(page, "Run", "Run All Cells")
    half = wait_for(page, lambda state: 2 * state["ran"] >= state["cells"] or state["errors"], seconds)
    choose(page, "Kernel", "Restart Kernel…")
    page.locator(".jp-Dialog-button.jp-mod-accept").click()
    page.wait_for_timeout(3000)
    wait_for(page, at_rest, READY_S)
    choose(page, "Edit", "Clear Outputs of All Cells")
    choose(page, "Run", "Run All Cells")
    page.wait_for_timeout(2000)
    state = wait_for(page, lambda state: at_rest(state) and (state["ran"] or state["errors"]), seconds)
    late = [] if at_rest(state) else [f"not idle after {seconds:.0f} s"]
    return Driven(
        chapter,
        cells=state["cells"],
        before_restart=half["ran"],
        ran=state["ran"],
        checks=state["checks"],
        seconds=time.monotonic() - start_s,
        errors=[*half["errors"], *state["errors"], *late],
        warnings=state["warnings"],
    )


def move_sliders(page: Any) -> list[str]:
    """Move every slider on the page to the right by keyboard; what its readout said before and after."""
    moved = []
    for slider in page.locator(".widget-slider").all():
        slider.scroll_into_view_if_needed()
        readout, handle = slider.locator(".widget-readout"), slider.locator(".noUi-handle").first
        before = readout.inner_text()
        handle.focus()
        for _ in range(5):
            page.keyboard.press("ArrowRight")
        page.wait_for_timeout(1500)
        moved.append(f"{slider.inner_text().splitlines()[0]}: {before} -> {readout.inner_text()}")
    return moved


def broken_figures(page: Any) -> list[str]:
    """The last line of each traceback below a control: such an output is no part of the notebook's model."""
    below = page.locator(".jupyter-widgets .jp-OutputArea-output", has_text="Traceback (most recent call last)")
    return [text.strip().splitlines()[-1] for text in below.all_inner_texts()]


def main() -> int:
    from playwright.sync_api import sync_playwright

    parser = argparse.ArgumentParser(description="Drive JupyterLab over chapters.")
    parser.add_argument("chapters", nargs="*", help="such as 04; all of them by default")
    parser.add_argument("--shots", type=Path, default=Path("shots"), help="folder of the screenshots")
    parser.add_argument("--workspace", type=Path, default=ROOT / "workspace")
    parser.add_argument("--theme", choices=THEMES, default="light")
    parser.add_argument("--seconds", type=float, default=900, help="for a chapter")
    options = parser.parse_args()
    options.shots.mkdir(parents=True, exist_ok=True)
    settings = options.shots / "settings"
    write_settings(settings, options.theme)
    paths = sorted((ROOT / "notebooks").glob("[0-9][0-9]-*.ipynb"))
    chosen = [path for path in paths if not options.chapters or path.name[:2] in options.chapters]
    rows = []
    print(HEAD, flush=True)
    with jupyterlab(options.workspace, settings) as server, sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        here = f"http://127.0.0.1:{server.port}/"
        for path in chosen:
            outside: list[str] = []
            page = browser.new_page(viewport={"width": 1400, "height": 1800})
            page.on(
                "request", lambda request, seen=outside: request.url.startswith("http") and seen.append(request.url)
            )
            page.goto(server.address(path.relative_to(ROOT)))
            page.wait_for_selector(".jp-InputPrompt", timeout=READY_S * 1000)
            page.wait_for_timeout(3000)
            driven = drive(page, path.name[:2], options.seconds)
            driven.moved = move_sliders(page)
            after = page.evaluate(STATE)
            driven.errors += [*after["errors"][len(driven.errors) :], *broken_figures(page)]
            driven.outside = sorted({url for url in outside if not url.startswith(here)})
            page.screenshot(path=options.shots / f"{driven.chapter}-{options.theme}.png")
            print(
                driven.row(), *driven.outside, *driven.moved, *driven.errors, *driven.warnings, sep="\n  ", flush=True
            )
            rows.append(driven)
            page.close()
            server.end_kernels()
        browser.close()
    print("", HEAD, *(driven.row() for driven in rows), sep="\n")
    return int(any(driven.failed for driven in rows))


if __name__ == "__main__":
    sys.exit(main())
