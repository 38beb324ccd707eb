"""Make the tables of custom resources: packages/trtllm_check/lint/carriers/custom_resources/*.yml.

    python -m benchmarks.checker.custom_resources MIRRORS [project ...]   # folders such as kserve+kserve/repo

Which projects and files: custom_resources.yml beside this file. All releases of a project are put
together: a field that any of them has is known, a field is required where all want it. Parts that Kubernetes defines
become its types.
"""

import argparse
import re
import subprocess
from collections import defaultdict
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml
from packaging.version import Version

from trtllm_check.lint.carriers.schema import HERE, Type, read_types

CONFIG = Path(__file__).with_suffix(".yml")
TABLES = HERE / "custom_resources"
WIDTH = 118
COMMON = ("apiVersion", "kind", "metadata", "status")
ALIKE = 0.75  # of the fields of a type of Kubernetes that a part has in common with it
LEAST = 2  # a part with no more fields is written as its own
VARIABLE = {"name", "value", "valueFrom"}  # what rules of their own look at
UNREAD = ("securityContext", "lifecycle", "status")
PLAIN = {"string": "text", "integer": "number", "number": "number", "boolean": "switch"}
Node = dict[str, Any]
OPEN: Node = {"x-kubernetes-preserve-unknown-fields": True, "default": True}


def merged(one: Node, other: Node) -> Node:
    """What either of two schemas takes; required is what both want."""
    if not one or not other:
        return one or other
    if one.get("type") != other.get("type") or _is_open(one) or _is_open(other):
        return OPEN
    found: Node = {"type": one.get("type")}
    ours, theirs = one.get("properties", {}), other.get("properties", {})
    if bool(ours) != bool(theirs):
        return OPEN
    if ours:
        found["properties"] = {
            name: merged(ours.get(name, {}), theirs.get(name, {})) for name in dict.fromkeys((*ours, *theirs))
        }
        found["required"] = [name for name in one.get("required", []) if name in other.get("required", [])]
    for part in ("items", "additionalProperties"):
        if isinstance(one.get(part), dict) and isinstance(other.get(part), dict):
            found[part] = merged(one[part], other[part])
    if "default" in one or "default" in other:
        found["default"] = True
    if one.get("enum") and other.get("enum"):
        found["enum"] = list(dict.fromkeys((*one["enum"], *other["enum"])))
    return found


def _is_open(node: Node) -> bool:
    return bool(node.get("x-kubernetes-preserve-unknown-fields") or node.get("x-kubernetes-int-or-string"))


class Types:
    """The types of one project, each written once."""

    def __init__(self, known: Mapping[str, Type]) -> None:
        self.known = known
        self.written: dict[str, Node] = {}
        self.names: dict[str, str] = {}

    def kind(self, node: Node, name: str) -> str:
        """The kind of a value, with a type of its own where it is a table."""
        if _is_open(node):
            return "any"
        kind = node.get("type", "")
        if kind in PLAIN:
            return PLAIN[kind]
        if kind == "array":
            inside = self.kind(node.get("items", {}), name)
            return f"{inside}*" if inside != "any" and not inside.endswith(("*", "}")) else "any*"
        if kind == "object" and node.get("properties"):
            return self._table(node, name)
        if kind == "object" and isinstance(node.get("additionalProperties"), dict):
            inside = self.kind(node["additionalProperties"], name)
            return f"{inside}{{}}" if inside == "text" else "any"
        return "any"

    def _table(self, node: Node, name: str) -> str:
        properties = node["properties"]
        if "valueFrom" in properties and set(properties) <= VARIABLE:
            return "any"
        like = self._like(set(properties))
        if like and set(properties) <= set(self.known[like].fields):
            return like
        fields: dict[str, list[str]] = defaultdict(list)
        choices = {}
        for field, value in properties.items():
            if like and field in self.known[like].fields:
                continue
            kind = "any" if field in UNREAD else self.kind(value, f"{name}{field[0].upper()}{field[1:]}")
            fields[kind].append(field)
            values = value.get("enum", ())
            if values and all(isinstance(one, str) and one for one in values):
                choices[field] = list(values)
        entry: Node = {"like": like} if like else {}
        entry["fields"] = {kind: " ".join(sorted(names)) for kind, names in sorted(fields.items())}
        required = sorted(one for one in node.get("required", ()) if "default" not in properties[one])
        if required and not like:
            entry["required"] = required
        if choices:
            entry["choices"] = choices
        text = yaml.safe_dump(entry)
        if text not in self.names:
            while name in self.written:  # another version's
                name += "Other"
            self.names[text] = name
            self.written[name] = entry
        return self.names[text]

    def _like(self, fields: set[str]) -> str:
        """The type of Kubernetes that has these fields, or nearly."""
        scores = {
            name: len(fields & set(type_.fields)) / len(fields | set(type_.fields))
            for name, type_ in self.known.items()
        }
        best = max(scores, key=lambda one: (scores[one], one))
        return best if scores[best] >= ALIKE and len(fields) > LEAST else ""


