"""What a notebook says on slides. Nothing is written twice: rules choose from its cells.

- A heading begins a slide, and so does a prose cell under it. The slide shows the prose's first sentence, every
  sentence that begins in bold type, and its list; of an exercise the whole task. All the prose is for the speaker.
- The code cells that follow give that slide their figures, tables, sentences and checks, and their code to one below.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from nbformat import NotebookNode

HIDDEN = {"parameters", "cleanup"}
"""Tags of code cells that no slide shows."""
PRINTED_LINES = 12
BOLD = "**"
HELD, NOT_HELD = "✓", "✗"
HEADING = re.compile(r"^(#{1,3}) (.+)$")
ITEM = re.compile(r"^- (.+(?:\n(?:  .+))*)", re.MULTILINE)
BESIDE = re.compile(r"```.*?```|^\|.*$|^- .+(?:\n  .+)*|<details>.*?</details>|^\$\$.*?\$\$$", re.MULTILINE | re.DOTALL)
"""What stands in a cell beside its sentences: fences, tables, lists, hints, formulas in a line of their own."""
TABLE = re.compile(r"(?:^\|.*\n?)+", re.MULTILINE)
SENTENCE = re.compile(r"(?:`[^`]*`|\[[^\]]*\]\([^)]*\)|[^`])+?(?:[.!?](?=[\s*]|$)\**|[。！？]\**|$)", re.DOTALL)
EXERCISE = re.compile(r"""exercise\(\s*["'](\d\d-\d)["']""")
STYLE = re.compile(r"<style.*?</style>\s*", re.DOTALL)


@dataclass(frozen=True)
class Figure:
    """``png`` is base64 text, ``alt`` what it shows in words."""

    png: str
    alt: str


@dataclass(frozen=True)
class TableOrText:
    """A table as the notebook holds it: HTML, or Markdown with its tables and commands."""

    text: str
    markdown: bool = False


@dataclass
class Slide:
    """One idea. Texts are Markdown."""

    heading: str
    level: int
    """1 for the chapter, 2 or 3 for a heading, 0 for prose that goes on under the last heading."""
    sentences: list[str] = field(default_factory=list)
    items: list[str] = field(default_factory=list)
    pictures: list[Figure | TableOrText] = field(default_factory=list)
    """In their order; the first one stands on the slide if it fits there, each other one on a slide below."""
    findings: list[str] = field(default_factory=list)
    lines: list[str] = field(default_factory=list)
    """Checks and results, a line each."""
    printed: str = ""
    """What else a cell printed, shown where nothing better is."""
    code: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    @property
    def asks(self) -> bool:
        """Whether it asks for a guess: what answers it then comes with a step of its own."""
        return self.level != 1 and any(one.startswith(BOLD) for one in self.sentences)


def slides(notebook: NotebookNode, beside: Mapping[str, str] | None = None) -> list[Slide]:
    """A chapter's slides, in order. ``beside``: further notes for the speaker, by the number of an exercise."""
    found: list[Slide] = []
    for cell in notebook.cells:
        if cell.cell_type == "markdown":
            found += [_told(*part, found) for part in _parts(cell.source)]
        elif cell.cell_type == "code" and found and not HIDDEN & set(cell.metadata.get("tags", ())):
            slide = found[-1]
            slide.code.append(cell.source)
            for output in cell.outputs:
                _show(output, slide)
            exercises = EXERCISE.findall(cell.source)
            if exercises:
                slide.sentences = paragraphs(slide.notes[0])
            slide.notes += [(beside or {})[number] for number in exercises if number in (beside or {})]
    return found


def _parts(source: str) -> Iterator[tuple[int, str, str]]:
    """(level, heading, text) of each part of a prose cell; level 0 and no heading for text before the first one."""
    level, heading, lines, fenced = 0, "", [""][:0], False
    for line in source.splitlines():
        fenced ^= line.startswith("```")
        begins = None if fenced else HEADING.match(line)
        if begins:
            if heading or "".join(lines).strip():
                yield level, heading, "\n".join(lines).strip()
            level, heading, lines = len(begins[1]), begins[2], []
        else:
            lines.append(line)
    if heading or "".join(lines).strip():
        yield level, heading, "\n".join(lines).strip()


def _told(level: int, heading: str, text: str, before: list[Slide]) -> Slide:
    above = [slide.heading for slide in before if slide.level in (1, 2)]
    told = shown_sentences(text)
    table = "" if told else "".join(TABLE.findall(text))
    return Slide(
        heading or (above[-1] if above else ""),
        level,
        sentences=[*told, *([table] if table else [])],
        items=[" ".join(item.split()) for item in ITEM.findall(text)],
        notes=[text] if text else [],
    )


def shown_sentences(text: str) -> list[str]:
    """The first sentence of a prose cell, those that begin in bold type, and a question behind such a one."""
    each = [one.strip() for part in paragraphs(text) for one in SENTENCE.findall(part) if one.strip()]
    after_bold = [False, *(one.startswith(BOLD) for one in each)]
    asked = [bold and one.endswith(("?", "？")) for one, bold in zip(each, after_bold, strict=False)]
    return [one for n, one in enumerate(each) if n == 0 or one.startswith(BOLD) or asked[n]]


def paragraphs(text: str) -> list[str]:
    """The paragraphs of a prose cell, a line each, without what stands beside its sentences."""
    return [" ".join(part.split()) for part in BESIDE.sub("", text).split("\n\n") if part.strip()]


def _show(output: Mapping[str, Any], slide: Slide) -> None:
    data = output.get("data", {})
    if "image/png" in data:
        alt = output.get("metadata", {}).get("image/png", {}).get("alt", "")
        slide.pictures.append(Figure("".join(data["image/png"]).strip(), alt))
    elif "text/html" in data:
        slide.pictures.append(TableOrText(STYLE.sub("", "".join(data["text/html"]))))
    elif "text/markdown" in data:
        text = "".join(data["text/markdown"])
        if "```" in text or TABLE.search(text):
            slide.pictures.append(TableOrText(text, markdown=True))
        else:
            slide.findings.append(text)
    elif "text/plain" in data:
        slide.lines.append("".join(data["text/plain"]))
    elif output.get("output_type") == "stream" and output.get("name") == "stdout":
        lines = "".join(output["text"]).splitlines()
        slide.lines += [line for line in lines if line.startswith(HELD)]
        rest = [line for line in lines if line.strip() and not line.startswith((HELD, NOT_HELD))]
        slide.printed = "\n".join([*slide.printed.splitlines(), *rest])
