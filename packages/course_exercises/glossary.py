"""The words of the course as data, the page about them, and what a text uses without a word about it.

``glossary.yml`` has a line for each term. In a chapter the first use of a term links to its line
(:mod:`course_exercises.glossary_links` sets the links).
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path

from pydantic import Field

from serving_base.record import Record
from serving_base.yaml_files import read_yaml

FILE = Path(__file__).parent / "glossary.yml"
PAGE = "../docs/glossary.md"
"""The page, seen from a chapter."""
HEAD = """\
# The words of the course

One line for each term, and the chapter that teaches it. In a chapter the first use of a term links here. The page is
made from `packages/course_exercises/glossary.yml` by `make docs`; a test keeps the two equal.
"""
NO_PROSE = re.compile(
    r"```.*?```|`[^`]*`|\$\$.*?\$\$|\$[^$\n]*\$|!?\[[^\]]*\]\([^)]*\)"
    r"|<details>.*?</details>|<[^>]+>|^#[^\n]*|^\|[^\n]*|https?://\S+",
    re.DOTALL | re.MULTILINE,
)
"""What is no sentence, or takes no link: code, formulas, links, hints and tags, headings, tables."""
ACRONYM = re.compile(r"\b[A-Z][A-Z0-9]*[A-Z][A-Z0-9]*s?\b")


class Term(Record):
    """One word. ``also``: other spellings; ``zh``: the Chinese edition's word, empty where it is the English one."""

    term: str
    says: str = Field(description="one sentence")
    chapter: str = Field(pattern=r"^\d\d$", description="where it is taught")
    also: tuple[str, ...] = ()
    zh: str = ""
    not_in: tuple[str, ...] = Field(default=(), description="chapters whose first use of the word means something else")

    @property
    def anchor(self) -> str:
        """Where GitHub and MyST jump to for its heading."""
        kept = (letter for letter in self.term.lower() if letter.isalnum() or letter in " -")
        return "".join(kept).replace(" ", "-")

    @property
    def link(self) -> str:
        return f"{PAGE}#{self.anchor}"

    @property
    def spellings(self) -> tuple[str, ...]:
        """Longest first, so that a plural is not taken for its singular."""
        return tuple(sorted((self.term, *self.also), key=len, reverse=True))


@cache
def terms() -> tuple[Term, ...]:
    """All terms, in the file's order."""
    return tuple(Term(**entry) for entry in read_yaml(FILE)["terms"])


@cache
def common_names() -> frozenset[str]:
    """Acronyms that need no line, in upper case."""
    return frozenset(read_yaml(FILE)["names"])


def first_use(text: str, words: Sequence[str]) -> tuple[int, int] | None:
    """Where the first of ``words`` stands in a sentence of ``text``: beginning and end; None where none does."""
    hidden = NO_PROSE.sub(lambda found: "\0" * len(found[0]), text)
    edges = [(r"(?<![\w-])", r"(?![\w-])") if word.isascii() else ("", "") for word in words]
    pattern = "|".join(before + re.escape(word) + after for word, (before, after) in zip(words, edges, strict=True))
    found = re.search(pattern, hidden)
    return (found.start(), found.end()) if found else None


def undefined(text: str, known: Sequence[Term] | None = None) -> list[str]:
    """Acronyms in the sentences of ``text`` that the glossary does not have, in their order. It advises, no more."""
    named = terms() if known is None else known
    words = {part.upper() for term in named for spelling in term.spellings for part in (spelling, *spelling.split())}
    found = [match[0] for match in ACRONYM.finditer(NO_PROSE.sub(" ", text))]
    singular = {word: word.removesuffix("s").upper() for word in found}
    return [word for word in dict.fromkeys(found) if singular[word] not in words | common_names()]


def glossary_page(chapters: Mapping[str, tuple[str, str]]) -> str:
    """``chapters``: number -> title and path of the notebook, seen from the page."""
    return "\n\n".join([HEAD.strip(), *_lines(chapters)]) + "\n"


def _lines(chapters: Mapping[str, tuple[str, str]]) -> Iterator[str]:
    for term in sorted(terms(), key=lambda one: one.term.lower()):
        title, path = chapters[term.chapter]
        chinese = f" *中文: {term.zh}.*" if term.zh else ""
        yield f"## {term.term}\n\n{term.says}{chinese} [Chapter {term.chapter}: {title}]({path})"
