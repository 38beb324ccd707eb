"""The checker's page: what it carries, run in node, says of the corpus what the checker says here."""

import json
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from browser import drive_checker, webdriver
from check_page.answer import answer
from check_page.archives import NotFetched, listed
from check_page.build import ARCHIVES, FILES, BuiltPage, build
from check_page.notices import notices
from check_page.python_files import LIBRARIES
from checkout import ROOT
from serving_base.yaml_files import read_yaml
from trtllm_check.lint.page import CORPUS, snippets

NODE = shutil.which("node") or ""
SECONDS = 300
LETTER = "Dear aunt, thank you for the letter."
UNTOLD = "trtllm-build --checkpoint_dir größe --output_dir engine --max_output_len 128  # the text tells no release\n"
OPTIONS = "tensor_parallel_size: 8\nkv_cache_config: {free_gpu_memory_fraction: 0.9, no_such: yes}\n"


def cases() -> Iterator[dict[str, Any]]:
    """The corpus's texts, half under their own conditions and half as pasted; every log; what people paste.

    The first text of each rule, and a quarter of the others: what may differ in a browser are the libraries below the
    rules, and the same call of them stands in many texts.
    """
    seen: set[str] = set()
    for number, snippet in enumerate(snippets()):
        rules = {finding["rule"] for finding in snippet.findings}
        if rules <= seen and number % 8 > 1:
            continue
        seen |= rules
        told = {"release": snippet.release, "gpu": snippet.gpu, "number": snippet.gpus}
        for text in [text for _, text in snippet.files] or [snippet.text]:
            yield {"text": text} | (told if number % 2 else {})
    for path in sorted((CORPUS / "logs").glob("*.yml")):
        yield {"text": read_yaml(path)["log"], "log": True}
    for text in (LETTER, UNTOLD, OPTIONS, "", "name: 'open\n", "for i in 1 2; do\n  trtllm-build --workers $i\n"):
        yield {"text": text}


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> BuiltPage:
    """The page; what was fetched for an earlier one is taken from the checkout's build folder."""
    if not NODE:
        pytest.skip("node is not installed: https://nodejs.org, and npm with it")
    try:
        return build(tmp_path_factory.mktemp("checker"), ROOT / "build" / "checker" / ARCHIVES)
    except NotFetched as error:
        pytest.skip(f"the page cannot be built here: {error}")


def asked(page: BuiltPage, folder: Path, wanted: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """What the page's checker answers."""
    (folder / "cases.json").write_text(json.dumps(wanted), encoding="utf-8")
    argv = [NODE, str(ROOT / "tests" / "check_page_in_node.mjs"), str(page.path.parent / FILES), "cases.json"]
    done = subprocess.run(argv, cwd=folder, capture_output=True, text=True, timeout=SECONDS, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    return [json.loads(line) for line in done.stdout.splitlines()]


def test_the_page_says_what_the_checker_says_of_a_text_for_each_rule(built: BuiltPage, tmp_path: Path) -> None:
    wanted = list(cases())
    answers = asked(built, tmp_path, wanted)
    assert len(answers) == len(wanted) > 300
    different = [
        (options["text"][:200], got, here)
        for options, got in zip(wanted, answers, strict=True)
        if got != (here := answer(**options))
    ]
    assert different == []


def test_the_page_is_one_file_of_a_size_that_a_browser_opens(built: BuiltPage) -> None:
    text = built.path.read_text(encoding="utf-8")
    assert built.size == built.path.stat().st_size < 20_000_000
    carried = [path for path in (built.path.parent / FILES).iterdir() if path.suffix not in (".js", ".mjs", ".json")]
    assert text.count('class="packed"') == len(carried) + 1  # the modules are one script


@pytest.mark.parametrize("browser", webdriver.BROWSERS, ids=[one.name for one in webdriver.BROWSERS])
def test_the_page_works_from_its_file_without_a_network(
    browser: webdriver.Installed, built: BuiltPage, tmp_path: Path
) -> None:
    """Where a browser and its driver are installed: Debian's chromium-driver, firefox-esr, webkit2gtk-driver, xvfb."""
    if browser.lacks:
        pytest.skip(f"not installed: {', '.join(browser.lacks)}")
    assert drive_checker.drive(browser, built.path, tmp_path)


def test_the_page_shows_the_licence_of_everything_that_it_carries(built: BuiltPage) -> None:
    found = notices(ROOT / "build" / "checker" / ARCHIVES, listed())
    text = built.path.read_text(encoding="utf-8")
    assert {one.name for one in listed().archives} | set(LIBRARIES) <= {one.name for one in found}
    assert [one.name for one in found if not one.licence or not one.source] == []
    assert [one.name for one in found if not one.text] == ["pyodide"]
    assert [one.name for one in found if f"<summary>{one.name} {one.version}, " not in text] == []
