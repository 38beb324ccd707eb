"""Names of a notebook that a loop overwrites: a later cell then reads another value than the reader has in mind."""

import ast
import symtable
from collections.abc import Iterator, Sequence


def overwritten_names(cells: Sequence[tuple[str, str]]) -> Iterator[str]:
    """One line for each name that a cell assigns, a loop of a later cell assigns again, and a cell after it reads.

    ``cells``: id and source of the code cells, in order. A cell that assigns the name outside of a loop takes it over.
    """
    parts = [(cell, *_assigned(ast.parse(source)), _read(source)) for cell, source in cells]
    for number, (cell, _, looped, _) in enumerate(parts):
        for name in sorted(looped):
            first = next((before for before, plain, _, _ in parts[:number] if name in plain), None)
            for after, plain, again, read in parts[number + 1 :]:
                if first and name in read - plain - again:
                    yield f"cell {after} reads `{name}`: cell {first} assigned it, and a loop of cell {cell} since then"
                if name in plain | again | read:
                    break


def _assigned(tree: ast.Module) -> tuple[set[str], set[str]]:
    """Names that the cell assigns outside of loops, and in them; not those of functions and comprehensions."""
    plain: set[str] = set()
    looped: set[str] = set()

    def visit(node: ast.AST, names: set[str]) -> None:
        if isinstance(node, ast.FunctionDef | ast.ClassDef | ast.AsyncFunctionDef):
            names.add(node.name)
            return
        if isinstance(node, ast.Lambda | ast.ListComp | ast.SetComp | ast.DictComp | ast.GeneratorExp):
            return
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            names.add(node.id)
        inside = looped if isinstance(node, ast.For | ast.While) else names
        for child in ast.iter_child_nodes(node):
            visit(child, inside)

    visit(tree, plain)
    return plain, looped


def _read(source: str) -> set[str]:
    """Names of the notebook that the cell reads, in functions and comprehensions too."""
    found: set[str] = set()

    def visit(table: symtable.SymbolTable) -> None:
        top = table.get_type() == "module"
        found.update(one.get_name() for one in table.get_symbols() if one.is_referenced() and (top or one.is_global()))
        for child in table.get_children():
            visit(child)

    visit(symtable.symtable(source, "cell", "exec"))
    return found
