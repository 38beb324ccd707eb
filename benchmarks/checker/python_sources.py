"""What a release of a Python package binds, read from its sources without running them.

A release is a tree of files: an archive of its source, or a tag of a git mirror. Each file is parsed once, whatever
the number of releases that hold it.
"""

import ast
import hashlib
import re
import subprocess
import tarfile
import warnings
import zipfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

LISTED = ("MODULE_ATTRS",)  # tables of names that a module's __getattr__ serves
LISTED_BY_MODULE = ("_SUBMOD_ATTRS", "_import_structure")  # the same: module -> its names
SELF = ("self", "cls")
MODELS = ("BaseModel",)  # of pydantic
RECORDS = re.compile(r"\b(?:dataclass|config|Struct|NamedTuple|\w*BaseModel)\b")


class Signature(NamedTuple):
    """The keywords of a call; ``is_open``: it takes any others, too.

    ``order``: what it takes by place; ``required``: what has no default; ``is_variadic``: places without an end.
    """

    keywords: frozenset[str]
    is_open: bool
    order: tuple[str, ...] = ()
    required: frozenset[str] = frozenset()
    is_variadic: bool = False


class ClassFacts(NamedTuple):
    """One class: its bases as written, the fields of its body, what it defines.

    ``is_record``: its fields are the arguments that make one; ``by_name``: and by name alone.
    """

    bases: tuple[str, ...]
    fields: Mapping[str, bool]  # whether it has a default
    methods: Mapping[str, Signature]
    is_record: bool = False
    by_name: bool = False


class ModuleFacts(NamedTuple):
    """``own``: public names that the module defines; ``taken``: those that it imports, with where from.

    ``stars``: modules that it takes everything of; ``is_open``: it makes names up while it runs.
    """

    own: frozenset[str]
    taken: Mapping[str, str]
    stars: tuple[str, ...]
    is_open: bool
    classes: Mapping[str, ClassFacts]
    functions: Mapping[str, Signature]


Tree = Mapping[str, bytes]
"""Dotted name of a module, a package's with ``.__init__`` at its end -> its source."""


def archive_tree(path: Path, package: str) -> Tree:
    """The modules of ``package`` in an archive of its source, whose first folder has any name, or in a wheel."""
    found = {}
    if path.suffix == ".whl":
        with zipfile.ZipFile(path) as wheel:
            inside = {name.rpartition("/purelib/")[2]: name for name in wheel.namelist() if name.endswith(".py")}
            named = {name: path for name, path in inside.items() if name.startswith(f"{package}/")}
            return {_dotted(name): wheel.read(path) for name, path in named.items()}
    with tarfile.open(path) as archive:
        for member in archive:
            _, _, name = member.name.partition("/")
            if member.isfile() and name.startswith(f"{package}/") and name.endswith(".py"):
                file = archive.extractfile(member)
                found[_dotted(name)] = file.read() if file is not None else b""
    return found


def mirror_tree(mirror: Path, tag: str, roots: Mapping[str, str]) -> Tree:
    """The modules at a tag of a mirror. ``roots``: folder of the repository -> the package's folder in it."""
    listing = _git(mirror, "ls-tree", "-r", tag).decode()
    blobs = {}
    for line in listing.splitlines():
        head, _, path = line.partition("\t")
        for root, package in roots.items():
            inside = path.removeprefix(root)
            if path.startswith(root) and inside.startswith(f"{package}/") and inside.endswith(".py"):
                blobs[_dotted(inside)] = head.split()[2]
    return _contents(mirror, blobs)


def tags(mirror: Path) -> list[str]:
    return _git(mirror, "tag").decode().split()


def _git(mirror: Path, *words: str, fed: bytes = b"") -> bytes:
    return subprocess.run(["git", "-C", str(mirror), *words], input=fed, capture_output=True, check=True).stdout


def _contents(mirror: Path, blobs: Mapping[str, str]) -> Tree:
    answer = _git(mirror, "cat-file", "--batch", fed="\n".join(blobs.values()).encode())
    found, position = {}, 0
    for name in blobs:
        end = answer.index(b"\n", position)
        size = int(answer[position:end].split()[2])
        found[name] = answer[end + 1 : end + 1 + size]
        position = end + size + 2
    return found


def _dotted(path: str) -> str:
    return path.removesuffix(".py").replace("/", ".")


_READ: dict[bytes, ModuleFacts] = {}


def module_facts(source: bytes, name: str) -> ModuleFacts:
    """What the module binds. ``name``: as in a :data:`Tree`."""
    key = hashlib.sha1(name.encode() + b"\0" + source).digest()
    if key not in _READ:
        _READ[key] = _read(source, name)
    return _READ[key]


def _read(source: bytes, name: str) -> ModuleFacts:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            tree = ast.parse(source)
    except (SyntaxError, ValueError):
        return ModuleFacts(frozenset(), {}, (), True, {}, {})
    reader = _Reader(name)
    reader.body(tree.body)
    served = any(one in reader.own for one in (*LISTED, *LISTED_BY_MODULE))
    made = "__getattr__" in reader.functions or b"sys.modules[" in source
    is_open = (made and not served) or (b"globals()" in source and not served)
    own = frozenset(one for one in reader.own if not one.startswith("_"))
    taken = {one: origin for one, origin in reader.taken.items() if not one.startswith("_")}
    return ModuleFacts(own, taken, tuple(reader.stars), is_open, reader.classes, reader.functions)


