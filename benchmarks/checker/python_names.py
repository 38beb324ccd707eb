"""Make the tables of public Python names by release: packages/trtllm_check/releases/data/python/*.yml.

    python -m benchmarks.checker.python_names vllm --archives FOLDER   # vllm-0.6.3.tar.gz and its like
    python -m benchmarks.checker.python_names sagemaker --mirror FOLDER  # a git repository with tags
    python -m benchmarks.checker.python_names tensorrt_llm --mirror FOLDER  # a fork with its commits

What is covered stands in python_names.yml beside this file. A name's *spans* are the releases that have it, such as
``0.6.4..0.10.2`` or ``0.6.4..`` where the last release that was read has it still.
"""

import argparse
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import yaml
from packaging.version import Version

from benchmarks.checker.python_sources import (
    ClassFacts,
    ModuleFacts,
    Signature,
    Tree,
    archive_tree,
    mirror_tree,
    module_facts,
    tags,
    walk_modules,
)

CONFIG = Path(__file__).with_suffix(".yml")
TABLES = Path(__file__).parents[2] / "packages/trtllm_check/releases/data/python"
WIDTH = 118
OTHERS = "*"  # stands for names that are not in a table
LEAST = 0.6  # of the modules of the release before; an archive with fewer holds a part only


class Modules(Mapping[str, ModuleFacts]):
    """The modules of a release, each read when somebody asks for it."""

    def __init__(self, sources: Mapping[str, tuple[str, bytes]]) -> None:
        self.sources = sources

    def __getitem__(self, name: str) -> ModuleFacts:
        key, source = self.sources[name]
        return module_facts(source, key)

    def __iter__(self) -> Iterator[str]:
        return iter(self.sources)

    def __len__(self) -> int:
        return len(self.sources)


class Package:
    """One package in one release."""

    def __init__(self, tree: Tree) -> None:
        self.modules = Modules({name: (key, tree[key]) for name, _, key in walk_modules(tree)})
        self.packages: set[str] = set()
        for name, is_package, _ in walk_modules(tree):
            if is_package:
                self.packages.add(name)
            parts = name.split(".")
            self.packages |= {".".join(parts[:end]) for end in range(1, len(parts))}
        self.known = frozenset(self.modules) | self.packages
        self.children: dict[str, set[str]] = defaultdict(set)
        for name in self.known:
            self.children[name.rpartition(".")[0]].add(name.rpartition(".")[2])

    def names(self, module: str, seen: frozenset[str] = frozenset()) -> tuple[set[str], set[str], bool]:
        """Names that belong to the module, names that it took from elsewhere, and whether it may have others."""
        facts = self.modules.get(module)
        own = set(self.children.get(module, ()))
        if facts is None:
            return own, set(), module not in self.packages
        root = module.partition(".")[0]
        inside = {name for name, origin in facts.taken.items() if origin.partition(".")[0] == root}
        others, is_open = set(facts.taken) - inside, facts.is_open
        own |= facts.own
        if module in self.packages:
            own |= inside
        else:
            others |= inside
        for star in facts.stars:
            if star in self.known and star not in seen:
                theirs, too, more = self.names(star, seen | {module})
                own, others, is_open = own | theirs, others | too, is_open or more
            else:
                is_open = True
        return own, others - own, is_open

    def signature(self, dotted: str) -> Signature | None:
        """The keywords of a function, of a method, or of a class by its constructor or its fields."""
        module, name = self._split(dotted)
        facts = self.modules.get(module)
        if facts is None:
            return None
        owner, _, method = name.partition(".")
        if method:
            return self._method(module, owner, method)
        if owner in facts.functions:
            return facts.functions[owner]
        return self._constructor(module, owner)

    def joined(self, places: list[str]) -> Signature | None:
        """The keywords of a call that hands what it does not take to the next of the places, and so on."""
        found = [one for place in places if (one := self.signature(place))]
        if not found or len(found) < len(places):
            return None
        taken: frozenset[str] = frozenset()
        for one in found:
            taken |= one.keywords
            if not one.is_open:
                return Signature(taken, is_open=False)
        return Signature(taken, is_open=True)

    def members(self, dotted: str) -> set[str] | None:
        """The public methods of a class, with those of its bases; None where a base is not known."""
        module, name = self._split(dotted)
        found = self._class(module, name)
        if found is None:
            return None
        module, facts = found
        own = {one for one in (*facts.methods, *facts.fields) if not one.startswith("_")}
        for base in facts.bases:
            if base not in ("object", "ABC", "EngineClient"):
                inherited = self.members(f"{module}.{base}")
                if inherited is None:
                    return None
                own |= inherited
        return own

    def _split(self, dotted: str) -> tuple[str, str]:
        parts = dotted.split(".")
        end = max((end for end in range(1, len(parts)) if ".".join(parts[:end]) in self.known), default=0)
        return ".".join(parts[:end]), ".".join(parts[end:])

    def _class(self, module: str, name: str, depth: int = 0) -> tuple[str, ClassFacts] | None:
        """Where it is defined, and what it holds."""
        facts = self.modules.get(module)
        if facts is None or depth > 5:
            return None
        if name in facts.classes:
            return module, facts.classes[name]
        origin = facts.taken.get(name, "")
        if not origin:
            return None
        source, _, there = origin.rpartition(".")
        return self._class(source, there, depth + 1)

    def _method(self, module: str, name: str, method: str) -> Signature | None:
        found = self._class(module, name)
        if found is None:
            return None
        module, facts = found
        if method in facts.methods:
            return facts.methods[method]
        return next((one for base in facts.bases if (one := self._method(module, base, method))), None)

    def _constructor(self, module: str, name: str) -> Signature | None:
        found = self._class(module, name)
        if found is None:
            return None
        module, facts = found
        for maker in ("__init__", "__new__"):
            if maker in facts.methods:
                return facts.methods[maker]
        fields, is_open = set(facts.fields), False
        for base in facts.bases:
            inherited = self._constructor(module, base.partition("[")[0])
            if inherited is not None:
                fields |= inherited.keywords
                is_open = is_open or inherited.is_open
        return Signature(frozenset(fields), is_open)


