"""Drives the real JupyterLab in a headless browser: opens a chapter, runs all cells, looks at what a person would see.

    .venv/bin/pip install playwright        # the browser is the chromium of the system
    .venv/bin/python tests/browser/drive_lab.py 04 02 --shots shots

Not a part of ``make test``: it takes the time of the chapters, and a browser. Exit status 1 if a cell failed.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import secrets
import shutil
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
READY_S = 90
CHAPTER_S = 900
THEMES = {"light": "JupyterLab Light", "dark": "JupyterLab Dark"}


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


@contextmanager
def jupyterlab(workspace: Path, settings: Path) -> Iterator[str]:
    """The address of a JupyterLab on the course, ended with the block. ``settings``: a folder of its own."""
    port, token = free_port(), secrets.token_hex(16)
    argv = [str(ROOT / ".venv/bin/playbook"), "lab", "--no-browser", "--allow-root", f"--port={port}", "--ip=127.0.0.1"]
    argv += [f"--IdentityProvider.token={token}", "--ServerApp.port_retries=0"]
    environment = os.environ | {"PLAYBOOK_WORKSPACE": str(workspace), "JUPYTERLAB_SETTINGS_DIR": str(settings)}
    server = subprocess.Popen(argv, cwd=ROOT, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        end_s = time.monotonic() + READY_S
        while time.monotonic() < end_s:
            try:
                urllib.request.urlopen(f"http://127.0.0.1:{port}/api?token={token}", timeout=2).close()
                break
            except OSError:
                time.sleep(0.5)
        yield f"http://127.0.0.1:{port}/lab/tree/{{path}}?token={token}&reset"
    finally:
        server.terminate()
        server.wait(30)


def set_theme(settings: Path, theme: str) -> None:
    folder = settings / "@jupyterlab" / "apputils-extension"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "themes.jupyterlab-settings").write_text(json.dumps({"theme": THEMES[theme]}))


def run_all(page: Any) -> list[str]:
    """Run every cell and wait until the kernel is idle; the text of each error that is shown."""
    page.get_by_text("Run", exact=True).first.click()
    page.get_by_text("Run All Cells", exact=True).first.click()
    page.wait_for_timeout(2000)
    end_s = time.monotonic() + CHAPTER_S
    while time.monotonic() < end_s:
        waiting = page.evaluate(
            "() => [...document.querySelectorAll('.jp-InputPrompt')].filter(p => p.innerText.includes('[*]')).length"
        )
        title = page.locator(".jp-Notebook-ExecutionIndicator").first.get_attribute("data-status") or ""
        if not waiting and title == "idle":
            break
        page.wait_for_timeout(1000)
    else:
        return [f"not idle after {CHAPTER_S} s"]
    return [
        text.strip()[-400:]
        for text in page.locator("[data-mime-type='application/vnd.jupyter.stderr']").all_inner_texts()
    ]


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


def main() -> int:
    from playwright.sync_api import sync_playwright

    parser = argparse.ArgumentParser(description="Drive JupyterLab over chapters.")
    parser.add_argument("chapters", nargs="+", help="such as 04")
    parser.add_argument("--shots", type=Path, default=Path("shots"), help="folder of the screenshots")
    parser.add_argument("--workspace", type=Path, default=ROOT / "workspace")
    parser.add_argument("--theme", choices=THEMES, default="light")
    options = parser.parse_args()
    options.shots.mkdir(parents=True, exist_ok=True)
    settings = options.shots / "settings"
    set_theme(settings, options.theme)
    failed = False
    with jupyterlab(options.workspace, settings) as address, sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        for number in options.chapters:
            (path,) = (ROOT / "notebooks").glob(f"{number}-*.ipynb")
            page = browser.new_page(viewport={"width": 1400, "height": 1800})
            page.goto(address.format(path=path.relative_to(ROOT)))
            page.wait_for_selector(".jp-InputPrompt", timeout=READY_S * 1000)
            page.wait_for_timeout(4000)
            errors = run_all(page)
            moved = move_sliders(page)
            page.screenshot(path=options.shots / f"{number}-{options.theme}.png")
            counts = page.locator(".jp-InputPrompt").all_inner_texts()
            ran = [int(found[1]) for found in map(re.compile(r"\[(\d+)\]").search, counts) if found]
            print(f"{number}: {len(ran)} cells shown as run, {len(errors)} errors", *moved, *errors, sep="\n  ")
            failed = failed or bool(errors)
            page.close()
        browser.close()
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
