"""Which names of packages with tables the code uses: imports, attributes of modules, methods of objects it makes.

Left out is what the code itself takes for uncertain: imports that it tries, branches that look at a version.
"""

import ast
import re
from collections import Counter
from collections.abc import Iterator
from typing import NamedTuple

from trtllm_check.lint.carriers.python_text import PythonText
from trtllm_check.lint.carriers.used_calls import UsedCall, given
from trtllm_check.lint.shell import Word
from trtllm_check.releases.python_names import python_package, python_packages

TRIED = re.compile(r"ImportError|ModuleNotFoundError|AttributeError|suppress")
ANYTHING = re.compile(r"Exception")
CAUGHT = "ImportError, caught"
SHORT = 3  # statements of a try that is there for an import
LOOKS = re.compile(r"version|TYPE_CHECKING|hasattr|find_spec|is_available|_AVAILABLE|has_\w+|is_\w+_installed", re.I)
VERSIONED = (
    r"\b{package}\.__version__|version\(\s*[\"']{package}|{package}_version|VLLM_VERSION"
    r"|\bversion\.parse\(|_version_(?:ge|gt|at_least)"
)
COMPARED = r"\)?\s*(?:[<>]|[!=]=|in\b|not\b|\.(?:split|startswith|release|major|minor)|\[)"
COMPARED_AFTER = re.compile(COMPARED)


class UsedName(NamedTuple):
    """``dotted``: the whole name; ``member``: what is asked of an object of that class, else "".

    ``keyword``: what the call of that name is given by this keyword; ``call``: all that it is given.
    ``error``: what Python raises where it is missing; CAUGHT for an import whose failure the code expects.
    """

    dotted: str
    place: Word
    member: str = ""
    keyword: str = ""
    error: str = "AttributeError"
    file: str = ""
    call: UsedCall | None = None

    @property
    def package(self) -> str:
        return self.dotted.partition(".")[0]


def used_names(text: PythonText) -> Iterator[UsedName]:
    """All of them, in the order of the code."""
    packages = python_packages() & {origin.partition(".")[0] for origin in text.names.values()}
    packages = frozenset(one for one in packages if not asks_version(text.word.text, one))
    if not packages:
        return
    guarded = {id(node) for node in _guarded(text.tree)}
    certain = _certain(text, guarded)
    inner = {id(node.value) for node in text.nodes if isinstance(node, ast.Attribute)}
    caught = {id(node) for node in _caught(text.tree)}
    for node in text.nodes:
        if id(node) in caught and isinstance(node, ast.ImportFrom):
            yield from (one._replace(error=CAUGHT) for one in _imports(text, node, packages))
        if id(node) in guarded:
            continue
        if isinstance(node, ast.Import | ast.ImportFrom):
            yield from _imports(text, node, packages)
        elif isinstance(node, ast.Attribute) and id(node) not in inner and isinstance(node.ctx, ast.Load):
            dotted = text.dotted(node)
            if _root(node) in certain and dotted.partition(".")[0] in packages:
                yield UsedName(dotted, text.at(node))
    made = _made(text, packages, guarded)
    yield from _members(text, made, guarded)
    yield from _calls(text, packages, made_objects(text, packages, guarded), guarded)


def asks_version(text: str, package: str) -> bool:
    """True for code that itself looks at the package's version, and not only tells it."""
    asked = re.compile(VERSIONED.format(package=package))
    return any(not _is_told(text, match) for match in asked.finditer(text))


def _is_told(text: str, match: re.Match[str]) -> bool:
    """True for ``print(tensorrt_llm.__version__)``, and for a name that keeps the version and is compared nowhere."""
    if not match[0].endswith("__version__") or COMPARED_AFTER.match(text, match.end()):
        return False
    before = text[text.rfind("\n", 0, match.start()) + 1 : match.start()]
    if re.search(r"\b(?:print|log\w*(?:\.\w+)?|info|debug)\(.*$", before):
        return True
    kept = re.fullmatch(r"\s*(?P<name>[\w.]+)\s*=\s*(?:str\()?", before)
    if kept is None:
        return False
    name = re.escape(kept["name"])
    return re.search(
        rf"(?:(?:parse|Version|tuple|map|split|startswith)\([^()\n]*|\b(?:if|elif|while)\b[^\n]*){name}\b", text
    ) is None and (re.search(rf"\b{name}{COMPARED}", text) is None)


def _imports(text: PythonText, node: ast.Import | ast.ImportFrom, packages: frozenset[str]) -> Iterator[UsedName]:
    if isinstance(node, ast.ImportFrom) and node.level:
        return
    for one in node.names:
        if len(set((place := text.at(one)).places)) == 1 < len(place.places):
            continue  # an import that was put in front of a piece
        module = f"{node.module}." if isinstance(node, ast.ImportFrom) else ""
        dotted = f"{module}{one.name}" if one.name != "*" else module.rstrip(".")
        if dotted.partition(".")[0] in packages:
            yield UsedName(dotted, place, error="ImportError")


def _certain(text: PythonText, guarded: set[int]) -> set[str]:
    """The names that stand for a module of a package wherever the code says them."""
    found: set[str] = set()
    changed = {node.id for node in text.nodes if isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Load)}
    changed |= {node.arg for node in text.nodes if isinstance(node, ast.arg)}
    for node in text.nodes:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            changed.add(node.name)
        elif isinstance(node, ast.Import | ast.ImportFrom):
            names = {one.asname or one.name.partition(".")[0] for one in node.names}
            if id(node) in guarded:
                changed |= names
            else:
                found |= names
    return found - changed


