"""How chapters read, counted: ``python -m course_exercises.language [FOLDER] [--long]``. It advises; a person judges.

FOLDER holds the notebooks, ``notebooks`` by default; an older checkout's folder shows what has changed since.
``--long`` prints the sentences of more than 25 words, each with its cell.
"""

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Annotated

import typer

from course_exercises.glossary import terms, undefined

LONG_WORDS = 25
IRREGULAR = (
    "built|cut|done|drawn|found|given|held|kept|known|left|lost|made|met|paid|put|read|seen|sent|set|shown|told|taken|"
    "written"
)
PASSIVE = re.compile(
    rf"\b(?:am|is|are|was|were|be|been|being)\s+(?:\w+ly\s+|not\s+)?(?:\w{{2,}}ed|{IRREGULAR})\b", re.IGNORECASE
)
LEFT_OUT = re.compile(
    r"```.*?```|\$\$.*?\$\$|<details>.*?</details>|<[^>]+>|^#[^\n]*|^\|[^\n]*|^\*[^*\n]+\*$", re.DOTALL | re.MULTILINE
)
"""What is no sentence: code, formulas, hints, tags, headings, tables, a line in italics by itself."""
ONE_WORD = re.compile(r"`[^`]*`|\$[^$\n]*\$")
LINK = re.compile(r"!?\[([^\]]*)\]\([^)]*\)")
END = re.compile(r"(?<=[.!?:])[\"”)*_]*\s+(?=[\"“(]*(?:[A-Z0-9x]|[*_]+\w))|\n\s*\n|\n\s*(?:[-*]|\d+\.)\s+")


@dataclass(frozen=True)
class Language:
    """One chapter in numbers. ``passive``: share of sentences; ``undefined``: acronyms the glossary has no line for."""

    chapter: str
    exercises: int
    guesses: int
    links: int
    code_cells: int
    words: int
    sentences: int
    median_words: float
    longest_words: int
    long_sentences: int
    passive: float
    undefined: tuple[str, ...]

    def row(self) -> dict[str, str]:
        return {
            "chapter": self.chapter,
            "exercises": str(self.exercises),
            "guesses": str(self.guesses),
            "links": str(self.links),
            "words a code cell": f"{self.words / max(self.code_cells, 1):.0f}",
            "median sentence": f"{self.median_words:.0f}",
            "longest": str(self.longest_words),
            f"over {LONG_WORDS}": str(self.long_sentences),
            "passive": f"{100 * self.passive:.0f} %",
            "no line in the glossary": ", ".join(self.undefined) or "-",
        }


def sentences(text: str) -> list[str]:
    """The sentences of a Markdown cell; code and formulas count as one word each, a link as its text."""
    plain = LINK.sub(r"\1", ONE_WORD.sub("x", LEFT_OUT.sub("\n\n", text)))
    found = (" ".join(part.split()) for part in END.split(plain))
    return [each for each in found if words_of(each)]


def words_of(sentence: str) -> int:
    return len([word for word in sentence.split() if re.search(r"\w", word)])


def prose_of(notebook: Path) -> list[tuple[str, str]]:
    """Id and text of each Markdown cell."""
    cells = json.loads(notebook.read_text(encoding="utf-8"))["cells"]
    return [(cell.get("id", ""), "".join(cell["source"])) for cell in cells if cell["cell_type"] == "markdown"]


def language(notebook: Path) -> Language:
    """Count one chapter."""
    cells = json.loads(notebook.read_text(encoding="utf-8"))["cells"]
    code = ["".join(cell["source"]) for cell in cells if cell["cell_type"] == "code"]
    prose = [text for _, text in prose_of(notebook)]
    found = [each for text in prose for each in sentences(text)]
    lengths = [words_of(each) for each in found] or [0]
    return Language(
        chapter=notebook.stem[:2],
        exercises=sum(source.count("lab.exercise(") for source in code),
        guesses=sum(source.count("lab.guess(") for source in code),
        links=sum(len(LINK.findall(text)) for text in prose),
        code_cells=sum(bool(source.strip()) for source in code),
        words=sum(lengths),
        sentences=len(found),
        median_words=median(lengths),
        longest_words=max(lengths),
        long_sentences=sum(length > LONG_WORDS for length in lengths),
        passive=sum(bool(PASSIVE.search(each)) for each in found) / max(len(found), 1),
        undefined=tuple(undefined("\n\n".join(prose), terms())),
    )


def long_sentences(notebook: Path) -> Iterator[tuple[str, int, str]]:
    """Cell, words and text of each sentence that is too long."""
    for cell, text in prose_of(notebook):
        for each in sentences(text):
            if words_of(each) > LONG_WORDS:
                yield cell, words_of(each), each


def markdown_table(rows: Sequence[dict[str, str]]) -> str:
    lines = [" | ".join(rows[0]), "|".join("---" for _ in rows[0]), *(" | ".join(row.values()) for row in rows)]
    return "\n".join(f"| {line} |" for line in lines)


def main(
    folder: Annotated[Path, typer.Argument(help="Where the notebooks are.")] = Path("notebooks"),
    long: Annotated[bool, typer.Option("--long", help="Print the sentences that are too long.")] = False,
) -> None:
    chapters = sorted(folder.glob("[0-9][0-9]-*.ipynb"))
    if not chapters:
        raise typer.BadParameter(f"{folder} holds no chapter such as 00-preflight.ipynb")
    if long:
        for chapter in chapters:
            for cell, count, text in long_sentences(chapter):
                typer.echo(f"{chapter.stem[:2]} {cell} ({count}): {text}")
        return
    typer.echo(markdown_table([language(chapter).row() for chapter in chapters]))


if __name__ == "__main__":
    typer.run(main)