Spans = dict[str, list[str]]
"""What -> the releases that have it."""


def table(releases: list[tuple[str, Package]], wanted: Mapping[str, Any]) -> dict[str, Any]:
    """The whole table of a package."""
    order = [name for name, _ in releases]
    modules: Spans = defaultdict(list)
    names: dict[str, Spans] = defaultdict(lambda: defaultdict(list))
    others: set[str] = set()
    borrowed: dict[str, Spans] = defaultdict(lambda: defaultdict(list))
    opened: Spans = defaultdict(list)
    calls: dict[str, Spans] = defaultdict(lambda: defaultdict(list))
    members: dict[str, Spans] = defaultdict(lambda: defaultdict(list))
    for release, package in releases:
        for module in sorted(package.known):
            if _matches(module, wanted["opaque"]) or module.rpartition(".")[2].startswith("_"):
                continue
            modules[module].append(release)
            if not _matches(module, wanted["names"]) or _matches(module, wanted.get("nameless", ())):
                continue
            own, taken, is_open = package.names(module)
            others |= taken
            for name in taken:
                borrowed[module][name].append(release)
            for name in own:
                if not name.startswith("_"):
                    names[module][name].append(release)
            if is_open:
                opened[module].append(release)
        for call, places in wanted.get("calls", {}).items():
            signature = next((one for place in places if (one := package.joined(place.split(" + ")))), None)
            for name in signature.keywords if signature else ():
                calls[call][name].append(release)
            if signature and signature.is_open:
                calls[call]["**"].append(release)
        for call in wanted.get("takes_others", ()):
            calls[call][OTHERS].append(release)
        for owner, places in wanted.get("members", {}).items():
            inside = next((each for place in places if (each := package.members(place))), None)
            for name in inside if inside else ("**",):
                members[owner][name].append(release)
    for module, known in names.items():
        for name, having in known.items():  # what moved away and is imported back is there still
            having += borrowed[module].get(name, ())
            having.sort(key=order.index)
    moved = {name: place for name, place in _moved(releases, modules, names) if not _matches(name, wanted["opaque"])}
    return {
        "source": wanted["source"].format(last=order[-1]),
        "releases": " ".join(order),
        "modules": _by_spans(modules, order),
        "open": _by_spans(opened, order),
        "names": {module: _by_spans(names[module], order) for module in sorted(names)},
        "others": " ".join(sorted(others)),
        "moved": _grouped(moved),
        "calls": {call: _by_spans(found, order) for call, found in calls.items()},
        **({"alike": wanted["alike"]} if "alike" in wanted else {}),
        "members": {owner: _by_spans(found, order) for owner, found in members.items()},
    }


