"""Make the table of LMI's keys by version: packages/trtllm_check/releases/data/lmi/keys.yml.

    python -m benchmarks.checker.lmi_keys --mirror FOLDER   # a git repository of deepjavalibrary/djl-serving

Read are the documents and the front end of each branch that an image was built from.
"""

import argparse
import re
import subprocess
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import yaml

TABLE = Path(__file__).parents[2] / "packages/trtllm_check/releases/data/lmi/keys.yml"
NEWEST = "0.36.0-lmi27"
VERSIONS = (
    *("0.19.0", "0.20.0", "0.21.0", "0.22.1", "0.23.0", "0.24.0", "0.25.0", "0.26.0", "0.27.0", "0.28.0", "0.29.0"),
    *("0.30.0", "0.31.0", "0.32.0", "0.33.0", "0.34.0", "0.35.0", NEWEST),
)
READ = re.compile(
    r"serving/docs/.*\.md|(?:engines/python/setup|serving/docker/partition)/.*\.py"
    r"|(?:engines/python|wlm)/src/main/.*\.java"
)
HANDLERS = "engines/python/setup/djl_python/"
NAMED = re.compile(r"\boption\.([A-Za-z]\w*)")
LOOKED_UP = re.compile(r"""properties(?:\.get\(|\[|\.pop\()\s*['"]([A-Za-z]\w*)['"]""")
FIELD = re.compile(r"(?m)^ {4}([a-z]\w*)\s*:\s*[\w\[\]., ]+(?:=|$)")
VARIABLE = re.compile(r"\bOPTION_([A-Z][A-Z0-9_]*)")
HANDLES = re.compile(r"(?m)^(?:async )?def handle\(")
NO_KEYS = frozenset({"else", "var", "my_var", "kwargs"})  # words of examples and of Python
WIDTH = 118
HEAD = """# Made by benchmarks/checker/lmi_keys.py; see packages/trtllm_check/releases/lmi_keys.py.
# `keys`: option.NAME in the documents or the front end of images, from one version to another; `handlers`: modules with
# a function `handle`, which option.entryPoint may name as djl_python.NAME.
"""


def _git(mirror: Path, *words: str) -> str:
    return subprocess.run(
        ["git", "-C", str(mirror), *words], check=True, capture_output=True, text=True, errors="replace"
    ).stdout


def _keys(name: str, text: str) -> Iterator[str]:
    yield from NAMED.findall(text)
    if name.endswith(".md"):
        yield from (one.lower() for one in VARIABLE.findall(text))
        return
    yield from LOOKED_UP.findall(text)
    if "properties_manager" in name:
        yield from FIELD.findall(text)


def _module(name: str) -> str:
    inside = name.removeprefix(HANDLERS).removesuffix(".py").replace("/", ".")
    return inside if inside == inside.lower() and not inside.endswith("__init__") else ""


def table(mirror: Path) -> dict[str, object]:
    """The spans of every key and of every module."""
    keys: dict[str, list[str]] = defaultdict(list)
    modules: dict[str, list[str]] = defaultdict(list)
    for version in VERSIONS:
        names = _git(mirror, "ls-tree", "-r", "--name-only", f"{version}-dlc").split("\n")
        found: set[str] = set()
        for name in names:
            if READ.fullmatch(name) and "/tests/" not in name:
                found |= set(_keys(name, _git(mirror, "show", f"{version}-dlc:{name}")))
            is_module = name.startswith(HANDLERS) and name.endswith(".py") and "/tests/" not in name
            if is_module and _module(name) and HANDLES.search(_git(mirror, "show", f"{version}-dlc:{name}")):
                modules[_module(name)].append(version)
        for key in found - NO_KEYS:
            keys[key].append(version)
    return {
        "source": f"deepjavalibrary/djl-serving, branches {VERSIONS[0]}-dlc to {NEWEST}-dlc",
        "versions": " ".join(one.partition("-")[0] for one in VERSIONS),
        "keys": {name: _span(keys[name]) for name in sorted(keys)},
        "handlers": {name: _span(modules[name]) for name in sorted(modules)},
    }


def _span(versions: list[str]) -> str:
    first, last = (one.partition("-")[0] for one in (versions[0], versions[-1]))
    return f"{first}.." if versions[-1] == NEWEST else f"{first}..{last}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--mirror", type=Path, required=True)
    content = yaml.safe_dump(table(parser.parse_args().mirror), sort_keys=False, width=WIDTH)
    TABLE.write_text(HEAD + content, encoding="utf-8")


if __name__ == "__main__":
    main()
