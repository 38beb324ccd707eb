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

from benchmarks.checker.python_packages import Package, form_of
from benchmarks.checker.python_sources import archive_tree, mirror_tree, tags

CONFIG = Path(__file__).with_suffix(".yml")
TABLES = Path(__file__).parents[2] / "packages/trtllm_check/releases/data/python"
WIDTH = 118
OTHERS = "*"  # stands for names that are not in a table
LEAST = 0.6  # of the modules of the release before; an archive with fewer holds a part only


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
    arguments: dict[str, Spans] = defaultdict(lambda: defaultdict(list))
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
            if signature is not None:
                arguments[call][form_of(signature)].append(release)
        for call, places in wanted.get("arguments", {}).items():
            if signature := next((one for place in places if (one := package.joined([place]))), None):
                arguments[call][form_of(signature)].append(release)
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
        "arguments": {
            call: {spans(having, order): form for form, having in found.items()} for call, found in arguments.items()
        },
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
    content["arguments"] = by_hand.get("arguments", content["arguments"])
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
