"""Static checks of a committed notebook: that its outputs come from one clean run, and that it keeps the form."""

import ast
import itertools
import re
import symtable
import sys
from collections.abc import Callable, Collection, Iterator, Sequence
from pathlib import Path

from nbformat import NotebookNode

from playbook.course.notebooks import PARAMETER_TYPES, parse_parameters, project_root, tags
from serving_base.errors import UsageError

MAX_PARAMETERS = 12
MAX_CELL_LINES = 30
P90_CELL_LINES = 20
PROSE_WORDS_PER_CODE_CELL = (45, 90)
LINK_TARGET = re.compile(r"\]\([^)\s]*\)")
SLOTS = {
    "You will": r"\*\*You will\b",
    "Needs": r"\*\*Needs\b",
    "Time": r"\*\*[^*\n]*\btime\b[^*\n]*\*\*",
    "Cost": r"\*\*[^*\n]*\bcost\b[^*\n]*\*\*",
    "If it went wrong (a table)": r"If it went wrong[^\n]*\n(?:[^|\n]*\n)*\|[^\n]*\n\|[\s:|-]+\n\|",
}
TABLE = "playbook.table("
EXITS = {"exit", "quit", "sys.exit", "os._exit", "SystemExit"}


def static_problems(notebook: NotebookNode, public_names: Collection[str] | None = None) -> list[str]:
    """What is wrong with a notebook as it is committed, one line each; empty when it is in order.

    `public_names` are the names of `playbook` that a chapter may use, `playbook.__all__` by default. Whether the
    stored outputs are true is another question: nbval answers it by running the cells again.
    """
    if public_names is None:
        import playbook

        public_names = playbook.__all__
    checks: tuple[Callable[[NotebookNode], Iterator[str]], ...] = (
        _kernel,
        _one_clean_run,
        _parameters_cell,
        _plain_python,
        _no_machine_paths,
        _cell_lengths,
        _prose,
        _slots,
        _no_runner_traces,
        _names_of_their_own,
    )
    problems = [problem for check in checks for problem in check(notebook)]
    return problems + list(_public_names_only(notebook, public_names))


def _code(notebook: NotebookNode) -> list[NotebookNode]:
    return [cell for cell in notebook.cells if cell.cell_type == "code"]


def _prose_text(notebook: NotebookNode) -> str:
    return "\n\n".join(cell.source for cell in notebook.cells if cell.cell_type == "markdown")


def _where(cell: NotebookNode) -> str:
    first = next(iter(str(cell.source).splitlines()), "")
    return f"cell {cell.get('id', '?')} ({first[:40]!r})"


def _kernel(notebook: NotebookNode) -> Iterator[str]:
    name = notebook.metadata.get("kernelspec", {}).get("name")
    if name != "python3":
        yield f"the kernel is {name!r}, not 'python3'"
    ids = [cell.get("id") for cell in notebook.cells]
    if None in ids or len(set(ids)) != len(ids):
        yield "cell ids are missing or used twice"


def _one_clean_run(notebook: NotebookNode) -> Iterator[str]:
    for expected, cell in enumerate(_code(notebook), start=1):
        count = cell.get("execution_count")
        if count is None:
            had = "has outputs but no execution count" if cell.outputs else "has not been run"
            yield f"{_where(cell)} {had}"
        elif count != expected:
            yield f"{_where(cell)} was run as number {count}, not {expected}: not one run from top to bottom"
        if any(output.output_type == "error" for output in cell.outputs):
            yield f"{_where(cell)} holds an error"


def _parameters_cell(notebook: NotebookNode) -> Iterator[str]:
    cells = [cell for cell in _code(notebook) if "parameters" in tags(cell)]
    if len(cells) != 1:
        yield f"{len(cells)} cells are tagged 'parameters', not exactly one"
        return
    try:
        found = parse_parameters(cells[0].source)
    except (UsageError, SyntaxError, ValueError) as error:
        yield f"the parameters cell cannot be read: {error}"
        return
    if len(found) > MAX_PARAMETERS:
        yield f"{len(found)} parameters, more than {MAX_PARAMETERS}"
    for parameter in found:
        if not parameter.help:
            yield f"parameter {parameter.name} has no comment that explains it"
        kind = PARAMETER_TYPES[parameter.type]
        if kind.validate_python(parameter.default) != parameter.default:
            yield f"parameter {parameter.name}: its default is not of type {parameter.type}"


