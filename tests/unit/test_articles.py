"""What the course quotes is what the articles say, letter by letter."""

from collections.abc import Callable
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

from playbook import articles
from serving_base.errors import UsageError

COPIES = Path(__file__).parents[3] / "shared" / "articles"  # beside the checkout, where there is one
have_copies = pytest.mark.skipif(not COPIES.is_dir(), reason="the articles are not beside this checkout")


def lines(article: articles.Article) -> list[str]:
    return (COPIES / article.file).read_text(encoding="utf-8").split("\n")


READERS: dict[str, Callable[[str], Any]] = {"quotes": articles.quote, "names": articles.names, "tables": articles.table}


@pytest.mark.parametrize(("kind", "name"), [(kind, name) for kind in READERS for name in articles.entries(kind)])
def test_what_is_quoted_is_what_was_taken_over(kind: str, name: str) -> None:
    quoted = READERS[kind](name)
    assert sha256(quoted.text.encode()).hexdigest() == quoted.sha256


@have_copies
@pytest.mark.parametrize("name", articles.entries("quotes"))
def test_a_quote_stands_in_the_article(name: str) -> None:
    quote = articles.quote(name)
    copy = lines(quote.article)
    assert [(number, copy[number - 1]) for number, _ in quote.numbered()] == quote.numbered()


@have_copies
@pytest.mark.parametrize("name", articles.entries("names"))
def test_a_name_stands_in_its_line(name: str) -> None:
    names = articles.names(name)
    copy = lines(names.article)
    assert [part for part in names.parts if part.text not in copy[part.line - 1]] == []


@have_copies
@pytest.mark.parametrize("name", articles.entries("tables"))
def test_the_cells_of_a_row_are_its_line(name: str) -> None:
    table = articles.table(name)
    copy = lines(table.article)
    for row in table.rows:
        assert len(row.cells) == len(table.columns)
        assert "".join("".join(row.cells).split()) == "".join(copy[row.line - 1].split())


def test_a_line_keeps_its_number() -> None:
    assert articles.quote("aws-backend-copy").numbered()[2][0] == 84
    assert articles.quote("aws-backend-copy").where.endswith("lines 80-81, 84, 87, 90-91")


def test_a_table_reads_by_column() -> None:
    first = articles.table("aws-kernels").records()[0]
    assert first["OP/Kernel"] == "gemm (General Matrix Multiply)"
    assert first["DIFF"] == "Equivalent"


def test_an_unknown_name_gets_the_list() -> None:
    with pytest.raises(UsageError, match="aws-biuld") as caught:
        articles.quote("aws-biuld")
    assert "aws-build" in caught.value.fix
