"""The course as static pages with its committed outputs: nothing is run, and no page loads anything from a network.

Built by ``playbook book`` in an environment of its own; the project's root is Sphinx's source folder, so that every
link between chapters and pages is the one that holds in the repository.
"""

import json
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from docutils import nodes

project = "Llama-3 FP8 playbook"
author = "the playbook's authors"
project_copyright = f"{author}, Apache-2.0"
extensions = ["myst_nb"]
root_doc = "docs/book/index"
include_patterns = [
    "docs/*.md",
    "docs/book/*.md",
    "notebooks/[0-9][0-9]-*.ipynb",
    "recorded/README.md",
    "recorded/*/*/*.ipynb",
    "README.md",
    "CONTRIBUTING.md",
]
nb_execution_mode = "off"
nb_merge_streams = True
nb_render_markdown_format = "myst"  # tables of outputs are tables, and their links are links
myst_enable_extensions = ["dollarmath", "colon_fence"]
myst_heading_anchors = 4
suppress_warnings = [
    "myst.header",  # a chapter's parts begin at the level that its cell has
    "myst.xref_missing",  # a link to a source file: the pages do not hold it
    "myst.xref_ambiguous",
    "toc.not_included",  # a chapter of a recorded edition: the page of the editions leads to it
    "mystnb.unknown_mime_type",  # the runner's results have a text, too
    "misc.highlighting_failure",  # a mermaid drawing is shown as its text
]
html_theme = "sphinx_book_theme"
html_title = project
html_show_sourcelink = False
html_theme_options = {"use_download_button": False, "use_fullscreen_button": False, "navbar_persistent": []}
mathjax = find_spec("jupyter_server_mathjax")  # its files; its code needs a Jupyter server
assert mathjax and mathjax.origin
html_static_path = ["static", str(Path(mathjax.origin).parent / "static")]
html_css_files = ["wide.css"]
mathjax_path = "MathJax.js?config=TeX-AMS-MML_HTMLorMML-full"
myst_update_mathjax = False  # it would write options of MathJax 3, and the package brings MathJax 2
mathjax2_config = {
    "tex2jax": {
        "inlineMath": [["\\(", "\\)"]],
        "displayMath": [["\\[", "\\]"]],
        "processClass": "tex2jax_process|math|output_area",
    },
    "HTML-CSS": {  # the package brings this font and no other
        "availableFonts": [],
        "imageFont": None,
        "preferredFont": None,
        "webFont": "STIX-Web",
        "linebreaks": {"automatic": True},  # a long formula breaks on a telephone
    },
    "SVG": {"font": "STIX-Web"},
}


def give_figures_their_texts(app: Any, doctree: nodes.document) -> None:
    """The ``alt`` of an output's metadata, which nbconvert heeds and myst_nb does not, for the image of that output."""
    path = Path(app.env.doc2path(app.env.docname))
    if path.suffix != ".ipynb":
        return
    cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
    outputs = [output for cell in cells for output in cell.get("outputs", []) if "image/png" in output.get("data", {})]
    images = [
        image
        for container in doctree.findall(nodes.container)
        if "cell_output" in container["classes"]
        for image in container.findall(nodes.image)
    ]
    for image, output in zip(images, outputs, strict=True):
        image["alt"] = output["metadata"].get("image/png", {}).get("alt", "")


def search_each_chapter_once(app: Any, _: nodes.document) -> None:
    """A recorded chapter has the words of its source, which is found; its own page would be the fifth of one hit."""
    if app.env.docname.startswith("recorded/"):
        app.env.metadata[app.env.docname]["no-search"] = True


def setup(app: Any) -> None:
    app.connect("doctree-read", give_figures_their_texts)
    app.connect("doctree-read", search_each_chapter_once)
