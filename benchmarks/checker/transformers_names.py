"""Make the table of transformers' public names by release: packages/trtllm_check/releases/data/python/transformers.yml.

    python -m benchmarks.checker.transformers_names FOLDER   # transformers-4.51.3-py3-none-any.whl and its like

The package binds its names while it runs: from the tables of its ``__init__.py`` and, from 4.48 on, from ``__all__`` of
each module of a model. ``from_pretrained`` takes out of its keywords what it knows, and hands the rest to the model.
"""

import ast
import re
import sys
import zipfile
from collections import defaultdict
from collections.abc import Iterator
from fnmatch import fnmatchcase
from functools import cache
from pathlib import Path

import yaml
from packaging.version import Version

from benchmarks.checker.python_names import OTHERS, TABLES, Spans, _by_spans, written

CONFIG = Path(__file__).with_suffix(".yml")
NAME = re.compile(r"[A-Za-z]\w*")
STRUCTURE = "_import_structure"
TAKEN_OUT = re.compile(r"kwargs\.(?:pop|get)\(\s*\"(\w+)\"")
OF_MODELS = "define_import_structure"
READ_HERE = ("modeling_utils", "models.auto.auto_factory", "configuration_utils", "utils.hub")
HEADING = "# Made by benchmarks/checker/transformers_names.py; see releases/python_names.py and NOTICE."


class Wheel:
    """One release."""

    def __init__(self, path: Path) -> None:
        self.archive = zipfile.ZipFile(path)
        found = (name for name in self.archive.namelist() if name.startswith("transformers/") and name.endswith(".py"))
        self.files = {name.removeprefix("transformers/").removesuffix(".py").replace("/", "."): name for name in found}

    def text(self, module: str) -> str:
        return self.archive.read(self.files[module]).decode() if module in self.files else ""

    def tree(self, module: str) -> ast.Module:
        return ast.parse(self.text(module))

    def names(self) -> set[str]:
        """What can be asked of the package itself, its modules included."""
        tree = self.tree("__init__")
        found = {name.partition(".")[0] for name in self.files}
        for node in ast.walk(tree):
            if isinstance(node, ast.ImportFrom) and (node.level or (node.module or "").startswith("transformers")):
                found |= {one.asname or one.name for one in node.names}
            elif isinstance(node, ast.List | ast.Dict):
                found |= {text.partition(".")[0] for text in _texts(node)}
        for node in ast.walk(tree):
            if isinstance(node, ast.Call) and ast.unparse(node.func).startswith(f"{STRUCTURE}["):
                found |= set(_texts(node))
        if OF_MODELS in self.text("__init__"):
            for module in self.files:
                if module.startswith("models."):
                    found |= _listed(self.text(module))
        return {one for one in found if NAME.fullmatch(one)}

    def fields(self, module: str, name: str) -> set[str]:
        """The fields of a dataclass, or the parameters of a class."""
        for node in self.tree(module).body:
            if isinstance(node, ast.ClassDef) and node.name == name:
                made = [one for one in node.body if isinstance(one, ast.FunctionDef) and one.name == "__init__"]
                if made:
                    given = made[0].args
                    # @deprecate_kwarg("tokenizer", ...) takes the earlier name still
                    earlier = [text for one in made[0].decorator_list for text in list(_texts(one))[:1]]
                    return {*(one.arg for one in (*given.args, *given.kwonlyargs)), *earlier} - {"self"}
                fields = [one.target for one in node.body if isinstance(one, ast.AnnAssign)]
                return {one.id for one in fields if isinstance(one, ast.Name)}
        return set()

    def loaded(self) -> set[str]:
        """The keywords that the loading of a model knows: it names them, takes them out, or has them in a list."""
        found: set[str] = set()
        for module in READ_HERE:
            for node in ast.walk(self.tree(module)):
                if isinstance(node, ast.FunctionDef) and node.name == "from_pretrained":
                    found |= {one.arg for one in (*node.args.args, *node.args.kwonlyargs)}
                elif isinstance(node, ast.List | ast.Tuple | ast.Set):
                    found |= set(_texts(node))
            found |= set(TAKEN_OUT.findall(self.text(module)))
        return found


def _texts(node: ast.AST) -> Iterator[str]:
    for one in ast.walk(node):
        if isinstance(one, ast.Constant) and isinstance(one.value, str):
            yield one.value


@cache
def _listed(text: str) -> frozenset[str]:
    """The names of ``__all__``, and those below ``@requires``."""
    return frozenset(_exported(ast.parse(text)))


def _exported(tree: ast.Module) -> Iterator[str]:
    for node in tree.body:
        if isinstance(node, ast.Assign | ast.AugAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            if any(isinstance(one, ast.Name) and one.id == "__all__" for one in targets):
                yield from _texts(node.value)
        elif isinstance(node, ast.ClassDef | ast.FunctionDef) and any(
            ast.unparse(one).startswith("requires(") for one in node.decorator_list
        ):
            yield node.name


def main() -> None:
    wanted = yaml.safe_load(CONFIG.read_text())
    folder = Path(sys.argv[1])
    paths = {path.name.split("-")[1]: path for path in folder.glob("transformers-*.whl")}
    order = sorted(paths, key=Version)
    names: Spans = defaultdict(list)
    calls: dict[str, Spans] = defaultdict(lambda: defaultdict(list))
    for release in order:
        wheel = Wheel(paths[release])
        for name in wheel.names():
            if not any(fnmatchcase(name, pattern) for pattern in wanted["unlisted"].split()):
                names[name].append(release)
        for call, (module, name) in wanted["calls"].items():
            for field in wheel.fields(module, name):
                calls[call][field].append(release)
        known = wheel.loaded()
        for field in wanted["loading"].split():
            if field in known:
                calls["from_pretrained"][field].append(release)
        calls["from_pretrained"][OTHERS].append(release)
        print(release, len(names), file=sys.stderr)
    content = {
        "source": f"wheels of transformers {order[0]} to {order[-1]} (PyPI), first and last of each minor version",
        "releases": " ".join(order),
        "modules": {f"{order[0]}..": "transformers"},
        "open": {},
        "names": {"transformers": _by_spans(names, order)},
        "others": "",
        "unlisted": wanted["unlisted"],
        "moved": {},
        "calls": {call: _by_spans(found, order) for call, found in calls.items()},
        "alike": wanted["alike"],
        "members": {},
    }
    path = TABLES / "transformers.yml"
    path.write_text(written(content, HEADING))
    print(f"{path.name}: {len(order)} releases, {path.stat().st_size} bytes")


if __name__ == "__main__":
    main()