def documents(mirror: Path, wanted: Mapping[str, Any]) -> Iterator[tuple[str, Node]]:
    """The definitions at each tag and at the newest commit, those of a file once."""
    tags = {}
    for tag in _git(mirror, "tag").split():
        if match := re.fullmatch(wanted["tags"], tag):
            tags[tag] = Version(match[1])
    seen = set()
    for tag in (*sorted(tags, key=lambda one: tags[one]), "HEAD"):
        for line in _git(mirror, "ls-tree", "-r", tag).splitlines():
            head, _, path = line.partition("\t")
            blob = head.split()[2]
            if not re.fullmatch(wanted["files"], path) or blob in seen:
                continue
            seen.add(blob)
            for one in yaml.load_all(_git(mirror, "cat-file", "blob", blob), yaml.CSafeLoader):
                if isinstance(one, dict) and one.get("kind") == "CustomResourceDefinition":
                    yield tag, one


def _git(mirror: Path, *words: str) -> str:
    return subprocess.run(["git", "-C", str(mirror), *words], capture_output=True, check=True, text=True).stdout


def table(mirror: Path, wanted: Mapping[str, Any], known: Mapping[str, Type]) -> Node:
    """The table of one project."""
    specs: dict[tuple[str, str], Node] = {}
    tags: list[str] = []
    for tag, one in documents(mirror, wanted):
        kind, group = one["spec"]["names"]["kind"], one["spec"]["group"]
        if kind in wanted.get("without", ()):
            continue
        tags.append(tag)
        for version in one["spec"]["versions"]:
            whole = version.get("schema", {}).get("openAPIV3Schema", {})
            own = {name: part for name, part in whole.get("properties", {}).items() if name not in COMMON}
            name = (kind, f"{group}/{version['name']}")
            specs[name] = merged(specs.get(name, {}), {"type": "object", "properties": own})
    types = Types(known)
    kinds: dict[str, Node] = defaultdict(dict)
    for (kind, version), spec in sorted(specs.items()):
        parts: dict[str, list[str]] = defaultdict(list)
        for name, part in spec.get("properties", {}).items():
            parts[types.kind(part, f"{kind}{name[0].upper()}{name[1:]}")].append(name)
        if parts:
            kinds[kind][version] = {one: " ".join(names) for one, names in sorted(parts.items())}
    commit = _git(mirror, "rev-parse", "--short=8", "HEAD").strip()
    named = [tag for tag in tags if tag != "HEAD"]
    source = f"{wanted['repository']}, {named[0]} to {named[-1]} and @{commit}" if named else f"@{commit}"
    return {"source": source, "kinds": dict(kinds), "types": types.written}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("mirrors", type=Path)
    parser.add_argument("projects", nargs="*")
    asked = parser.parse_args()
    config = yaml.safe_load(CONFIG.read_text())
    types = read_types("kubernetes.yml")
    known = {name: types[name] for name in config["shared"].split()}
    TABLES.mkdir(exist_ok=True)
    for project, wanted in config["projects"].items():
        if asked.projects and project not in asked.projects:
            continue
        mirror = asked.mirrors / wanted["repository"].replace("/", "+") / "repo"
        content = table(mirror, wanted, known)
        text = yaml.safe_dump(content, sort_keys=False, width=WIDTH, default_flow_style=None)
        path = TABLES / f"{project}.yml"
        path.write_text(f"# Made by benchmarks/checker/custom_resources.py; see kubernetes.yml and NOTICE.\n{text}")
        print(f"{path.name}: {len(content['kinds'])} kinds, {len(content['types'])} types, {path.stat().st_size} bytes")
    index: dict[str, dict[str, str]] = {}
    for path in sorted(TABLES.glob("*.yml")):
        for kind, entry in yaml.safe_load(path.read_text())["kinds"].items():
            index.setdefault(kind, {}).update(dict.fromkeys(entry, path.stem))
    lines = [
        f"  {kind}: {{{', '.join(f'{version}: {table}' for version, table in found.items())}}}"
        for kind, found in sorted(index.items())
    ]
    heading = "# Made by benchmarks/checker/custom_resources.py: which table has a kind of which group and version."
    (HERE / "custom_resources.yml").write_text("\n".join([heading, "kinds:", *lines, ""]))


if __name__ == "__main__":
    main()
