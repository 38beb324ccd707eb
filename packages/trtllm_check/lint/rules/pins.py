"""Versions of packages that exclude each other, within one installation and between one and the next."""

import re
from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any, NamedTuple

from trtllm_check.lint.document import Document
from trtllm_check.lint.finding import Draft, Platform, drafts, rule_data
from trtllm_check.lint.installs import Requirement, requirements
from trtllm_check.lint.shell.words import Word
from trtllm_check.releases import known_releases, load_release

FAMILY = "pins"
OURS = "tensorrt-llm"
OPERATORS = tuple("<>=~!")
PYTHON = re.compile(
    r"(?:^[ \t]*FROM[ \t]+(?:--\S+[ \t]+)?(?:\S*/)?python:"
    r"|conda create[^\n]*\bpython=+|uv venv[^\n]*--python[ =](?:python)?)"
    r"(?P<version>3\.\d{1,2})",
    re.MULTILINE,
)
IMPORT = re.compile(
    r"^[ \t]*(?:[\"'][ \t]*)?(?:from[ \t]+(?P<module>sagemaker(?:\.\w+)*)[ \t]+import[ \t]+\(?(?P<names>[\w, \t]+)"
    r"|import[ \t]+(?P<plain>sagemaker(?:\.\w+)+))"
    r"|(?P<used>\bsagemaker\.(?:Session|get_execution_role|Model|Predictor)\b)"
    r"\(",
    re.MULTILINE,
)
SDK = "sagemaker"


class Needs(NamedTuple):
    """What one version of a package wants of others, and of Python."""

    needs: Mapping[str, str]
    python: str
    source: str


def check(document: Document, platform: Platform) -> Iterator[Draft]:
    """All drafts of the family."""
    release = platform.release.name
    wanted = [one for one in requirements(document) if one.name]
    groups: dict[int, list[Requirement]] = {}
    for one in wanted:
        groups.setdefault(id(one.pip), []).append(one)
    for group in groups.values():
        yield from _together(group, release)
    yield from _apart(wanted, release)
    yield from _python(document, wanted, release)
    yield from _sdk(document, wanted, release)


@cache
def _needs_of(name: str, version: str) -> Needs | None:
    if name == OURS:
        if version not in known_releases():
            return None
        pins = load_release(version).pins
        needs = {
            one: pin if pin.startswith(OPERATORS) else f"=={pin}" for one, pin in pins.items() if one == "transformers"
        }
        return Needs(needs, "", f"requirements.txt of TensorRT-LLM {version}")
    for entry in rule_data(FAMILY)["pins"].get(name, ()):
        if _takes(entry["versions"], version):
            return Needs(entry["needs"], entry.get("python", ""), f"metadata of {name} {version}")
    return None


def _takes(specifier: str, version: str) -> bool:
    from packaging.specifiers import InvalidSpecifier, SpecifierSet
    from packaging.version import InvalidVersion

    try:
        return SpecifierSet(specifier).contains(version, prereleases=True)
    except (InvalidSpecifier, InvalidVersion):
        return True


def _excludes(other: Requirement, need: str) -> bool:
    """True where no version is what ``other`` asks for and what ``need`` takes."""
    if not other.specifier:
        return False
    if other.exact:
        return not other.meets(need)
    exact = re.fullmatch(r"==([\w.]+)", need)
    if exact and "*" not in need:
        return not _takes(other.specifier, exact[1])
    least = re.match(r">=([\d.]+)", need)
    return least is not None and other.is_below(least[1])


def _together(group: list[Requirement], release: str) -> Iterator[Draft]:
    for one in group:
        found = _needs_of(one.name, one.exact) if one.exact else None
        for other in group if found is not None else ():
            need = found.needs.get(other.name, "") if found is not None else ""
            if need and found is not None and _excludes(other, need):
                known = _known(one, other, need, found)
                yield from drafts(release, "pins-exclude", other.word, invocation=other.pip, **known)


def _known(one: Requirement, other: Requirement, need: str, found: Needs) -> dict[str, Any]:
    return {
        "one": f"{one.name}=={one.exact}",
        "needs": f"{other.name}{need}",
        "other": other.word.text,
        "origin": found.source,
    }


def _apart(wanted: list[Requirement], release: str) -> Iterator[Draft]:
    """A package whose version a later pip install replaces, or that a later one breaks."""
    for one in wanted:
        found = _needs_of(one.name, one.exact) if one.exact else None
        if found is None or sum(other.name == one.name for other in wanted) != 1:
            continue
        for name, need in found.needs.items():
            others = [other for other in wanted if other.name == name]
            if len(others) == 1 and others[0].pip is not one.pip and others[0].exact and _excludes(others[0], need):
                form = "replaced" if wanted.index(others[0]) < wanted.index(one) else "broken"
                known = _known(one, others[0], need, found)
                yield from drafts(release, "pins-exclude", others[0].word, form=form, invocation=others[0].pip, **known)


def _python(document: Document, wanted: list[Requirement], release: str) -> Iterator[Draft]:
    """A Python that a package has no wheel for."""
    pythons = {match["version"] for _, text in document.texts for match in PYTHON.finditer(text)}
    if len(pythons) != 1:
        return
    version = next(iter(pythons))
    for one in wanted:
        found = _needs_of(one.name, one.exact) if one.exact else None
        if found is not None and found.python and not _takes(found.python, f"{version}.9"):
            known: dict[str, Any] = {
                "one": f"{one.name}=={one.exact}",
                "python": found.python,
                "version": version,
                "origin": found.source,
            }
            yield from drafts(release, "pins-exclude", one.word, form="python", invocation=one.pip, **known)


def _sdk(document: Document, wanted: list[Requirement], release: str) -> Iterator[Draft]:
    """Names of SageMaker's SDK that the installed one does not have."""
    asked = [one for one in wanted if one.name == SDK]
    if len({sdk_major(one) for one in asked}) != 1:
        return
    major = sdk_major(asked[0])
    kind = {"2": "third", "3": "second", "newest": "second"}.get(major, "")
    if not kind:
        return
    names = frozenset(rule_data(FAMILY)[SDK][kind].split())
    for file, text in document.texts:
        for name, place in _imports(text):
            if any(name == one or name.startswith(f"{one}.") for one in names):
                known: dict[str, Any] = {"name": name, "asked": asked[0].word.text}
                form = {"3": "third", "newest": "newest", "2": "second"}[major]
                yield from drafts(release, "sagemaker-sdk", place, form=form, file=file, **known)
                return


def sdk_major(one: Requirement) -> str:
    """Of SageMaker's SDK: 2 or 3 where that is certain, "newest" where the newest is asked for, "" else."""
    if one.name != SDK:
        return ""
    if one.is_below("3") or one.exact.startswith(("1.", "2.")):
        return "2"
    if one.exact.startswith("3.") or re.match(r"(?:>=|~=)\s*3(?:\.|$)", one.specifier):
        return "3"
    upgrades = one.pip is not None and one.pip.has("-U", "--upgrade")
    return "newest" if not one.specifier or (upgrades and one.specifier.startswith(">")) else ""


def _imports(text: str) -> Iterator[tuple[str, Word]]:
    for match in IMPORT.finditer(text):
        line = text.count("\n", 0, match.start()) + 1
        place = Word(match[0].strip(), line, 1)
        if match["module"]:
            yield match["module"], place
            for name in re.findall(r"\w+", match["names"]):
                yield f"{match['module']}.{name}", place
        else:
            yield match["plain"] or match["used"], place
