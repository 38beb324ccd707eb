"""Writes packages/trtllm_check/releases/data/models/hub.yml: which architecture published models are.

    python -m benchmarks.checker.vllm_hub FOLDER

FOLDER holds vLLM's source distributions, vllm-<version>.tar.gz. Read are the tables of docs/models/supported_models.md
and, without running it, tests/models/registry.py. A name that stands with several architectures is left out.
"""

import ast
import re
import sys
import tarfile
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from textwrap import fill

HERE = Path(__file__).parents[2] / "packages" / "trtllm_check" / "releases" / "data" / "models" / "hub.yml"
READ = re.compile(r"/(?:supported_models\.md|tests/models/registry\.py)$")
ROW = re.compile(r"^\|\s*`(\w+)`")
NAME = re.compile(r"`([\w.-]+/[\w.-]+)`")
HUB = re.compile(r"[\w.-]+/[\w.-]+")
MADE_INTO = re.compile(r"Embedding|Reward|Classification|Pooling|MTP|Eagle|Medusa|Draft|Transformers|Score|Rank|Model$")
OTHERS = ("_EMBEDDING", "_SPECULATIVE", "_REWARD", "_SEQUENCE", "_TOKEN", "_LATE", "_TRANSFORMERS")
HEAD = """\
# Published models by architecture, as vLLM's documents and tests name them: supported_models.md and
# tests/models/registry.py of the source distributions of vLLM, by benchmarks/checker/vllm_hub.py. `remote`: those that
# need code of their own.
"""
Found = dict[str, set[str]]


def main() -> None:
    found: Found = defaultdict(set)
    remote: set[str] = set()
    for path in sorted(Path(sys.argv[1]).glob("vllm-*.tar.gz")):
        with tarfile.open(path) as archive:
            for member in archive:
                if READ.search(member.name) and (file := archive.extractfile(member)):
                    text = file.read().decode()
                    pairs = _rows(text) if member.name.endswith(".md") else _examples(text, remote)
                    for architecture, name in pairs:
                        found[name.lower()].add(architecture)
    by_architecture: Found = defaultdict(set)
    for name, architectures in found.items():
        if len(architectures) == 1:
            by_architecture[next(iter(architectures))].add(name)
    lines = [HEAD, "models:\n"]
    lines += [_names(one, sorted(by_architecture[one]), "  ") for one in sorted(by_architecture)]
    known = {name for names in by_architecture.values() for name in names}
    lines.append(_names("remote", sorted(remote & known), ""))
    HERE.write_text("".join(lines), encoding="utf-8")
    print(f"{HERE.name}: {len(known)} models, {HERE.stat().st_size} bytes")


def _names(key: str, names: list[str], indent: str) -> str:
    inner = f"{indent}  "
    text = fill(" ".join(names), 116, initial_indent=inner, subsequent_indent=inner, break_on_hyphens=False)
    return f"{indent}{key}: >-\n{text}\n"


def _rows(text: str) -> Iterator[tuple[str, str]]:
    for line in text.splitlines():
        row = ROW.match(line.replace("<sup>", " <sup>"))
        if row and not MADE_INTO.search(row[1]):
            yield from ((row[1], name) for name in NAME.findall(line))


def _examples(text: str, remote: set[str]) -> Iterator[tuple[str, str]]:
    for node in ast.parse(text).body:
        target = node.targets[0] if isinstance(node, ast.Assign) else getattr(node, "target", None)
        table = getattr(node, "value", None)
        if not isinstance(target, ast.Name) or target.id.startswith(OTHERS) or not isinstance(table, ast.Dict):
            continue
        for key, value in zip(table.keys, table.values, strict=True):
            if isinstance(key, ast.Constant) and isinstance(value, ast.Call) and not MADE_INTO.search(str(key.value)):
                names = list(_named(value))
                if any(one.arg == "trust_remote_code" and ast.unparse(one.value) == "True" for one in value.keywords):
                    remote |= {name.lower() for name in names}
                yield from ((str(key.value), name) for name in names)


def _named(call: ast.Call) -> Iterator[str]:
    extras = [one.value for one in call.keywords if one.arg == "extras"] + list(call.args[1:2])
    for one in (*call.args[:1], *(value for each in extras if isinstance(each, ast.Dict) for value in each.values)):
        if isinstance(one, ast.Constant) and isinstance(one.value, str) and HUB.fullmatch(one.value):
            yield one.value


if __name__ == "__main__":
    main()
