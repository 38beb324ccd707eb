"""Make the table of commands of huggingface_hub's tools: packages/trtllm_check/releases/data/hub_commands.yml.

    python -m benchmarks.checker.hub_commands FOLDER   # huggingface_hub-0.36.0-py3-none-any.whl and its like

Commands are read from the calls that make them (argparse before 1.0, typer and its like afterwards), which are not run.
"""

import ast
import re
import sys
import zipfile
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

from packaging.version import Version

from benchmarks.checker.python_names import Spans, _by_spans, written

TABLE = Path(__file__).parents[2] / "packages/trtllm_check/releases/data/hub_commands.yml"
HEADING = "# Made by benchmarks/checker/hub_commands.py; see packages/trtllm_check/releases/clients.py and NOTICE."
TOOLS = {"huggingface-cli": "commands", "hf": "cli"}


def commands(tree: ast.Module) -> Iterator[str]:
    """The first words that a tool takes."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            yield from _made(node)
        elif isinstance(node, ast.AnnAssign | ast.Assign):
            target = node.target if isinstance(node, ast.AnnAssign) else node.targets[0]
            rows = node.value.elts if isinstance(node.value, ast.List) else []
            for row in rows if isinstance(target, ast.Name) and target.id.startswith("_LAZY") else ():
                first = row.elts[0] if isinstance(row, ast.Tuple) else None
                yield from (str(first.value),) if isinstance(first, ast.Constant) else ()


def _made(node: ast.Call) -> Iterator[str]:
    called = ast.unparse(node.func) if isinstance(node.func, ast.Attribute) else ""
    named = [str(one.value.value) for one in node.keywords if one.arg == "name" and isinstance(one.value, ast.Constant)]
    if called == "parser.add_parser":
        yield from (str(one.value) for one in node.args[:1] if isinstance(one, ast.Constant))
    elif called == "app.add_typer":
        yield from named
    elif isinstance(node.func, ast.Call) and ast.unparse(node.func.func) == "app.command":
        inner = node.func
        texts = [str(one.value) for one in inner.args[:1] if isinstance(one, ast.Constant)]
        texts += [str(k.value.value) for k in inner.keywords if k.arg == "name" and isinstance(k.value, ast.Constant)]
        yield from texts or (one.id.replace("_", "-") for one in node.args[:1] if isinstance(one, ast.Name))


def main() -> None:
    paths = {path.name.split("-")[1]: path for path in Path(sys.argv[1]).glob("huggingface_hub-*.whl")}
    order = sorted(paths, key=Version)
    content = {}
    for tool, folder in TOOLS.items():
        found: Spans = defaultdict(list)
        for release in order:
            with zipfile.ZipFile(paths[release]) as wheel:
                scripts = next(name for name in wheel.namelist() if name.endswith("entry_points.txt"))
                if not re.search(rf"^{tool}\s*=", wheel.read(scripts).decode(), re.MULTILINE):
                    continue
                files = [one for one in wheel.namelist() if re.fullmatch(rf"huggingface_hub/{folder}/\w+\.py", one)]
                made = (name for file in files for name in commands(ast.parse(wheel.read(file))))
                for command in {one for each in made for one in each.split(" | ")}:
                    found[command].append(release)
        for command, having in found.items():  # made in another way between two releases that have it
            found[command] = order[order.index(having[0]) : order.index(having[-1]) + 1]
        content[tool] = {
            "source": f"wheels of huggingface_hub {order[0]} to {order[-1]} (PyPI), the last of each minor version",
            "releases": " ".join(order),
            "options": _by_spans(found, order),
        }
    TABLE.write_text(written(content, HEADING))
    print(f"{TABLE.name}: {len(order)} releases, {TABLE.stat().st_size} bytes")


if __name__ == "__main__":
    main()
