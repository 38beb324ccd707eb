"""The course's notebooks as data: which chapters exist, and which typed parameters they take."""

import ast
import io
import json
import re
import tokenize
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from pydantic import TypeAdapter, ValidationError

from serving_base.errors import EnvironmentProblem, UsageError

if TYPE_CHECKING:
    from nbformat import NotebookNode

CHAPTER_FILE = re.compile(r"(?P<number>\d\d)-(?P<slug>[\w-]+)\.ipynb")
PARAMETER_TYPES: dict[str, TypeAdapter[Any]] = {
    "str": TypeAdapter(str),
    "int": TypeAdapter(int),
    "float": TypeAdapter(float),
    "bool": TypeAdapter(bool),
    "list[str]": TypeAdapter(list[str]),
    "list[int]": TypeAdapter(list[int]),
    "list[float]": TypeAdapter(list[float]),
}


WHOLE = ""
"""In place of a cell's id: all cells."""


class After(NamedTuple):
    """A chapter that another comes after: all of it, or up to a cell and with it. In metadata `02` or `02#CELL`."""

    number: str
    cell: str = WHOLE


@dataclass(frozen=True)
class Chapter:
    """One notebook of the course: `notebooks/NN-slug.ipynb`.

    The last three stand in its metadata, under ``playbook``. ``after``: the chapters whose artifacts it reads, each
    with the cell that makes the last of them (None: all chapters before it). ``alone``: it measures, so nothing else
    may run beside it. ``imports``: what takes its cells seconds to import (`transformers.AutoTokenizer`); its kernel
    does so while it waits for its turn.
    """

    number: str
    slug: str
    path: Path
    title: str
    after: tuple[After, ...] | None = None
    alone: bool = False
    imports: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        return f"{self.number}-{self.slug}"


@dataclass(frozen=True)
class Parameter:
    """One line of a `parameters` cell: `name: type = default  # help`."""

    name: str
    type: str
    default: Any
    help: str


def project_root() -> Path:
    """The checkout whose `notebooks/` holds chapters: the working directory, a parent, or where this package lies."""
    here = Path.cwd()
    for folder in (here, *here.parents, Path(__file__).resolve().parents[2]):
        if any(CHAPTER_FILE.fullmatch(path.name) for path in (folder / "notebooks").glob("*.ipynb")):
            return folder
    raise EnvironmentProblem(
        "no notebooks/ folder with chapters found",
        why=f"neither at or above {here} nor beside the package",
        fix="run the command inside a clone of the playbook",
    )


def chapters(folder: Path | None = None) -> list[Chapter]:
    """All chapters of the course in order."""
    folder = folder if folder is not None else project_root() / "notebooks"
    return [
        _chapter(match["number"], match["slug"], path, path.stat().st_mtime_ns)
        for path in sorted(folder.glob("*.ipynb"))
        if (match := CHAPTER_FILE.fullmatch(path.name))
    ]


@lru_cache(maxsize=256)
def _chapter(number: str, slug: str, path: Path, _written_ns: int) -> Chapter:
    """Cached, because all notebooks are read, and checked against their schema, for every question after the course."""
    notebook = read(path)
    wants = notebook.metadata.get("playbook", {})
    after = tuple(After(*word.split("#")) for word in wants["after"]) if "after" in wants else None
    own_title = title(notebook, default=slug)
    return Chapter(number, slug, path, own_title, after, wants.get("alone", False), tuple(wants.get("imports", ())))


def chapter(name: str, known: Sequence[Chapter] | None = None) -> Chapter:
    """The chapter called `05`, `5`, `05-triton-serving`, `triton-serving` or by its file; UsageError lists them all."""
    known = known if known is not None else chapters()
    wanted = Path(name).name.removesuffix(".ipynb")
    for candidate in known:
        if wanted in (candidate.name, candidate.slug) or wanted.zfill(2) == candidate.number:
            return candidate
    listing = ", ".join(candidate.name for candidate in known) or "none"
    raise UsageError(f"no chapter {name!r}", why=f"the chapters are: {listing}", fix="give a number, such as 05")


