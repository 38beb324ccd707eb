"""Make the table of Helm values: packages/trtllm_check/lint/carriers/helm_values.yml.

    python -m benchmarks.checker.helm_values MIRRORS   # vllm-project+production-stack/repo

A value is known where the schema, the defaults or a template of any release of the chart names it.
"""

import argparse
import json
import re
import subprocess
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

from trtllm_check.lint.carriers.schema import HERE

REPOSITORY, TAGS, FOLDER = "vllm-project/production-stack", r"vllm-stack-[\d.]+", "helm/"
WIDTH = 118
ACTION = re.compile(r"\{\{.*?\}\}", re.DOTALL)
WORD = re.compile(r"[.\"]([a-z]\w*)")
# Parts whose keys are looked at, by the name of the template's variable or the path of the values.
PARTS = {
    "servingEngineSpec": r"\.Values\.servingEngineSpec",
    "servingEngineSpec.modelSpec": r"(?:\$?modelSpec|\.modelSpec)",
    "servingEngineSpec.modelSpec.vllmConfig": r"vllmConfig",
    "servingEngineSpec.modelSpec.lmcacheConfig": r"lmcacheConfig",
    "servingEngineSpec.modelSpec.raySpec": r"raySpec",
    "routerSpec": r"\.Values\.routerSpec",
    "cacheserverSpec": r"\.Values\.cacheserverSpec",
}


def sources(mirror: Path) -> Iterator[tuple[str, str]]:
    """Path and text of each file of the chart in each release, every text once."""
    seen = set()
    for tag in (*[one for one in _git(mirror, "tag").split() if re.fullmatch(TAGS, one)], "HEAD"):
        for line in _git(mirror, "ls-tree", "-r", tag, FOLDER).splitlines():
            head, _, path = line.partition("\t")
            blob = head.split()[2]
            if blob not in seen and re.search(r"templates/|values[\w.-]*\.(?:ya?ml|json)$", path):
                seen.add(blob)
                yield path, _git(mirror, "cat-file", "blob", blob)


def _git(mirror: Path, *words: str) -> str:
    return subprocess.run(["git", "-C", str(mirror), *words], capture_output=True, check=True, text=True).stdout


def of_schema(node: dict[str, Any], path: str) -> Iterator[tuple[str, str]]:
    """The keys below each part of a JSON schema."""
    for name, inside in node.get("properties", {}).items():
        yield path, name
        below = f"{path}.{name}".lstrip(".")
        yield from of_schema(inside, below)
        yield from of_schema(inside.get("items", {}), below)


def of_values(node: Any, path: str) -> Iterator[tuple[str, str]]:
    for one in node if isinstance(node, list) else [node]:
        for name, inside in one.items() if isinstance(one, dict) else ():
            yield path, name
            yield from of_values(inside, f"{path}.{name}".lstrip("."))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("mirrors", type=Path)
    mirror = parser.parse_args().mirrors / REPOSITORY.replace("/", "+") / "repo"
    keys: dict[str, set[str]] = defaultdict(set)
    words: set[str] = set()
    for path, text in sources(mirror):
        words |= {word for action in ACTION.findall(text) for word in WORD.findall(action)}
        found: list[tuple[str, str]] = []
        if path.endswith(".json"):
            found += of_schema(json.loads(text), "")
        elif "templates/" not in path:
            found += of_values(yaml.safe_load(text), "")
        for part, pattern in PARTS.items():
            found += [(part, name) for name in re.findall(rf"{pattern}(?:\.|\)? \")(\w+)", text)]
        for part, name in found:
            keys[part].add(name)
            words.add(name)
    parts = {part: " ".join(sorted(keys[part])) for part in PARTS}
    known = {name for part in PARTS for name in keys[part]}
    tag = sorted(re.findall(TAGS, _git(mirror, "tag")), key=lambda one: [int(n) for n in re.findall(r"\d+", one)])[-1]
    commit = _git(mirror, "rev-parse", "--short=8", "HEAD").strip()
    content = {
        "source": f"{REPOSITORY}, chart vllm-stack to {tag} and @{commit}",
        "parts": parts,
        "words": " ".join(sorted(words - known)),
    }
    heading = "# Made by benchmarks/checker/helm_values.py. `words`: whatever else the chart's files name; see NOTICE."
    text = yaml.safe_dump(content, sort_keys=False, width=WIDTH)
    (HERE / "helm_values.yml").write_text(f"{heading}\n{text}")
    print({part: len(names.split()) for part, names in parts.items()}, len(text))


if __name__ == "__main__":
    main()
