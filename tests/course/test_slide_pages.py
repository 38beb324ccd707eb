"""`playbook slides`: pages that load only what lies beside them."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from checkout import ROOT
from playbook import bootstrap
from playbook.course.notebooks import chapters

HERE = bootstrap.environments()["book"].python.is_file()
pytestmark = pytest.mark.skipif(
    not HERE and not os.environ.get("CI"), reason="the book's environment: python3 playbook/bootstrap.py --envs book"
)
LOADED = re.compile(r"""(?:src="|<link[^>]+href="|@import url\(|mathjax: ")([^")]+)""")


def made(folder: Path, *options: str) -> Path:
    argv = [sys.executable, "-m", "playbook", "slides", *options, "--out", str(folder)]
    done = subprocess.run(argv, capture_output=True, text=True, cwd=ROOT, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return folder


def test_every_chapter_has_a_page_that_loads_only_files_beside_it(tmp_path: Path) -> None:
    folder = made(tmp_path / "slides")
    front = (folder / "index.html").read_text()
    for chapter in chapters(ROOT / "notebooks"):
        name = f"{chapter.name}.html"
        loaded = [word for word in LOADED.findall((folder / name).read_text()) if not word.startswith("data:")]
        assert name in front and loaded
        assert [word for word in loaded if not (folder / word).is_file()] == []


def test_slides_in_chinese_have_its_prose_and_the_same_figures(tmp_path: Path) -> None:
    folder = made(tmp_path / "slides", "02", "--lang", "zh")
    text = (folder / "02-fp8-quantization.html").read_text()
    assert '<html lang="zh">' in text and "量化" in text and "Guess first" not in text
    assert 'src="data:image/png' in text