def _plain_python(notebook: NotebookNode) -> Iterator[str]:
    for cell in _code(notebook):
        try:
            tree = ast.parse(cell.source)
        except SyntaxError:
            yield f"{_where(cell)} is not plain Python: no '!', '%' or '%%' lines, whose failures pass unseen"
            continue
        for node in ast.walk(tree):
            if isinstance(node, ast.Expr) and node is not tree.body[-1] and ast.unparse(node).startswith(TABLE):
                yield f"{_where(cell)} makes a table that nobody sees: only the last line shows one without display()"
            if isinstance(node, ast.Call | ast.Raise):
                target = node.func if isinstance(node, ast.Call) else node.exc
                name = ast.unparse(target) if target is not None else ""
                if name in EXITS:
                    yield f"{_where(cell)} leaves early with {name}: the cells after it would not run"
                if name in ("get_ipython", "os.system"):
                    yield f"{_where(cell)} calls {name}, whose failures pass unseen"


def _no_machine_paths(notebook: NotebookNode) -> Iterator[str]:
    here = {str(path) for path in (project_root(), Path(sys.prefix)) if len(path.parts) > 2}
    pattern = re.compile("|".join([r"/(?:home|Users)/\w+", r"/tmp/\w+", *map(re.escape, sorted(here))]))
    for cell in notebook.cells:
        texts = [cell.source, *map(str, cell.get("outputs", []))]
        if found := next((match[0] for text in texts if (match := pattern.search(text))), None):
            yield f"{_where(cell)} holds a path of one machine: {found}"


def _cell_lengths(notebook: NotebookNode) -> Iterator[str]:
    lengths = {_where(cell): len(cell.source.splitlines()) for cell in _code(notebook)}
    for where, lines in lengths.items():
        if lines > MAX_CELL_LINES:
            yield f"{where} has {lines} lines, more than {MAX_CELL_LINES}"
    ordered = sorted(lengths.values())
    if ordered and (p90 := ordered[int(0.9 * (len(ordered) - 1))]) > P90_CELL_LINES:
        yield f"one code cell in ten has more than {P90_CELL_LINES} lines (90th percentile: {p90})"


def _prose(notebook: NotebookNode) -> Iterator[str]:
    low, high = PROSE_WORDS_PER_CODE_CELL
    words = len(re.findall(r"[^\W_][\w'’.,-]*", LINK_TARGET.sub("]", _prose_text(notebook))))
    per_cell = words / max(1, len(_code(notebook)))
    if not low <= per_cell <= high:
        yield f"{per_cell:.0f} words of prose per code cell, not {low} to {high}"


def _slots(notebook: NotebookNode) -> Iterator[str]:
    prose = _prose_text(notebook)
    for name, pattern in SLOTS.items():
        if not re.search(pattern, prose, re.IGNORECASE):
            yield f"the slot is missing: {name}"
    code = _code(notebook)
    if not code or "cleanup" not in tags(code[-1]):
        yield "the last code cell is not tagged 'cleanup'"


def _no_runner_traces(notebook: NotebookNode) -> Iterator[str]:
    if "papermill" in notebook.metadata or any("papermill" in cell.metadata for cell in notebook.cells):
        yield "papermill's metadata is left in it"
    if any("injected-parameters" in tags(cell) for cell in notebook.cells):
        yield "a cell with injected parameters is left in it"


def _names_of_their_own(notebook: NotebookNode) -> Iterator[str]:
    try:
        yield from overwritten_names([(_where(cell), cell.source) for cell in _code(notebook)])
    except SyntaxError:
        return  # _plain_python says it


def _public_names_only(notebook: NotebookNode, public_names: Collection[str]) -> Iterator[str]:
    for cell in _code(notebook):
        try:
            tree = ast.parse(cell.source)
        except SyntaxError:  # _plain_python has reported it
            continue
        for name in itertools.chain.from_iterable(map(_playbook_names, ast.walk(tree))):
            if name not in public_names:
                yield f"{_where(cell)} uses playbook.{name}, which is not a public name of the playbook"


def _playbook_names(node: ast.AST) -> list[str]:
    """The names below `playbook` that this node takes."""
    if isinstance(node, ast.Import):
        return [alias.name.removeprefix("playbook.") for alias in node.names if alias.name.startswith("playbook.")]
    if isinstance(node, ast.ImportFrom) and node.module == "playbook":
        return [alias.name for alias in node.names]
    if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("playbook."):
        module = str(node.module).removeprefix("playbook.")
        return [f"{module}.{alias.name}" for alias in node.names]
    if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "playbook":
        return [node.attr]
    return []


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