def read(path: Path) -> "NotebookNode":
    """The notebook as nbformat 4. Raises UsageError if it is none."""
    import nbformat

    try:
        notebook: NotebookNode = nbformat.read(path, as_version=4)  # type: ignore[no-untyped-call]
    except (nbformat.reader.NotJSONError, nbformat.ValidationError, json.JSONDecodeError) as error:
        raise UsageError(f"{path} is not a notebook", why=str(error).splitlines()[0]) from error
    return notebook


def title(notebook: "NotebookNode", *, default: str = "") -> str:
    """The first heading, without its chapter number."""
    for cell in notebook.cells:
        if cell.cell_type == "markdown" and cell.source.startswith("# "):
            heading = str(cell.source).splitlines()[0].removeprefix("# ")
            return re.sub(r"^\d\d\s*[·:.-]\s*", "", heading).strip()
    return default


def tags(cell: "NotebookNode") -> list[str]:
    return list(cell.metadata.get("tags", []))


def parameters(notebook: "NotebookNode") -> list[Parameter]:
    """The typed parameters of the notebook's `parameters` cell; none if it has no such cell."""
    for cell in notebook.cells:
        if cell.cell_type == "code" and "parameters" in tags(cell):
            return parse_parameters(cell.source)
    return []


def parse_parameters(source: str) -> list[Parameter]:
    """Read `name: type = default  # help` lines. Raises UsageError on anything else."""
    comments = {
        token.start[0]: token.string.lstrip("# ").strip()
        for token in tokenize.generate_tokens(io.StringIO(source).readline)
        if token.type == tokenize.COMMENT
    }
    found = []
    for node in ast.parse(source).body:
        if not (isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name) and node.value is not None):
            raise UsageError(
                f"line {node.lineno} of the parameters cell is not `name: type = default`",
                fix="a parameters cell holds typed assignments with literal defaults, and nothing else",
            )
        kind = ast.unparse(node.annotation)
        if kind not in PARAMETER_TYPES:
            raise UsageError(
                f"parameter {node.target.id} has the type {kind}",
                why="values come from a command line or JSON",
                fix=f"use one of {', '.join(PARAMETER_TYPES)}",
            )
        default = ast.literal_eval(node.value)
        found.append(Parameter(node.target.id, kind, default, comments.get(node.end_lineno or node.lineno, "")))
    return found


def parse_assignments(given: Iterable[str]) -> dict[str, str]:
    """`["name=value", ...]` as a dictionary. Raises UsageError for other shapes and for a name given twice."""
    values: dict[str, str] = {}
    for text in given:
        name, equals, value = text.partition("=")
        if not (equals and name.isidentifier()):
            raise UsageError(f"-p {text!r} is not name=value", fix="for example: -p calib_samples=64")
        if name in values:
            raise UsageError(f"parameter {name} is given twice", fix="give it once")
        values[name] = value
    return values


def check_value(parameter: Parameter, text: str) -> Any:
    """`text` as the parameter's type; strict, so `3.0` and `true` are no integers. Raises UsageError."""
    if parameter.type == "str":
        return text
    adapter = PARAMETER_TYPES[parameter.type]
    try:
        return adapter.validate_json(text.lower() if parameter.type == "bool" else text, strict=True)
    except ValidationError as error:
        raise UsageError(
            f"parameter {parameter.name}: {text!r} is not of type {parameter.type}",
            why=error.errors()[0]["msg"],
            fix=f"for example: -p {parameter.name}={json.dumps(parameter.default)}",
        ) from error


def values_per_chapter(chosen: Sequence[Chapter], given: dict[str, str]) -> dict[str, dict[str, Any]]:
    """For each chapter's number the given values that it declares, checked.

    Raises UsageError for a value of the wrong type, and for a name that none of the chapters declares.
    """
    declared = {item.number: {found.name: found for found in parameters(read(item.path))} for item in chosen}
    known = sorted({name for names in declared.values() for name in names})
    for name in given:
        if name not in known:
            near = get_close_matches(name, known, n=1)
            raise UsageError(
                f"no chosen chapter has a parameter {name!r}" + (f"; did you mean {near[0]!r}?" if near else ""),
                why=f"they have: {', '.join(known) or 'none'}",
                fix=f"see: playbook params {chosen[0].number}" if chosen else "choose a chapter",
            )
    return {
        number: {name: check_value(names[name], text) for name, text in given.items() if name in names}
        for number, names in declared.items()
    }
