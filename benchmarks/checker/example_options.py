"""Make packages/trtllm_check/releases/data/example_options.yml: options of TensorRT-LLM's example scripts by release.

    python -m benchmarks.checker.example_options MIRROR   # a fork with the commits of python_names.yml
    python -m benchmarks.checker.example_options --backend CLONE   # of tensorrtllm_backend: backend_options.yml

Read are calls of ``add_argument``, in the script and in the functions beside it that get its parser. One that hands
its parser elsewhere, or takes options that it does not know, has ``**`` there; ``.`` stands for the script itself.
"""

import ast
import re
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterator, Mapping
from pathlib import Path, PurePosixPath

import yaml

from benchmarks.checker.python_names import CONFIG, Spans, _by_spans, written

TABLE = Path(__file__).parents[2] / "packages/trtllm_check/releases/data/example_options.yml"
HEADING = "# Made by benchmarks/checker/example_options.py; see packages/trtllm_check/releases/clients.py and NOTICE."
BACKEND = TABLE.with_name("backend_options.yml")
SCRIPT = re.compile(r"(?:examples|benchmarks/(?:python|cpp))/(?!.*(?:tests?/|triton))[\w./-]+\.py")
OF_BACKEND = re.compile(r"(?:inflight_batcher_llm/client|tools/(?:inflight_batcher_llm|gpt))/[\w.-]+\.py")
LAST_OF_BACKEND = "0.19.0"  # then they stand in TensorRT-LLM's own repository, below triton_backend
VERSION = re.compile(r"v(\d+\.\d+\.\d+)")
OPTION = re.compile(r"--?[A-Za-z][\w-]*")
LEAST = 3
ANY = "**"
THERE = "."  # stands for the script itself


class Scripts:
    """The scripts of one release."""

    def __init__(self, mirror: Path, commit: str, script: re.Pattern[str]) -> None:
        listed = _git(mirror, "ls-tree", "-r", "--name-only", commit).decode().splitlines()
        self.sources = {name: _git(mirror, "show", f"{commit}:{name}") for name in listed if script.fullmatch(name)}
        self.trees: dict[str, ast.Module] = {}

    def tree(self, name: str) -> ast.Module | None:
        if name not in self.sources:
            return None
        if name not in self.trees:
            self.trees[name] = ast.parse(self.sources[name])
        return self.trees[name]

    def options(self, name: str) -> set[str]:
        tree = self.tree(name)
        if tree is None:
            return set()
        found = set(_options(tree))
        imported = dict(self._imported(tree, name))
        own = {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}
        for node in ast.walk(tree):
            if isinstance(node, ast.Call):
                found |= self._handed(node, imported, own)
        return found

    def _imported(self, tree: ast.Module, name: str) -> Iterator[tuple[str, str]]:
        """Names from modules that lie beside the script or among the examples."""
        folder = str(PurePosixPath(name).parent)
        for node in ast.walk(tree):
            if isinstance(node, ast.ImportFrom) and node.module:
                path = node.module.replace(".", "/")
                places = (f"{one}/{path}.py" for one in (folder, "examples", str(PurePosixPath(folder).parent)))
                place = next((one for one in places if one in self.sources), "")
                yield from ((one.asname or one.name, f"{place}:{one.name}") for one in node.names)

    def _handed(self, call: ast.Call, imported: Mapping[str, str], own: set[str]) -> set[str]:
        """What a function that gets the parser adds to it."""
        called = ast.unparse(call.func)
        if called.endswith(".parse_known_args"):
            return {ANY}
        if called.endswith("Parser") and any(one.arg == "parents" for one in call.keywords):
            return {ANY}
        given = [*call.args, *(one.value for one in call.keywords)]
        if not any(isinstance(one, ast.Name) and "parser" in one.id for one in given):
            return set()
        if called in own or called.endswith((".add_parser", "isinstance")):
            return set()
        place, _, function = imported.get(called, "").partition(":")
        tree = self.tree(place)
        for node in ast.walk(tree) if tree is not None else ():
            if isinstance(node, ast.FunctionDef) and node.name == function:
                return set(_options(node)) | {ANY for one in ast.walk(node) if _hands_on(one)}
        return {ANY}


def _hands_on(node: ast.AST) -> bool:
    given = node.args if isinstance(node, ast.Call) else []
    return any(isinstance(one, ast.Name) and "parser" in one.id for one in given)


def _options(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call) or not ast.unparse(node.func).endswith("add_argument"):
            continue
        for one in node.args:
            if isinstance(one, ast.Constant) and isinstance(one.value, str):
                if OPTION.fullmatch(one.value):
                    yield one.value
                    if "BooleanOptionalAction" in ast.unparse(node):
                        yield one.value.replace("--", "--no-", 1)
            else:
                yield ANY


def _git(mirror: Path, *words: str) -> bytes:
    return subprocess.run(["git", "-C", str(mirror), *words], capture_output=True, check=True).stdout


def main() -> None:
    if sys.argv[1] == "--backend":
        mirror = Path(sys.argv[2])
        tags = [tag for tag in _git(mirror, "tag").decode().split() if VERSION.fullmatch(tag)]
        numbers = sorted(tuple(int(one) for one in tag[1:].split(".")) for tag in tags)
        names = [".".join(map(str, one)) for one in numbers]
        names = names[: names.index(LAST_OF_BACKEND) + 1]
        project = "triton-inference-server/tensorrtllm_backend"
        make(mirror, {name: f"v{name}" for name in names}, OF_BACKEND, BACKEND, project)
    else:
        commits: dict[str, str] = yaml.safe_load(CONFIG.read_text())["tensorrt_llm"]["commits"]
        make(Path(sys.argv[1]), commits, SCRIPT, TABLE, "NVIDIA/TensorRT-LLM")


def make(mirror: Path, commits: Mapping[str, str], script: re.Pattern[str], table: Path, project: str) -> None:
    """Write ``table`` from the commits of each release."""
    order = list(commits)
    found: dict[str, Spans] = defaultdict(lambda: defaultdict(list))
    having: Spans = defaultdict(list)
    for release, commit in commits.items():
        scripts = Scripts(mirror, commit, script)
        for name in scripts.sources:
            options = scripts.options(name)
            having[name].append(release)
            if len(options) >= LEAST:
                for option in options:
                    found[name][option].append(release)
    for name, options_of in found.items():
        options_of[THERE] = having[name]
        read = {release for option, releases in options_of.items() if option != THERE for release in releases}
        otherwise = [one for one in having[name] if one not in read]  # made by click, or in the package
        if otherwise:
            options_of[ANY] = sorted({*options_of[ANY], *otherwise}, key=order.index)
    content = {
        "source": f"{project}, the commits of {order[0]} to {order[-1]}",
        "releases": " ".join(order),
        "scripts": {name: _by_spans(found[name], order) for name in sorted(found)},
    }
    table.write_text(written(content, HEADING))
    print(f"{table.name}: {len(found)} scripts, {table.stat().st_size} bytes")


if __name__ == "__main__":
    main()
