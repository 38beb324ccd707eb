"""The page: one HTML file with Pyodide, bash's grammar, the checker and its libraries in it, compressed."""

from __future__ import annotations

import base64
import gzip
import json
from collections.abc import Mapping, Sequence
from hashlib import sha256
from pathlib import Path
from typing import Any, NamedTuple

from check_page.answer import gpus, releases
from check_page.archives import carried, listed
from check_page.notices import Notice, notices
from check_page.python_files import python_zip
from check_page.scripts import joined

TEMPLATES = Path(__file__).parent / "templates"
PAGE = "index.html"
ARCHIVES = "archives"
FILES = "files"
MODULES = (".mjs", ".js")
"""Folders beside the page: what was fetched, and what the page has in it, as files."""
PYTHON_ZIP = "python.zip"
EXAMPLE = """\
# an example: what does this release refuse, and what does it do silently?
docker run --gpus all -it nvcr.io/nvidia/tritonserver:24.08-trtllm-python-py3 bash
trtllm-build --checkpoint_dir ckpt --output_dir engine --gpt_attention_plugin float16 \\
    --max_output_len 1024 --max_batch_size 16 --workers 8
"""


class BuiltPage(NamedTuple):
    """The page that was written, and its size in bytes."""

    path: Path
    size: int


def build(folder: Path, archives: Path | None = None) -> BuiltPage:
    """Write the page into ``folder``, and the files that it carries beside it, for node.

    ``archives``: the folder that keeps what is fetched, by default one beside the page.
    """
    known, fetched = listed(), archives or folder / ARCHIVES
    files = {
        **carried(fetched, known),
        PYTHON_ZIP: python_zip(),
        "checker.js": _text("checker.js").encode(),
    }
    settings = {
        "lockInfo": known.lock_info,
        "zips": [PYTHON_ZIP, *(one.file for one in known.archives if not one.members)],
    }
    inside = folder / FILES
    inside.mkdir(parents=True, exist_ok=True)
    described = {"settings.json": settings, "package.json": {"type": "module"}}
    for name, content in {**files, **{name: json.dumps(one).encode() for name, one in described.items()}}.items():
        (inside / name).write_bytes(content)
    text = page(files, settings, notices(fetched, known))
    (folder / PAGE).write_text(text, encoding="utf-8")
    return BuiltPage(folder / PAGE, len(text.encode()))


def page(files: Mapping[str, bytes], settings: Mapping[str, Any], works: Sequence[Notice] = ()) -> str:
    """The HTML text with ``files`` in it; ``works``: whose they are."""
    from jinja2 import Environment, StrictUndefined

    script, style = _text("page.js"), _text("page.css")
    environment = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    return environment.from_string(_text("page.html.j2")).render(
        script=script,
        style=style,
        script_sum=_sum(script),
        style_sum=_sum(style),
        settings=json.dumps(settings),
        files={name: packed(content) for name, content in in_page(files).items()},
        releases=releases(),
        gpus=gpus(),
        example=EXAMPLE,
        works=works,
    )


def in_page(files: Mapping[str, bytes]) -> dict[str, bytes]:
    """``files`` as the page has them: its modules are in the worker's script."""
    modules = {name: content.decode() for name, content in files.items() if name.endswith(MODULES)}
    others = {name: content for name, content in files.items() if name not in modules}
    return {**others, "worker.js": joined(modules, _text("worker.js")).encode()}


def packed(content: bytes) -> str:
    """``content`` as gzip in base64."""
    return base64.b64encode(gzip.compress(content, 9, mtime=0)).decode()


def _text(name: str) -> str:
    return (TEMPLATES / name).read_text(encoding="utf-8")


def _sum(text: str) -> str:
    """What a content security policy calls a text that may run."""
    return f"sha256-{base64.b64encode(sha256(text.encode()).digest()).decode()}"
