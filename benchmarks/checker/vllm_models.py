"""Writes packages/trtllm_check/releases/data/models/vllm.yml: the architectures of each release of vLLM.

    python benchmarks/checker/vllm_models.py FOLDER

FOLDER holds vLLM's source distributions, vllm-<version>.tar.gz. Nothing of them is run: the registry is a mapping in
Python, and only its keys are taken.
"""

import argparse
import ast
import re
import tarfile
from collections.abc import Iterator
from pathlib import Path

HERE = Path(__file__).parents[2] / "packages" / "trtllm_check" / "releases" / "data" / "models" / "vllm.yml"
REGISTRY = re.compile(r"vllm/model_executor/(?:models/registry|models/__init__|model_loader)\.py$")
TABLE = re.compile(r"^_\w*(?:MODELS|REGISTRY)$")
NOT_THERE = re.compile(r"PREVIOUSLY|ODM|UNSUPPORTED")
FINAL = re.compile(r"\d+(?:\.\d+)*(?:\.post\d+)?")
HEAD = """\
# Architectures of vLLM: the first release with an implementation of its own, and the last one where it went again.
# Read in the registry of vllm {first} to {last} (vllm/model_executor/models/registry.py, in earlier releases
# models/__init__.py or model_loader.py) by benchmarks/checker/vllm_models.py; not written by hand. What was there in
# the first release that was read has no `since`.
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("folder", type=Path)
    folder: Path = parser.parse_args().folder
    by_version = {version: architectures(path) for version, path in _distributions(folder)}
    by_version = {version: found for version, found in by_version.items() if found}
    HERE.write_text(_written(by_version), encoding="utf-8")
    print(f"{HERE.name}: {len(by_version)} versions")


def _distributions(folder: Path) -> list[tuple[str, Path]]:
    found = {path.name.removeprefix("vllm-").removesuffix(".tar.gz"): path for path in folder.glob("vllm-*.tar.gz")}
    return sorted(((name, path) for name, path in found.items() if FINAL.fullmatch(name)), key=lambda one: _key(one[0]))


def _key(version: str) -> list[int]:
    return [int(number) for number in re.findall(r"\d+", version)]


def architectures(path: Path) -> set[str]:
    """The architectures of one distribution."""
    names: set[str] = set()
    with tarfile.open(path) as archive:
        for member in archive:
            if REGISTRY.search(member.name) and (file := archive.extractfile(member)):
                names |= set(_keys(file.read().decode()))
    return names


def _keys(text: str) -> Iterator[str]:
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Assign):
            target, value = node.targets[0], node.value
        elif isinstance(node, ast.AnnAssign) and node.value is not None:
            target, value = node.target, node.value
        else:
            continue
        if not isinstance(target, ast.Name) or not TABLE.match(target.id) or NOT_THERE.search(target.id):
            continue
        for key in value.keys if isinstance(value, ast.Dict) else ():
            if isinstance(key, ast.Constant) and isinstance(key.value, str):
                yield key.value


def _written(by_version: dict[str, set[str]]) -> str:
    versions = list(by_version)
    lines = [
        HEAD.format(first=versions[0], last=versions[-1]),
        f"versions: [{', '.join(versions)}]\n",
        "architectures:\n",
    ]
    for name in sorted(set().union(*by_version.values())):
        have = [version for version in versions if name in by_version[version]]
        facts = [f"since: {have[0]}"] if have[0] != versions[0] else []
        facts += [f"until: {have[-1]}"] if have[-1] != versions[-1] else []
        lines.append(f"  {name}: {{{', '.join(facts)}}}\n")
    return "".join(lines)


if __name__ == "__main__":
    main()
