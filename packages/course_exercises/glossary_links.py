"""Links of first uses, in chapters and their translations: ``python -m course_exercises.glossary_links 03 05``.

Links to the glossary that are there are taken out first, so a second run changes nothing. A term whose translated cell
does not have its word is linked in the next cell where both have it. Without numbers it goes over all chapters. It also
names the acronyms that the glossary has no line for: advice, for a person to judge.
"""

import json
import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from course_exercises.glossary import PAGE, Term, first_use, terms, undefined
from course_runs.edition import source_hash

OLD = re.compile(rf"\[([^\]]*)\]\({re.escape(PAGE)}#[\w-]+\)")
ENTRY = re.compile(r"(?m)^(?=- cell: )")
FIELDS = re.compile(r'- cell: (?P<cell>\S+)\n  source: "(?P<source>[0-9a-f]+)"\n  text: \|-\n(?P<text>.*)', re.DOTALL)
INDENT = "    "


def linked(texts: Sequence[str], translations: Sequence[str], known: Sequence[Term]) -> tuple[list[str], list[str]]:
    """The cells of a chapter and their translations, with each term's first use linked in both."""
    english = [OLD.sub(r"\1", text) for text in texts]
    other = [OLD.sub(r"\1", text) for text in translations]
    for term in known:
        for place, text in enumerate(english):
            here = first_use(text, term.spellings)
            there = first_use(other[place], (term.zh,) if term.zh else term.spellings) if here else None
            if here and there:
                english[place], other[place] = _link(text, here, term), _link(other[place], there, term)
                break
    return english, other


def _link(text: str, at: tuple[int, int], term: Term) -> str:
    return f"{text[: at[0]]}[{text[slice(*at)]}]({term.link}){text[at[1] :]}"


def link_chapter(notebook: Path, catalogue: Path) -> int:
    """Rewrite a chapter and its catalogue; how many links there are. Cells without a translation stay as they are."""
    page = json.loads(notebook.read_text(encoding="utf-8"))
    parts = ENTRY.split(catalogue.read_text(encoding="utf-8"))
    entries = {found["cell"]: found for part in parts if (found := FIELDS.match(part))}
    cells = [cell for cell in page["cells"] if cell["cell_type"] == "markdown" and cell["id"] in entries]
    texts = ["".join(cell["source"]) for cell in cells]
    told = [_plain(entries[cell["id"]]["text"]) for cell in cells]
    english, other = linked(texts, told, [term for term in terms() if notebook.name[:2] not in term.not_in])
    for cell, text in zip(cells, english, strict=True):
        cell["source"] = text.splitlines(keepends=True)
    notebook.write_text(json.dumps(page, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    catalogue.write_text("".join(map(_entry, cells, texts, english, other, _sources(cells, entries))), encoding="utf-8")
    return sum(text.count(f"]({PAGE}#") for text in english)


def _sources(cells: Sequence[Any], entries: Any) -> list[str]:
    return [entries[cell["id"]]["source"] for cell in cells]


def _entry(cell: Any, before: str, text: str, told: str, source: str) -> str:
    """An entry of the catalogue; one that was stale before stays stale."""
    hashed = source_hash(text)[: len(source)] if source_hash(before)[: len(source)] == source else source
    lines = "".join(f"{INDENT}{line}\n" if line else "\n" for line in told.split("\n"))
    return f'- cell: {cell["id"]}\n  source: "{hashed}"\n  text: |-\n{lines}'


def _plain(block: str) -> str:
    return "\n".join(line.removeprefix(INDENT) for line in block.rstrip("\n").split("\n"))


def main(numbers: Sequence[str]) -> None:
    for notebook in sorted(Path("notebooks").glob("[0-9][0-9]-*.ipynb")):
        if not numbers or notebook.name[:2] in numbers:
            links = link_chapter(notebook, notebook.parent / "zh" / f"{notebook.stem}.yml")
            cells = json.loads(notebook.read_text(encoding="utf-8"))["cells"]
            text = "\n\n".join("".join(cell["source"]) for cell in cells if cell["cell_type"] == "markdown")
            print(f"{notebook.name}: {links} links; without a line: {', '.join(undefined(text)) or 'none'}")


if __name__ == "__main__":
    main(sys.argv[1:])
