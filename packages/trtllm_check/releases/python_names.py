"""The public names of Python packages by release: which modules, names, methods and keywords each release has.

The tables in ``data/python`` are made from the packages' sources (``benchmarks/checker/python_names.py``). A name has
*spans*, such as ``0.6.4..0.10.2``: the first and the last release that have it; an open end is the newest read.
"""

from collections.abc import Mapping
from fnmatch import fnmatchcase
from functools import cache, cached_property
from pathlib import Path
from typing import Any, Literal, NamedTuple

from serving_base.yaml_files import read_yaml
from trtllm_check.releases.nearest import nearest

FOLDER = Path(__file__).parent / "data/python"
NEAR = 0.8
ANY = "**"  # takes any name, those of other releases too
OTHERS = "*"  # has others than those in the table
Kind = Literal["gone", "later", "never", "absent"]


class NameVerdict(NamedTuple):
    """Why ``name`` of ``owner`` is not there. ``owner`` is "" for a module.

    ``since``: the first release without it (gone), or the first with it (later); ``last``: the last that had it.
    "absent": the release has none of that name, and of some others not all names are known.
    ``moved``: where the newest release defines it; ``near``: the name that is most like it.
    """

    kind: Kind
    owner: str
    name: str
    since: str = ""
    last: str = ""
    moved: str = ""
    near: str = ""

    @property
    def dotted(self) -> str:
        return f"{self.owner}.{self.name}" if self.owner else self.name


class Signature(NamedTuple):
    """What a call takes. ``places``: the first names by place; ``most``: how many places there are, -1 for no end."""

    places: tuple[str, ...]
    required: frozenset[str]
    most: int

    @classmethod
    def of(cls, form: str) -> "Signature":
        """``name! path! base +3 ; request_id``: ``!`` where required, behind ``;`` what is required by name alone."""
        front, _, named = form.partition(";")
        words = front.split()
        places = [one for one in words if one != "*" and not one.startswith("+")]
        more = sum(int(one[1:]) for one in words if one.startswith("+"))
        required = {one.rstrip("!") for one in places if one.endswith("!")} | set(named.split())
        most = -1 if "*" in words else len(places) + more
        return cls(tuple(one.rstrip("!") for one in places), frozenset(required), most)