def _made(text: PythonText, packages: frozenset[str], guarded: set[int]) -> dict[str, str]:
    """Names that are set once, to what a class of a package or one of its methods makes -> that class or method."""
    made = {}
    for node in text.nodes:
        if isinstance(node, ast.Assign) and len(node.targets) == 1 and isinstance(node.targets[0], ast.Name):
            name = node.targets[0].id
            value = node.value
            dotted = text.dotted(value.func) if isinstance(value, ast.Call) else ""
            if dotted.partition(".")[0] in packages and len(text.values_of(name)) == 1 and id(node) not in guarded:
                made[name] = dotted
    others = {node.arg for node in text.nodes if isinstance(node, ast.arg)}
    stored = Counter(node.id for node in text.nodes if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store))
    return {name: dotted for name, dotted in made.items() if name not in others and stored[name] == 1}


def _members(text: PythonText, made: dict[str, str], guarded: set[int]) -> Iterator[UsedName]:
    """``llm.chat(...)`` where ``llm`` is an object of a package."""
    for call in text.calls:
        owner = call.func.value if isinstance(call.func, ast.Attribute) else None
        if isinstance(owner, ast.Name) and owner.id in made and id(text.as_written(call)) not in guarded:
            yield UsedName(made[owner.id], text.at(call.func), getattr(call.func, "attr", ""))


def made_objects(
    text: PythonText, packages: frozenset[str], guarded: frozenset[int] | set[int] = frozenset()
) -> dict[str, str]:
    """The same as :func:`_made`, with attributes, what ``with`` names and what ``await`` waits for."""
    found: dict[str, set[str]] = {}
    for node in text.nodes:
        pairs: list[tuple[ast.expr, ast.expr]] = []
        if isinstance(node, ast.Assign):
            pairs = [(target, node.value) for target in node.targets]
        elif isinstance(node, ast.AnnAssign | ast.NamedExpr) and node.value is not None:
            pairs = [(node.target, node.value)]
        elif isinstance(node, ast.withitem) and node.optional_vars is not None:
            pairs = [(node.optional_vars, node.context_expr)]
        elif isinstance(node, ast.For | ast.AsyncFor | ast.comprehension | ast.AugAssign):
            pairs = [(node.target, node.target)]
        elif isinstance(node, ast.arg):
            found.setdefault(node.arg, set()).add("")
        for target, value in pairs:
            made = value.value if isinstance(value, ast.Await) else value
            if isinstance(made, ast.Constant) and made.value is None:
                continue
            dotted = text.dotted(made.func) if isinstance(made, ast.Call) else ""
            is_ours = dotted.partition(".")[0] in packages and id(node) not in guarded
            for one in ast.walk(target):
                if isinstance(one, ast.Name | ast.Attribute) and isinstance(one.ctx, ast.Store):
                    found.setdefault(ast.unparse(one), set()).add(dotted if is_ours and one is target else "")
    return {name: next(iter(kinds)) for name, kinds in found.items() if len(kinds) == 1 and "" not in kinds}


def _calls(text: PythonText, packages: frozenset[str], made: dict[str, str], guarded: set[int]) -> Iterator[UsedName]:
    """The keywords of calls whose whole name has a table, and what calls are given."""
    for call in text.calls:
        dotted = text.dotted(call.func) or of_an_object(call.func, made)
        package = python_package(dotted.partition(".")[0]) if dotted.partition(".")[0] in packages else None
        if package is None or id(text.as_written(call)) in guarded:
            continue
        if package.call_of(dotted):
            for one in call.keywords:
                if one.arg is not None:
                    yield UsedName(dotted, text.at(one), keyword=one.arg)
        if package.has_arguments(dotted):
            yield UsedName(dotted, text.at(text.as_written(call).func), call=given(text, call))


def of_an_object(func: ast.expr, made: dict[str, str]) -> str:
    """``client.chat.completions.create`` behind the class, or the method, that made ``client``."""
    behind = ""
    while isinstance(func, ast.Attribute):
        behind = f".{func.attr}{behind}"
        func = func.value
        if (found := made.get(ast.unparse(func))) is not None:
            return f"{found}{behind}"
    return ""


def _root(node: ast.expr) -> str:
    while isinstance(node, ast.Attribute):
        node = node.value
    return node.id if isinstance(node, ast.Name) else ""


def _caught(tree: ast.Module) -> Iterator[ast.AST]:
    """The statements of a ``try`` that is there for imports and does without them where one fails."""
    for node in ast.walk(tree):
        if not isinstance(node, ast.Try) or len(node.handlers) != 1 or not isinstance(node.handlers[0].type, ast.Name):
            continue
        instead = [one for part in node.handlers[0].body for one in ast.walk(part)]
        modules = {one.module.partition(".")[0] for one in node.body if isinstance(one, ast.ImportFrom) and one.module}
        others = {one.module.partition(".")[0] for one in instead if isinstance(one, ast.ImportFrom) and one.module}
        if TRIED.search(node.handlers[0].type.id) and not modules & others:
            yield from node.body


def _guarded(tree: ast.Module) -> Iterator[ast.AST]:
    """All nodes below a ``try`` that catches what a missing name raises, and below a test of a version."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Try):
            caught = [ast.unparse(one.type) if one.type else "Exception" for one in node.handlers]
            is_short = len(node.body) <= SHORT
            uncertain = any(TRIED.search(one) or (is_short and ANYTHING.search(one)) for one in caught)
        elif isinstance(node, ast.If | ast.IfExp):
            uncertain = bool(LOOKS.search(ast.unparse(node.test)))
        elif isinstance(node, ast.With):
            uncertain = any(TRIED.search(ast.unparse(one.context_expr)) for one in node.items)
        else:
            uncertain = False
        if uncertain:
            yield from ast.walk(node)
