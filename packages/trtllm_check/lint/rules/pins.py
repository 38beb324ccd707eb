"""Versions of packages that exclude each other, within one installation and between one and the next."""

import re
from collections import Counter
from collections.abc import Iterator
from typing import Any

from trtllm_check.lint.document import Document
from trtllm_check.lint.finding import Draft, Platform, drafts, rule_data
from trtllm_check.lint.installs import Requirement, is_typed, requirements
from trtllm_check.lint.pythons import python_of
from trtllm_check.lint.shell.pasted import is_shown_as_old
from trtllm_check.lint.shell.words import Word
from trtllm_check.lint.solving import Conflict, conflicts
from trtllm_check.releases.packages import known_packages, needs_of, takes

FAMILY = "pins"
IMPORT = re.compile(
    r"^[ \t]*(?:[\"'][ \t]*)?(?:from[ \t]+(?P<module>sagemaker(?:\.\w+)*)[ \t]+import[ \t]+\(?(?P<names>[\w, \t]+)"
    r"|import[ \t]+(?P<plain>sagemaker(?:\.\w+)+))"
    r"|(?P<used>\bsagemaker\.(?:Session|get_execution_role|Model|Predictor)\b)"
    r"\(",
    re.MULTILINE,
)
SDK = "sagemaker"
OVERRIDES = re.compile(r"override-dependencies|^conflicts[ \t]*=|--no-deps\b.*-r |\bUV_OVERRIDE", re.MULTILINE)

RECORD = 100  # pins: what a tool wrote down of an environment, and nobody installs from


def check(document: Document, platform: Platform) -> Iterator[Draft]:
    """All drafts of the family."""
    release = platform.release.name
    wanted = [one for one in requirements(document) if one.name]
    groups: dict[int, list[Requirement]] = {}
    for one in wanted:
        groups.setdefault(id(one.pip), []).append(one)
    if wanted and not any(OVERRIDES.search(text) for _, text in document.texts):
        for group in groups.values():
            yield from _together(group, release)
        yield from _apart([one for one in wanted if is_typed(one.pip)], release)
    yield from _python(document, wanted, release)
    yield from _sdk(document, wanted, release)


def _together(group: list[Requirement], release: str) -> Iterator[Draft]:
    yield from _twice(group, release)
    said: set[str] = set()
    for found in conflicts(group):
        if found.of.startswith("nvidia-"):  # torch's libraries, which stand and fall together
            if found.one.name in said:
                continue
            said.add(found.one.name)
        form = "pair" if found.also else "" if found.one.exact else "range"
        yield from drafts(
            release, "pins-exclude", found.other.word, form=form, invocation=found.other.pip, **_known(found)
        )


def _twice(group: list[Requirement], release: str) -> Iterator[Draft]:
    """Two versions of one package in one command."""
    first: dict[str, Requirement] = {}
    is_record = sum(bool(one.exact) for one in group) >= RECORD
    for one in group:
        other = first.setdefault(one.name, one)
        if one.exact and other.exact and one.exact != other.exact and "*" not in f"{one.exact}{other.exact}":
            known: dict[str, Any] = {"one": other.word.text, "other": one.word.text}
            for draft in drafts(release, "pins-exclude", one.word, form="twice", invocation=one.pip, **known):
                yield draft._replace(severity="info") if is_record else draft


def _known(found: Conflict) -> dict[str, Any]:
    return {
        "one": found.one.word.text,
        "of": found.of,
        "needs": f"{found.of}{found.need}",
        "other": found.other.word.text,
        "also": f"{found.of}{found.also}",
        "origin": found.source,
    }


def _apart(wanted: list[Requirement], release: str) -> Iterator[Draft]:
    """A package whose version a later pip install replaces, or that a later one breaks."""
    counted = Counter(one.name for one in wanted)
    single = {one.name: (number, one) for number, one in enumerate(wanted) if counted[one.name] == 1}
    said: set[str] = set()
    replaced: set[tuple[str, int]] = set()  # packages, and what replaces them
    broken: list[tuple[Requirement, Requirement, Conflict]] = []
    for place, one in (single[name] for name in sorted(known_packages() & single.keys())):
        for at, other in single.values() if one.specifier else ():
            if other.pip is one.pip or not other.exact:
                continue
            if other.name.startswith("nvidia-"):  # CUDA's libraries are put in torch's place on purpose
                continue
            found = next((found for found in conflicts([one, other]) if found.one is one), None)
            if found is not None and other.name not in said and not (found.also and at < place):
                said.add(other.name)
                if at >= place:
                    broken.append((one, other, found))
                    continue
                replaced.add((other.name, id(one.pip)))
                yield from drafts(
                    release, "pins-exclude", other.word, form="replaced", invocation=other.pip, **_known(found)
                )
    for one, other, found in broken:
        if (one.name, id(other.pip)) in replaced:
            continue  # the same install replaces it, and what it wanted
        is_meant = other.pip is not None and other.pip.has("--no-deps")
        for draft in drafts(release, "pins-exclude", other.word, form="broken", invocation=other.pip, **_known(found)):
            is_hint = is_meant and not other.name.startswith("torch")  # put over what pip would not allow
            yield draft._replace(severity="info") if is_hint else draft


def _python(document: Document, wanted: list[Requirement], release: str) -> Iterator[Draft]:
    """A Python that a package has no wheel for."""
    for one in wanted:
        found = needs_of(one.name, one.exact) if one.exact else None
        version = python_of(document, one.pip) if found is not None and (found.python or found.pythons) else ""
        if found is None or not version:
            continue
        unfit = version not in found.pythons if found.pythons else not takes(found.python, f"{version}.9")
        if unfit:
            known: dict[str, Any] = {
                "one": f"{one.name}=={one.exact}",
                "python": " and ".join(found.pythons) or found.python,
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
            is_meant = any(name == one or name.startswith(f"{one}.") for one in names)
            if is_meant and not is_shown_as_old(text, place.line):
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