class PythonPackage:
    """The tables of one package."""

    def __init__(self, content: Mapping[str, Any]) -> None:
        self._near: dict[str, tuple[str, ...]] = {}
        self._read: dict[str, tuple[tuple[int, int], ...]] = {}  # spans -> first and last place of each
        self.source: str = content["source"]
        self.releases: tuple[str, ...] = tuple(content["releases"].split())
        self.modules = _flat(content["modules"])
        self.opened = _flat(content["open"])
        self.names = {module: _flat(found) for module, found in content["names"].items()}
        self.others = frozenset(content["others"].split())
        self.moved = {
            f"{module}.{name}": place
            for module, places in content["moved"].items()
            for place, names in places.items()
            for name in names.split()
        }
        self.unlisted = tuple(content.get("unlisted", "").split())
        self.whole = frozenset(content.get("whole", "").split())  # modules that bring no names but those in the table
        self.calls = {call: _flat(found) for call, found in content["calls"].items()}
        self.alike: dict[str, str] = content.get("alike", {})
        self.members = {owner: _flat(found) for owner, found in content["members"].items()}
        self.arguments: dict[str, dict[str, str]] = content.get("arguments", {})

    @cached_property
    def positions(self) -> dict[str, int]:
        return {name: number for number, name in enumerate(self.releases)}

    def near_releases(self, version: str) -> tuple[str, ...]:
        """The releases that say what ``version`` has: itself with its builds, or those before and after it.

        Nothing for one that is newer than all.
        """
        near = self._near.get(version)
        if near is None:
            near = self._near[version] = self._found_near(version)
        return near

    def _found_near(self, version: str) -> tuple[str, ...]:
        from packaging.version import InvalidVersion, Version

        try:
            asked = Version(version)
        except InvalidVersion:
            return ()
        same = tuple(one for one in self.releases if Version(one).release == asked.release)
        if version in same:
            return (version,)
        if same:
            return same
        before = [one for one in self.releases if Version(one) < asked]
        after = [one for one in self.releases if Version(one) > asked]
        return (*before[-1:], after[0]) if after else ()

    def judge(self, dotted: str, version: str) -> NameVerdict | None:
        """What is wrong with a dotted name in ``version``, in the newest release where that is ""; None for nothing."""
        module = self._module(dotted)
        if not module:
            return None
        verdict = self._placed(self.modules[module], version, "", module)
        if verdict is not None or module == dotted:
            return verdict
        name = dotted[len(module) + 1 :].partition(".")[0]
        known = self.names.get(module)
        if known is None or name.startswith("_"):
            return None
        if name in self.others and name not in known and module not in self.whole:
            return None
        if any(fnmatchcase(name, pattern) for pattern in self.unlisted):
            return None
        if self._holds(self.opened.get(module, ""), version):
            return None
        return self._in(known, version, module, name)

    def call_of(self, dotted: str) -> str:
        """The name by which the call has a table, "" for none: calls that are alike have one."""
        if dotted in self.calls:
            return dotted
        return next((call for pattern, call in self.alike.items() if fnmatchcase(dotted, pattern)), "")

    def has_arguments(self, dotted: str) -> bool:
        return bool(self.signed(dotted))

    def signature(self, dotted: str, version: str) -> "tuple[Signature, ...]":
        """What the call takes in ``version``, in all releases where that is "": each form once.

        Nothing where a release was not read.
        """
        found = self.arguments.get(self.signed(dotted), {})
        asked = set(self._places(version)) if version else set(range(len(self.releases)))
        forms, seen = [], set()
        for spans, form in found.items():
            here = {one for one in asked if any(first <= one <= last for first, last in self._ranges(spans))}
            seen |= here
            if here:
                forms.append(Signature.of(form))
        return tuple(forms) if seen == asked or (not version and seen) else ()

    def signed(self, dotted: str) -> str:
        """The name by which the call has a signature: its own, that of one that is alike, or its last parts."""
        names = [dotted, *(self.call_of(dotted[:end]) + dotted[end:] for end in _ends(dotted))]
        parts = dotted.split(".")
        names += [".".join(parts[start:]) for start in range(1, len(parts))]
        made = [one for one in parts[:-1] if not one.startswith("from_")]  # by a method of the class
        names += [".".join([*made[start:], parts[-1]]) for start in range(len(made))]
        return next((one for one in names if one in self.arguments), "")

    def judge_member(self, owner: str, name: str, version: str) -> NameVerdict | None:
        """The same of an attribute of an object of class ``owner``."""
        return self._inside(self.members.get(owner), owner, name, version)

    def judge_keyword(self, call: str, name: str, version: str, passed_on: str = "") -> NameVerdict | None:
        """The same of a keyword of ``call``, which hands what it does not take to ``passed_on``."""
        if passed_on not in self.calls or call not in self.calls:
            return self._inside(self.calls.get(self.call_of(call)), call, name, version)
        found = [self._in(self.calls[one], version, call, name) for one in (call, passed_on)]
        if None in found:
            return None
        return next((one for one in found if one is not None and one.kind != "never"), found[-1])

    def judge_command(self, tool: str, command: str, version: str) -> NameVerdict | None:
        """The same of a command of a tool, which releases may have none of."""
        return self._placed(self.calls[tool][command], version, tool, command)

    def _inside(self, known: Mapping[str, str] | None, owner: str, name: str, version: str) -> NameVerdict | None:
        if known is None or name.startswith("_") or self._holds(known.get(ANY, ""), version):
            return None
        if name in known and not any(self._holds(spans, version) for spans in known.values()):
            return None  # the whole call, or class, is not there
        return self._in(known, version, owner, name)

    def _in(self, known: Mapping[str, str], version: str, owner: str, name: str) -> NameVerdict | None:
        if name in known:
            return self._placed(known[name], version, owner, name)
        if self._holds(known.get(OTHERS, ""), version):
            alike = next((one for one in known if one.lower() == name.lower()), "")  # KVCacheConfig
            return NameVerdict("never", owner, name, near=alike) if alike else None
        here = [one for one, spans in known.items() if self._holds(spans, version)]
        near = nearest(name, frozenset(here), NEAR)
        return NameVerdict("absent" if OTHERS in known else "never", owner, name, near=near)

    def _module(self, dotted: str) -> str:
        """The longest beginning of ``dotted`` that is or was a module."""
        parts = dotted.split(".")
        names = (".".join(parts[:end]) for end in range(len(parts), 0, -1))
        return next((one for one in names if one in self.modules), "")

    def _asked(self, version: str) -> tuple[str, ...]:
        return self.near_releases(version) if version else self.releases[-1:]

    def _holds(self, spans: str, version: str) -> bool:
        """True where one of the releases that tell of ``version`` lies in the spans."""
        asked = self._places(version)
        return any(first <= one <= last for first, last in self._ranges(spans) for one in asked)

    def _places(self, version: str) -> list[int]:
        return [self.positions[one] for one in self._asked(version) or self.releases[-1:]]

    def _ranges(self, spans: str) -> tuple[tuple[int, int], ...]:
        found = self._read.get(spans)
        if found is None:
            parts = [span.partition("..") for span in spans.split(",") if span]
            last = self.releases[-1]
            found = tuple((self.positions[begin], self.positions[end or last]) for begin, _, end in parts)
            self._read[spans] = found
        return found

    def _placed(self, spans: str, version: str, owner: str, name: str) -> NameVerdict | None:
        if self._holds(spans, version):
            return None
        asked, ranges = self._places(version), self._ranges(spans)
        dotted = f"{owner}.{name}" if owner else name
        before = [last for _, last in ranges if last < min(asked)]
        if before:
            since, last = self.releases[before[-1] + 1], self.releases[before[-1]]
            return NameVerdict("gone", owner, name, since, last, self.moved.get(dotted, ""))
        after = [first for first, _ in ranges if first > max(asked)]
        return NameVerdict("later", owner, name, self.releases[after[0]]) if after else None


def _ends(dotted: str) -> list[int]:
    """Where the dots are, the last first, and the end."""
    return [len(dotted), *(index for index in range(len(dotted) - 1, 0, -1) if dotted[index] == ".")]


def _flat(grouped: Mapping[str, str]) -> dict[str, str]:
    """Name -> its spans."""
    return {name: spans for spans, names in grouped.items() for name in names.split()}


@cache
def python_package(name: str) -> PythonPackage | None:
    """The tables of a package, by the name that code imports; None where there are none."""
    path = FOLDER / f"{name}.yml"
    return PythonPackage(read_yaml(path)) if name in python_packages() else None


@cache
def python_packages() -> frozenset[str]:
    """The packages that have tables."""
    return frozenset(path.stem for path in FOLDER.glob("*.yml"))