class _Reader:
    def __init__(self, name: str) -> None:
        is_package = name.endswith(".__init__")
        self.package = name.removesuffix(".__init__") if is_package else name.rpartition(".")[0]
        self.own: set[str] = set()
        self.taken: dict[str, str] = {}
        self.stars: list[str] = []
        self.classes: dict[str, ClassFacts] = {}
        self.functions: dict[str, Signature] = {}

    def body(self, statements: list[ast.stmt]) -> None:
        for one in statements:
            self.statement(one)

    def statement(self, one: ast.stmt) -> None:
        if isinstance(one, ast.ClassDef):
            self.own.add(one.name)
            self.classes[one.name] = _class(one)
        elif isinstance(one, ast.FunctionDef | ast.AsyncFunctionDef):
            self.own.add(one.name)
            self.functions[one.name] = _signature(one)
        elif isinstance(one, ast.ImportFrom):
            self.imported(one)
        elif isinstance(one, ast.Import):
            for alias in one.names:
                self.taken[alias.asname or alias.name.partition(".")[0]] = alias.name
        else:
            self.assigned(one)
            for part in ("body", "orelse", "finalbody"):
                self.body(getattr(one, part, []))
            for handler in getattr(one, "handlers", []):
                self.body(handler.body)

    def assigned(self, one: ast.stmt) -> None:
        targets: list[ast.expr] = []
        if isinstance(one, ast.Assign):
            targets = one.targets
        elif isinstance(one, ast.AnnAssign | ast.AugAssign | ast.For):
            targets = [one.target]
        for target in targets:
            stored = (node for node in ast.walk(target) if isinstance(node, ast.Name))
            self.own |= {node.id for node in stored if isinstance(node.ctx, ast.Store)}
            value = getattr(one, "value", None)
            if isinstance(target, ast.Name) and target.id in LISTED and isinstance(value, ast.Dict):
                keys = [key.value for key in value.keys if isinstance(key, ast.Constant)]
                self.taken |= {str(key): self.package for key in keys}
            is_table = isinstance(target, ast.Name) and target.id in LISTED_BY_MODULE
            added = isinstance(target, ast.Subscript) and ast.unparse(target.value) in LISTED_BY_MODULE
            if (is_table and isinstance(value, ast.Dict)) or (added and isinstance(target, ast.Subscript)):
                keys_of = value.keys if isinstance(value, ast.Dict) else [getattr(target, "slice", None)]
                values = value.values if isinstance(value, ast.Dict) else [value]
                for key, names in zip(keys_of, values, strict=True):
                    for name in ast.walk(names) if isinstance(names, ast.List) else ():
                        if isinstance(key, ast.Constant) and isinstance(name, ast.Constant):
                            self.taken[str(name.value)] = f"{self.package}.{key.value!s}.{name.value!s}"

    def imported(self, one: ast.ImportFrom) -> None:
        parts = self.package.split(".")
        base = ".".join(parts[: len(parts) - one.level + 1]) if one.level else ""
        module = ".".join(part for part in (base, one.module or "") if part)
        for alias in one.names:
            if alias.name == "*":
                self.stars.append(module)
            else:
                self.taken[alias.asname or alias.name] = f"{module}.{alias.name}"


def _class(node: ast.ClassDef) -> ClassFacts:
    fields: dict[str, bool] = {}
    methods: dict[str, Signature] = {}
    for one in node.body:
        if isinstance(one, ast.AnnAssign) and isinstance(one.target, ast.Name):
            if "ClassVar" not in ast.unparse(one.annotation) and not _is_left_out(one.value):
                fields[one.target.id] = one.value is not None
        elif isinstance(one, ast.FunctionDef | ast.AsyncFunctionDef):
            before = methods.get(one.name)  # overloads stand before the method itself
            now = _signature(one)
            if before is not None:
                now = now._replace(
                    keywords=before.keywords | now.keywords,
                    is_open=before.is_open or now.is_open,
                    is_variadic=before.is_variadic or now.is_variadic,
                )
            methods[one.name] = now
    bases = tuple(ast.unparse(base) for base in node.bases)
    makers = " ".join(ast.unparse(one) for one in (*node.decorator_list, *node.keywords))
    is_record = bool(RECORDS.search(" ".join([makers, *bases])))
    by_name = "kw_only=True" in makers or any(base.endswith(MODELS) for base in bases)
    return ClassFacts(bases, fields, methods, is_record, by_name)


def _is_left_out(value: ast.expr | None) -> bool:
    """``field(init=False)``."""
    given = value.keywords if isinstance(value, ast.Call) else ()
    return any(one.arg == "init" and ast.unparse(one.value) == "False" for one in given)


def _signature(node: ast.FunctionDef | ast.AsyncFunctionDef) -> Signature:
    given = node.args
    every = [one.arg for one in (*given.posonlyargs, *given.args)]
    needed = set(every[: len(every) - len(given.defaults)])
    needed |= {one.arg for one, default in zip(given.kwonlyargs, given.kw_defaults, strict=True) if default is None}
    names = {one.arg for one in (*given.args, *given.kwonlyargs) if one.arg not in SELF}
    decorators = " ".join(ast.unparse(one) for one in node.decorator_list)
    is_open = given.kwarg is not None or "deprecate" in decorators
    order = tuple(one for one in every if one not in SELF)
    return Signature(frozenset(names), is_open, order, frozenset(needed - set(SELF)), given.vararg is not None)


def walk_modules(tree: Tree) -> Iterator[tuple[str, bool, str]]:
    """Dotted name, whether it is a package, and its key in the tree."""
    for key in tree:
        is_package = key.endswith(".__init__")
        yield key.removesuffix(".__init__") if is_package else key, is_package, key
