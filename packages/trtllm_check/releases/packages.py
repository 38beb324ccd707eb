"""Reads ``data/packages``: what versions of Python packages want of others, and of Python.

A name stands with what is wanted of it at the versions where that changed: ``{0.9.0: ==2.7.0, 0.10.0: ==2.7.1}``.
A version between two has what the earlier one has; ``gone`` and an empty text are no want at all.
"""

from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from packaging.specifiers import InvalidSpecifier, SpecifierSet
from packaging.version import InvalidVersion, Version

from serving_base.yaml_files import read_yaml
from trtllm_check.releases.load import known_releases, load_release
from trtllm_check.releases.vllm import vllm_facts

DATA_DIR = Path(__file__).parent / "data" / "packages"
OURS = "tensorrt-llm"
OPERATORS = tuple("<>=~!")
GONE = ("gone", "")
Changes = Mapping[str, str]


class Needs(NamedTuple):
    """What one version of a package wants. ``pythons``: those that it has wheels for, where they are not all."""

    needs: Mapping[str, str]
    python: str
    source: str
    pythons: tuple[str, ...] = ()


@cache
def needs_of(name: str, version: str) -> Needs | None:
    """What ``name`` in ``version`` wants; None for a package or a version that nothing is known of."""
    table, at = _tables().get(name), as_version(version)
    if table is None or at is None or at.is_devrelease or at < _first(name):
        return None
    needs = {other: need for other, changes in table["needs"].items() if (need := _at(changes, at))}
    pythons: tuple[str, ...] = ()
    if name == OURS:
        needs |= _pins(version)
        pythons = tuple(_at(table["pythons"], at))
    python = _at(table.get("python", {}).get("python", {}), at)
    return Needs(needs, python, f"{table['from']} {version}", pythons)


def only_with_extras(name: str, version: str) -> bool:
    """True where a package wants all this of its extras alone."""
    until, at = _tables().get(name, {}).get("extras_until", ""), as_version(version)
    return bool(until) and at is not None and at < Version(until)


@cache
def versions_of(name: str) -> tuple[str, ...]:
    """The versions of a package that stand for all that are known of, the oldest first."""
    if name == "vllm":
        return vllm_facts().releases
    if name == OURS:
        return tuple(known_releases())
    table = _tables().get(name)
    if table is None:
        return tuple(str(one) for one in sorted(map(Version, _lists().get(name, "").split())))
    steps = {Version(step) for changes in table["needs"].values() for step in changes}
    return tuple(str(one) for one in sorted(steps | set(map(Version, _lists().get(name, "").split()))))


def known_packages() -> frozenset[str]:
    """The packages whose wants are known."""
    return frozenset(_tables())


@cache
def takes(specifier: str, version: str) -> bool:
    """True where ``specifier`` takes ``version``, and where one of the two is none."""
    try:
        return SpecifierSet(specifier).contains(version, prereleases=True)
    except (InvalidSpecifier, InvalidVersion):
        return True


@cache
def as_version(text: str) -> Version | None:
    """The version that a text writes; None for none."""
    try:
        return Version(text)
    except InvalidVersion:
        return None


@cache
def _tables() -> dict[str, dict[str, Any]]:
    return dict(_read())


def _read() -> Iterator[tuple[str, dict[str, Any]]]:
    yield "vllm", {"from": "metadata of vllm", **read_yaml(DATA_DIR / "vllm.yml")}
    yield OURS, {"from": "requirements and release notes of TensorRT-LLM", **read_yaml(DATA_DIR / "tensorrt_llm.yml")}
    for name, table in read_yaml(DATA_DIR / "others.yml")["packages"].items():
        yield name, {"from": f"metadata of {name}", **table}


@cache
def _lists() -> dict[str, str]:
    found: dict[str, str] = read_yaml(DATA_DIR / "others.yml")["versions"]
    return found


@cache
def _first(name: str) -> Version:
    table = _tables()[name]
    return min(Version(step) for changes in table["needs"].values() for step in changes)


def _at(changes: Mapping[str, Any], at: Version) -> Any:
    steps = [step for step in changes if Version(step) <= at]
    found = changes[steps[-1]] if steps else ""
    return "" if found in GONE else found


def _pins(version: str) -> dict[str, str]:
    """The pins of a release that its own facts tell."""
    if version not in known_releases():
        return {}
    pins = load_release(version).pins
    return {one: pin if pin.startswith(OPERATORS) else f"=={pin}" for one, pin in pins.items() if one == "transformers"}