def _matches(name: str, patterns: Iterable[str]) -> bool:
    return any(fnmatchcase(name, pattern) for pattern in patterns)


def _by_spans(found: Spans, order: list[str]) -> dict[str, str]:
    """The names of each combination of spans, on one line."""
    grouped: dict[str, list[str]] = defaultdict(list)
    for name, releases in found.items():
        grouped[spans(releases, order)].append(name)
    return {
        key: " ".join(sorted(grouped[key])) for key in sorted(grouped, key=lambda one: order.index(one.split("..")[0]))
    }


def spans(releases: list[str], order: list[str]) -> str:
    """``0.6.4..0.10.2,0.11.0..``."""
    positions = sorted({order.index(one) for one in releases})
    runs: list[list[int]] = []
    for position in positions:
        if runs and runs[-1][1] == position - 1:
            runs[-1][1] = position
        else:
            runs.append([position, position])
    last = len(order) - 1
    return ",".join(f"{order[start]}..{'' if end == last else order[end]}" for start, end in runs)


def _grouped(moved: Mapping[str, str]) -> dict[str, dict[str, str]]:
    """Module -> where its names went -> the names."""
    found: dict[str, dict[str, list[str]]] = defaultdict(lambda: defaultdict(list))
    for dotted, place in moved.items():
        module, _, name = dotted.rpartition(".")
        found[module][place].append(name)
    return {module: {place: " ".join(names) for place, names in ends.items()} for module, ends in found.items()}


def _moved(
    releases: list[tuple[str, Package]], modules: Spans, names: Mapping[str, Spans]
) -> Iterator[tuple[str, str]]:
    """Where the last release defines what a module has no longer, where it is one place only."""
    by_name = dict(releases)
    last_name, last = releases[-1]
    defined: dict[str, list[str]] = defaultdict(list)
    for module, facts in last.modules.items():
        for name in (*facts.classes, *facts.functions):
            defined[name].append(module)
    for module, found in sorted(names.items()):
        ended = by_name[modules[module][-1]].modules.get(module)
        for name, having in sorted(found.items()):
            places = defined.get(name, [])
            was = by_name[having[-1]].modules.get(module) or ended
            is_own = was is not None and (name in was.classes or name in was.functions or "." not in module)
            if having[-1] != last_name and len(places) == 1 and is_own:
                yield f"{module}.{name}", places[0]
    for module, having in sorted(modules.items()):
        gone = by_name[having[-1]].modules.get(module)
        if having[-1] == last_name or gone is None:
            continue
        ends = Counter(defined[name][0] for name in gone.classes if len(defined.get(name, [])) == 1)
        if ends:
            yield module, ends.most_common(1)[0][0]


def without_inherited(content: dict[str, Any], inherits: Mapping[str, tuple[str, str]]) -> dict[str, Any]:
    """The table without the keywords of ``inherits`` that a class of another package takes, and so hands on."""
    for call, (package, base) in inherits.items():
        table = yaml.safe_load((TABLES / f"{package}.yml").read_text())["calls"][base]
        known = {name for names in table.values() for name in names.split()}
        own = {spans: set(names.split()) - known for spans, names in content["calls"][call].items()}
        content["calls"][call] = {spans: " ".join(sorted(names)) for spans, names in own.items() if names}
    return content


