"""What a figure with knobs reads must still be the same when somebody turns it, and that may be after the last cell."""

import ast
import json
import symtable
from collections.abc import Mapping
from pathlib import Path

import pytest

CHAPTERS = sorted((Path(__file__).parents[2] / "notebooks").glob("[0-9][0-9]-*.ipynb"))


def code_cells(path: Path) -> dict[str, str]:
    """The chapter's code, by the cell's id."""
    cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
    return {cell["id"]: "".join(cell["source"]) for cell in cells if cell["cell_type"] == "code"}


def turned(source: str) -> list[str]:
    """The functions that ``source`` hands to ``lab.turn``."""
    calls = (node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Call))
    given = (call.args[0] for call in calls if ast.unparse(call.func) == "lab.turn")
    return [function.id for function in given if isinstance(function, ast.Name)]


def bound(source: str) -> set[str]:
    """The names that a cell gives a value."""
    symbols = symtable.symtable(source, "cell", "exec").get_symbols()
    return {symbol.get_name() for symbol in symbols if symbol.is_assigned() or symbol.is_imported()}


def read_by(source: str, function: str) -> set[str]:
    """The names of the notebook that a function of this cell reads, also in what is defined inside it."""
    found: set[str] = set()
    todo = [table for table in symtable.symtable(source, "cell", "exec").get_children() if table.get_name() == function]
    while todo:
        table = todo.pop()
        found |= {symbol.get_name() for symbol in table.get_symbols() if symbol.is_global()}
        todo += table.get_children()
    return found


def rebound(cells: Mapping[str, str]) -> list[str]:
    """``name (cell)`` for each name that a turned figure reads, also by way of a function, and a later cell binds."""
    found = []
    order = list(cells)
    for place, source in enumerate(cells.values()):
        todo, seen = turned(source), set[str]()
        while todo:
            name = todo.pop()
            for other in cells.values():
                todo += sorted(new := read_by(other, name) - seen)
                seen |= new
        later = {cell: bound(cells[cell]) & seen for cell in order[place + 1 :]}
        found += [f"{name} ({cell})" for cell, names in later.items() for name in sorted(names)]
    return found


@pytest.mark.parametrize("path", CHAPTERS, ids=lambda path: path.name[:2])
def test_no_later_cell_binds_what_a_figure_with_knobs_reads(path: Path) -> None:
    assert rebound(code_cells(path)) == []


def test_a_name_that_is_bound_again_is_found_through_another_function() -> None:
    cells = {
        "a": "parts = 1\ndef inner():\n    return [parts for _ in 'x']",
        "b": "def outer(x):\n    return inner()\nlab.turn(outer, x=(1, 2, 1))",
        "c": "parts = {}",
        "d": "other = 2",
    }
    assert rebound(cells) == ["parts (c)"]
    assert rebound(cells | {"c": "pieces = {}"}) == []


def test_most_chapters_with_a_figure_to_turn_are_seen() -> None:
    assert sum(any(turned(source) for source in code_cells(path).values()) for path in CHAPTERS) >= 7
