"""Slides as one HTML page a chapter, shown by reveal.js from a folder beside it: no network, when made or when seen."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from course_slides.heights import fits
from course_slides.slides import PRINTED_LINES, Figure, Slide

REVEAL = "reveal"
MATHJAX = "mathjax"
"""The folders beside the pages."""
TAKEN = ("dist", "plugin/notes", "plugin/math", "LICENSE")
"""What of reveal.js the pages load."""
CHAPTER = re.compile(r"^(?:\.\./(?:\.\./)?notebooks/)?(\d\d-[\w-]+)\.ipynb(#.*)?$")
LINK = re.compile(r"\[([^\]]+)\]\(([^)\s]+)\)")


def page(title: str, found: Sequence[Slide], language: str = "en") -> str:
    """The text of a chapter's page."""
    return str(
        _template("slides.html.j2").render(title=title, slides=found, language=language, reveal=REVEAL, mathjax=MATHJAX)
    )


def front(title: str, pages: Sequence[tuple[str, str]]) -> str:
    """The page that lists the others, given as (title, file's name)."""
    return str(_template("front.html.j2").render(title=title, pages=pages))


def take_scripts(environment: Path, folder: Path) -> None:
    """Copy what the pages load from the packages of ``environment``, its site-packages, to beside them."""
    reveal = environment / "sphinx_revealjs" / "_static" / "revealjs"
    for name in TAKEN:
        target = folder / REVEAL / name
        target.parent.mkdir(parents=True, exist_ok=True)
        if (reveal / name).is_dir():
            shutil.copytree(
                reveal / name, target, dirs_exist_ok=True, ignore=shutil.ignore_patterns("*.map", "*.esm.js")
            )
        else:
            shutil.copy(reveal / name, target)
    shutil.copytree(
        environment / "jupyter_server_mathjax" / "static",
        folder / MATHJAX,
        dirs_exist_ok=True,
    )


def reachable(text: str) -> str:
    """Markdown whose links lead to a web page or to another chapter's slides; of any other link the words stay."""

    def link(found: re.Match[str]) -> str:
        words, target = found[1], found[2]
        chapter = CHAPTER.match(target)
        if chapter:
            return f"[{words}]({chapter[1]}.html)"
        return found[0] if target.startswith(("http://", "https://")) else words

    return LINK.sub(link, text)


def shown_printed(slide: Slide) -> str:
    """What a slide shows of printed text: the first lines, and only where it has no figure, table or finding."""
    if slide.pictures or slide.findings:
        return ""
    lines = slide.printed.splitlines()
    return "\n".join([*lines[:PRINTED_LINES], *(["…"] if len(lines) > PRINTED_LINES else [])])


def _template(name: str) -> Any:
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    environment = Environment(
        loader=FileSystemLoader(Path(__file__).parent / "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.tests |= {"figure": lambda picture: isinstance(picture, Figure), "fitting": fits}
    environment.filters |= {"markdown": _markdown(), "code": _highlighted, "printed": shown_printed}
    return environment.get_template(name)


def _markdown() -> Callable[[str], Any]:
    from markupsafe import Markup
    from nbconvert.filters.markdown_mistune import markdown2html_mistune

    return lambda text: Markup(markdown2html_mistune(reachable(text)))


def _highlighted(source: str) -> Any:
    from markupsafe import Markup
    from pygments import highlight
    from pygments.formatters import HtmlFormatter
    from pygments.lexers import PythonLexer

    return Markup(highlight(source, PythonLexer(), HtmlFormatter(noclasses=True, nobackground=True)))
