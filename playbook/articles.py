"""The articles that the course is made from: their commands, files, tables and names, quoted exactly as data."""

from functools import cache
from pathlib import Path
from typing import Any

from serving_base.errors import UsageError
from serving_base.record import Record
from serving_base.yaml_files import read_yaml

ARTICLES_FILE = Path(__file__).parent / "data" / "articles.yml"


class Article(Record):
    """Where a quotation is from. ``file``: the copy that the line numbers count in."""

    title: str
    publisher: str
    file: str


class _Quotation(Record):
    """``sha256``: of the text, as it was when it was compared with the article."""

    article: Article
    sha256: str


class Quote(_Quotation):
    """Whole lines of an article; ``lines``: first and last line of each piece, counted from 1."""

    lines: tuple[tuple[int, int], ...]
    text: str

    @property
    def where(self) -> str:
        """The title and the lines, for the page."""
        pieces = ", ".join(f"{first}-{last}" if last > first else str(first) for first, last in self.lines)
        return f"{self.article.title} ({self.article.publisher}), lines {pieces}"

    def numbered(self) -> list[tuple[int, str]]:
        """Each line of the text with its number in the article."""
        numbers = [number for first, last in self.lines for number in range(first, last + 1)]
        return list(zip(numbers, self.text.split("\n"), strict=True))


class Part(Record):
    """A name or a figure: part of a line."""

    line: int
    text: str


class Names(_Quotation):
    """Names or figures that belong together."""

    parts: tuple[Part, ...]

    @property
    def text(self) -> str:
        return "\n".join(part.text for part in self.parts)


class Row(Record):
    line: int
    cells: tuple[str, ...]


class Table(_Quotation):
    """A table of an article, cell by cell."""

    columns: tuple[str, ...]
    rows: tuple[Row, ...]

    @property
    def text(self) -> str:
        return "\n".join(cell for row in self.rows for cell in row.cells)

    def records(self) -> list[dict[str, str]]:
        """One dictionary a row, by column."""
        return [dict(zip(self.columns, row.cells, strict=True)) for row in self.rows]


def article(name: str) -> Article:
    """Return an article by its short name: ``aws``, ``nvidia`` or ``talk``."""
    return Article(**_data()["articles"][name])


def quote(name: str) -> Quote:
    """Return whole lines of an article, such as ``aws-build``; :class:`UsageError` lists the names there are."""
    return Quote(**_entry("quotes", name))


def names(name: str) -> Names:
    """Return names or figures of an article, such as ``aws-build-advice``."""
    return Names(**_entry("names", name))


def table(name: str) -> Table:
    """Return a table of an article, such as ``aws-kernels``."""
    return Table(**_entry("tables", name))


def entries(kind: str) -> list[str]:
    """The names of all "quotes", "names" or "tables"."""
    return sorted(_data()[kind])


def _entry(kind: str, name: str) -> dict[str, Any]:
    data = _data()
    if name not in data[kind]:
        raise UsageError(f"no article has {kind} called {name!r}", fix=f"use one of {', '.join(entries(kind))}")
    entry: dict[str, Any] = data[kind][name]
    return entry | {"article": data["articles"][entry["article"]]}


@cache
def _data() -> dict[str, Any]:
    loaded: dict[str, Any] = read_yaml(ARTICLES_FILE)
    return loaded
