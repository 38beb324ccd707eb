"""The source of one release of vLLM, read from its archive without running any of it."""

import ast
import re
import tarfile
from collections.abc import Iterator
from functools import cached_property
from pathlib import Path

from packaging.version import Version

ARCHIVE = re.compile(r"vllm-(?P<version>\d[\w.]*?)\.tar\.gz")
FIRST = Version("0.2.0")
READ = re.compile(
    r"vllm/(?:envs|config|sampling_params|utils|scripts|platforms|engine|entrypoints|benchmarks|reasoning|tool_parsers|"
    r"executor|worker|v1|model_executor/layers/quantization|model_executor/model_loader|transformers_utils|lora|"
    r"attention|distributed|multimodal|parser|tokenizers|renderers|usage|logger|compilation|pooling_params)"
)
ALIAS = re.compile(r"^(\w+)(?:: [^=\n]+)? = ", re.MULTILINE)
Class = ast.ClassDef


def archives(folder: Path) -> dict[Version, Path]:
    """Each release's archive, the oldest first; pre-releases and those before 0.2 are left out."""
    found = {Version(match["version"]): path for path in folder.iterdir() if (match := ARCHIVE.fullmatch(path.name))}
    return {one: found[one] for one in sorted(found) if one >= FIRST and not one.is_prerelease}


class Source:
    """The modules of one release. A name that several modules define is taken from the one with the shortest path."""

    def __init__(self, path: Path) -> None:
        self.texts: dict[str, str] = {}
        self.all: list[str] = []  # of every module, for what is read from the environment anywhere
        with tarfile.open(path) as archive:
            for member in archive:
                name = member.name.partition("/")[2]
                if not name.endswith(".py") or not name.startswith(("vllm/", "setup.py")):
                    continue
                if file := archive.extractfile(member):
                    self.all.append(file.read().decode("utf-8", errors="replace"))
                    if READ.match(name):
                        self.texts[name] = self.all[-1]
        self.trees: dict[str, ast.Module] = {}

    def tree(self, name: str) -> ast.Module:
        if name not in self.trees:
            self.trees[name] = ast.parse(self.texts[name])
        return self.trees[name]

    @cached_property
    def _homes(self) -> dict[str, list[str]]:
        """Name of a class or of a module's variable -> the files that define it."""
        homes: dict[str, list[str]] = {}
        order = sorted(self.texts, key=lambda name: (not name.startswith("vllm/config"), name.count("/"), len(name)))
        for file in order:
            text = self.texts[file]
            for name in {*re.findall(r"^class (\w+)", text, re.MULTILINE), *ALIAS.findall(text)}:
                homes.setdefault(name, []).append(file)
        return homes

    def class_of(self, name: str, near: str = "") -> tuple[Class, str] | None:
        """The class of this name, and its file; one of the file ``near`` first."""
        homes = self._homes.get(name, [])
        for file in sorted(homes, key=lambda one: one != near):
            for node in self.tree(file).body:
                if isinstance(node, ast.ClassDef) and node.name == name:
                    return node, file
        return None

    def value_of(self, name: str, near: str = "") -> ast.expr | None:
        """What a module's variable is set to."""
        homes = self._homes.get(name, [])
        for file in sorted(homes, key=lambda one: one != near):
            for node in self.tree(file).body:
                if isinstance(node, ast.Assign) and any(_is(target, name) for target in node.targets):
                    return node.value
                if isinstance(node, ast.AnnAssign) and _is(node.target, name) and node.value is not None:
                    return node.value
        return None

    def fields_of(self, name: str, near: str = "") -> dict[str, ast.expr]:
        """The annotated fields of a class and of those that it inherits from, but no ClassVar."""
        found = self.class_of(name, near)
        if found is None:
            return {}
        node, file = found
        fields: dict[str, ast.expr] = {}
        for base in reversed(node.bases):
            base = base.value if isinstance(base, ast.Subscript) else base
            if isinstance(base, ast.Name) and base.id != name:
                fields |= self.fields_of(base.id, file)
        for one in node.body:
            if not isinstance(one, ast.AnnAssign) or not isinstance(one.target, ast.Name):
                continue
            if not ast.unparse(one.annotation).startswith("ClassVar") and not one.target.id.startswith("_"):
                fields[one.target.id] = one.annotation
        return fields

    def functions(self, file: str) -> Iterator[tuple[str, ast.FunctionDef]]:
        """Each function of a file with the name of its class, "" for none."""
        for node in self.tree(file).body if file in self.texts else ():
            if isinstance(node, ast.FunctionDef):
                yield "", node
            elif isinstance(node, ast.ClassDef):
                yield from ((node.name, one) for one in node.body if isinstance(one, ast.FunctionDef))


def _is(target: ast.expr, name: str) -> bool:
    return isinstance(target, ast.Name) and target.id == name
