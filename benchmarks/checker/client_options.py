"""Make the table of options of tools that load or front a server: packages/trtllm_check/releases/data/clients.yml.

    python -m benchmarks.checker.client_options WHEELS MIRRORS

WHEELS holds wheels of genai-perf and aiperf, MIRRORS git repositories such as vllm-project+production-stack/repo.
Options are read from calls that make them (argparse, click, aiperf's parameters), without running the tools.
"""

import argparse
import ast
import re
import subprocess
import zipfile
from collections import defaultdict
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml
from packaging.version import Version

from benchmarks.checker.python_names import WIDTH, spans

CONFIG = Path(__file__).with_suffix(".yml")
TABLE = Path(__file__).parents[2] / "packages/trtllm_check/releases/data/clients.yml"
OPTION = re.compile(r"--?[A-Za-z][\w-]*")


def options(source: bytes, makers: tuple[str, ...]) -> Iterator[str]:
    """The options that calls of ``makers`` name in their positional arguments and in ``name``."""
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError):
        return
    for node in ast.walk(tree):
        called = node.func if isinstance(node, ast.Call) else None
        name = called.id if isinstance(called, ast.Name) else called.attr if isinstance(called, ast.Attribute) else ""
        if not isinstance(node, ast.Call) or name not in makers:
            continue
        given = [*node.args, *(one.value for one in node.keywords if one.arg in ("name", "negative"))]
        for part in (inner for one in given for inner in ast.walk(one)):
            for text in str(part.value).split("/") if isinstance(part, ast.Constant) else ():
                if OPTION.fullmatch(text):
                    yield text


def of_wheels(folder: Path, wanted: Mapping[str, Any]) -> Iterator[tuple[str, set[str]]]:
    for path in folder.rglob(wanted["wheels"]):
        with zipfile.ZipFile(path) as wheel:
            files = [name for name in wheel.namelist() if re.fullmatch(wanted["files"], name)]
            makers = tuple(wanted["makers"])
            yield path.name.split("-")[1], {one for name in files for one in options(wheel.read(name), makers)}


def of_mirror(mirrors: Path, wanted: Mapping[str, Any]) -> Iterator[tuple[str, set[str]]]:
    mirror = mirrors / wanted["repository"].replace("/", "+") / "repo"
    for tag in _git(mirror, "tag").decode().split():
        match = re.fullmatch(wanted["tags"], tag)
        listed = _git(mirror, "ls-tree", "-r", "--name-only", tag).decode().splitlines() if match else []
        files = [name for name in listed if re.fullmatch(wanted["files"], name)]
        makers = tuple(wanted["makers"])
        found = {one for name in files for one in options(_git(mirror, "show", f"{tag}:{name}"), makers)}
        if match and found:
            yield match[1], found


def _git(mirror: Path, *words: str) -> bytes:
    return subprocess.run(["git", "-C", str(mirror), *words], capture_output=True, check=True).stdout


def table(found: Mapping[str, set[str]], wanted: Mapping[str, Any]) -> dict[str, Any]:
    order = sorted(found, key=Version)
    having: dict[str, list[str]] = defaultdict(list)
    for release in order:
        for option in found[release]:
            having[option].append(release)
    grouped: dict[str, list[str]] = defaultdict(list)
    for option, releases in having.items():
        grouped[spans(releases, order)].append(option)
    first = sorted(grouped, key=lambda one: (order.index(one.split("..")[0]), one))
    return {
        "source": wanted["source"],
        "releases": " ".join(order),
        "options": {key: " ".join(sorted(grouped[key])) for key in first},
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("wheels", type=Path)
    parser.add_argument("mirrors", type=Path)
    asked = parser.parse_args()
    content = {}
    for tool, wanted in yaml.safe_load(CONFIG.read_text()).items():
        found = of_wheels(asked.wheels, wanted) if "wheels" in wanted else of_mirror(asked.mirrors, wanted)
        content[tool] = table(dict(found), wanted)
        print(tool, len(content[tool]["releases"].split()), "releases", len(str(content[tool])), "characters")
    text = yaml.safe_dump(content, sort_keys=False, width=WIDTH, default_flow_style=False)
    TABLE.write_text(
        f"# Made by benchmarks/checker/client_options.py; see packages/trtllm_check/releases/clients.py.\n{text}"
    )


if __name__ == "__main__":
    main()
