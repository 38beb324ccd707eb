"""Requirements of one environment that no choice of versions meets, by what the packages' own metadata want."""

import re
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from itertools import combinations
from typing import NamedTuple

from trtllm_check.lint.installs import Requirement
from trtllm_check.releases.packages import as_version, needs_of, only_with_extras, takes, versions_of

CLAUSE = re.compile(r"(?P<operator>===|==|~=|!=|<=|>=|<|>)\s*(?P<version>[\w.+!]+)(?P<any>\.\*)?")
OPEN = re.compile(r"(?:^|,)\s*(?:<|==|~=)")
MOST = 9999


class Conflict(NamedTuple):
    """``one`` wants ``need`` of a package, and ``other`` asks for something else of it, or wants it in turn.

    ``of``: the package; ``also``: what ``other`` wants of it where it is another one; ``source``: who says so.
    """

    one: Requirement
    of: str
    need: str
    other: Requirement
    also: str
    source: str


class _Want(NamedTuple):
    by: Requirement
    of: str
    needs: tuple[str, ...]  # one of these, by the version that is taken
    source: str
    is_open: bool = False


def conflicts(asked: Sequence[Requirement]) -> Iterator[Conflict]:
    """Each pair that excludes each other once: what is asked directly first, then what two packages want."""
    several = {
        one.name for one in asked for other in asked if one.name == other.name and one.specifier != other.specifier
    }
    asked = [one for one in asked if one.name not in several]
    direct = {one.name: one for one in asked if one.specifier}
    # A wheel of another build, such as 0.11.0+torch271.cu118, has requirements of its own.
    wants = [want for one in asked if "+" not in one.specifier for want in _all_wants(one, direct)]
    found: set[tuple[str, str]] = set()
    for want in wants:
        other = direct.get(want.of)
        if other is not None and other is not want.by and _excluded(want, other.specifier):
            found |= {(want.by.name, want.of), (want.by.name, other.name)}
            yield Conflict(want.by, want.of, _shown(want.needs), other, "", want.source)
    for one, two in combinations(wants, 2):
        if one.of != two.of or one.by is two.by or one.of in direct or (one.by.name, two.by.name) in found:
            continue
        if one.is_open or two.is_open or not all(disjoint(one.of, a, b) for a in one.needs for b in two.needs):
            continue
        found.add((one.by.name, two.by.name))
        yield Conflict(one.by, one.of, _shown(one.needs), two.by, _shown(two.needs), one.source)


@cache
def disjoint(name: str, one: str, two: str) -> bool:
    """True where no version of ``name`` is in both; it is tried with those that are known, and around the bounds."""
    return not any(takes(one, version) and takes(two, version) for version in _candidates(name, one, two))


def _all_wants(one: Requirement, direct: Mapping[str, Requirement]) -> Iterator[_Want]:
    """What a requirement wants, and what that wants in turn, where nobody asks for it directly."""
    for want in _wants(one):
        yield want
        if want.of not in direct and len(want.needs) == 1:
            for further in _wants(Requirement.of(f"{want.of}{want.needs[0]}")):
                source = f"{want.source}: {want.of}{want.needs[0]}; {further.source}"
                yield further._replace(by=one, source=source)


def _wants(one: Requirement) -> Iterator[_Want]:
    """What each version that a requirement may mean wants, where all of them want something."""
    if not one.specifier or not versions_of(one.name):
        return
    exact = one.exact.partition("+")[0]
    if one.name == "torch" and "+" in one.exact:
        return  # builds for another CUDA bring other libraries
    fitting = [exact] if exact else [version for version in versions_of(one.name) if takes(one.specifier, version)]
    if not one.extras and any(only_with_extras(one.name, version) for version in fitting):
        return
    found = [needs_of(one.name, version) for version in fitting]
    if not found or any(needs is None for needs in found):
        return
    known = [needs for needs in found if needs is not None]
    is_open = not exact and fitting[-1] == versions_of(one.name)[-1] and not OPEN.search(one.specifier)
    for other in known[-1].needs:
        needs = tuple(dict.fromkeys(needs.needs.get(other, "") for needs in known))
        if all(needs):
            yield _Want(one, other, needs, known[-1].source, is_open)


def _excluded(want: _Want, specifier: str) -> bool:
    if not all(disjoint(want.of, need, specifier) for need in want.needs):
        return False
    if not want.is_open:
        return True
    tried = _candidates(want.of, want.needs[-1], specifier)
    newest = [version for version in tried if takes(want.needs[-1], version)]
    asked = [version for version in tried if takes(specifier, version)]
    return bool(newest and asked) and tried.index(asked[-1]) < tried.index(newest[0])  # a later one asks for no less


@cache
def _candidates(name: str, *specifiers: str) -> tuple[str, ...]:
    """Versions of ``name`` to try, the oldest first."""
    found = set(versions_of(name))
    for specifier in specifiers:
        for match in CLAUSE.finditer(specifier):
            version = match["version"].removesuffix(".*").rstrip(".")
            found |= {version, *_around(version)}
    known = {text: version for text in found if (version := as_version(text)) is not None}
    return tuple(sorted(known, key=lambda text: known[text]))


def _around(version: str) -> Iterator[str]:
    """A version below and some above."""
    numbers = [int(part) for part in re.findall(r"\d+", version.partition("+")[0].partition("post")[0])]
    yield f"{version.partition('+')[0]}.post9" if "post" not in version else version
    for place in range(len(numbers)):
        yield ".".join(map(str, [*numbers[:place], numbers[place] + 1]))
        yield ".".join(map(str, [*numbers[: place + 1], MOST]))
        if numbers[place]:
            yield ".".join(map(str, [*numbers[:place], numbers[place] - 1, MOST]))


def _shown(needs: tuple[str, ...]) -> str:
    """``==2.6.0``, or ``==2.6.0 (at most ==2.9.1)`` where it depends on the version."""
    return needs[0] if len(needs) == 1 else f"{needs[0]} to {needs[-1]}"