def read_archives(folder: Path, package: str, since: str, least: float = LEAST) -> list[tuple[str, Package]]:
    found = []
    for path in (*folder.glob(f"{package}-*.tar.gz"), *folder.glob(f"{package}-*.whl")):
        version = path.name.removeprefix(f"{package}-").removesuffix(".tar.gz").partition("-")[0]
        if Version(version) >= Version(since):
            found.append((version, path))
    found.sort(key=lambda one: Version(one[0]))
    read = [(version, Package(archive_tree(path, package))) for version, path in found]
    whole: list[tuple[str, Package]] = []
    for version, one in read:
        if package in one.known and (not whole or len(one.modules) > len(whole[-1][1].modules) * least):
            whole.append((version, one))
    return whole


def with_by_hand(content: dict[str, Any], by_hand: Mapping[str, Any]) -> dict[str, Any]:
    """The table with what is known otherwise, and with releases that were not read, in which anything may have come."""
    later = by_hand.get("releases", "").split()
    content["releases"] += "".join(f" {one}" for one in later)
    _put(content["modules"], by_hand.get("modules", {}))
    for section in ("names", "calls", "members"):
        for owner in content[section] if later else ():
            _put(content[section][owner], {f"{later[0]}..": OTHERS})
            if section == "members" or not _matches(owner, by_hand.get("stays_gone", ())):
                content[section][owner] = _reopened(content[section][owner], later[0])
        for owner, known in by_hand.get(section, {}).items():
            _put(content[section].setdefault(owner, {}), known)
    return content


def _reopened(table: Mapping[str, str], since: str) -> dict[str, str]:
    """The same, where what ended may have come back."""
    return {key if key.endswith("..") else f"{key},{since}..": names for key, names in table.items()}


def _put(table: dict[str, str], known: Mapping[str, str]) -> None:
    named = {name for names in known.values() for name in names.split()} - {OTHERS}
    for key, names in list(table.items()):
        table[key] = " ".join(one for one in names.split() if one not in named)
        if not table[key]:
            del table[key]
    for key, names in known.items():
        table[key] = " ".join(sorted({*table.get(key, "").split(), *names.split()}))


def read_mirror(mirror: Path, wanted: Mapping[str, Any]) -> list[tuple[str, Package]]:
    if "commits" in wanted:
        roots = wanted["roots"][""]
        return [(name, Package(mirror_tree(mirror, commit, roots))) for name, commit in wanted["commits"].items()]
    found = []
    for tag in tags(mirror):
        match = re.fullmatch(wanted["tags"], tag)
        if match and Version(match[1]) >= Version(wanted["since"]):
            found.append((Version(match[1]), match[1], tag))
    found.sort()
    result = []
    for version, name, tag in found:
        roots = next(roots for until, roots in wanted["roots"].items() if not until or version < Version(until))
        result.append((name, Package(mirror_tree(mirror, tag, roots))))
    return result


def written(content: Mapping[str, Any], heading: str) -> str:
    text = yaml.safe_dump(dict(content), sort_keys=False, width=WIDTH, default_flow_style=False, allow_unicode=True)
    return f"{heading}\n{text}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("package")
    parser.add_argument("--archives", type=Path)
    parser.add_argument("--mirror", type=Path)
    asked = parser.parse_args()
    wanted = yaml.safe_load(CONFIG.read_text())[asked.package]
    if asked.archives:
        releases = read_archives(asked.archives, asked.package, wanted["since"], wanted.get("least", LEAST))
    else:
        releases = read_mirror(asked.mirror, wanted)
    heading = (
        "# Made by benchmarks/checker/python_names.py; see packages/trtllm_check/releases/python_names.py and NOTICE."
    )
    path = TABLES / f"{asked.package}.yml"
    path.parent.mkdir(exist_ok=True)
    content = without_inherited(table(releases, wanted), wanted.get("inherits", {}))
    if "by_hand" in wanted:
        content = with_by_hand(content, wanted["by_hand"])
    path.write_text(written(content, heading))
    print(f"{path.name}: {len(releases)} releases, {path.stat().st_size} bytes")


if __name__ == "__main__":
    main()
