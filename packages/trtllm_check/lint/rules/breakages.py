"""Versions that pip installs together without a word, and that do not run together."""

import re
from collections.abc import Iterator
from typing import Any

from packaging.version import Version

from trtllm_check.lint.document import Document
from trtllm_check.lint.finding import Draft, Platform, drafts, rule_data
from trtllm_check.lint.installs import Requirement, is_typed, requirements
from trtllm_check.lint.shell.words import are_branches, lines_of
from trtllm_check.lint.solving import disjoint
from trtllm_check.releases.packages import as_version, needs_of, takes

HUB = "huggingface-hub"
FAMILY = "breakages"
# What may bound a package without naming it here: a file of constraints, a lock.
LOCKED = re.compile(r"--constraint|\s-c\s|--frozen|--locked|--no-deps|\.lock\b|pip-compile|constraint-dependencies")
ANOTHER_IMAGE = re.compile(r"\bImage\.(?:debian_slim|from_\w+|micromamba)\(|^ImageSpec\(")
# A page with a log is no installation to come.
LOG = re.compile(r"Successfully installed|Collecting |Requirement already satisfied")

MANY = 4  # pins of packages whose metadata were not read
MAKES_ONE = re.compile(r"-m venv\b|\bvirtualenv[ ]|\buv venv\b|\bconda create\b")
# Images with transformers and numpy of their own.
BRINGS = re.compile(
    r"vllm|tritonserver:\S*-trtllm|tensorrt-llm/|djl-(?:inference|serving)|rayproject/ray|huggingface|sglang|text-generation"
)


def check(document: Document, platform: Platform) -> Iterator[Draft]:
    """All drafts of the family."""
    wanted = [one for one in requirements(document) if one.name]
    if not wanted or any(LOG.search(text) for _, text in document.texts):
        return
    release = platform.release.name
    absent: dict[str, list[dict[str, Any]]] = {}
    pins: dict[str, Requirement] = {}
    for entry in rule_data(FAMILY)["breakages"]:
        pinned = {one.exact: one for one in wanted if one.name == entry["of"] and one.exact}
        for version, one in pinned.items() if len(pinned) == 1 else ():
            if not takes(entry["versions"], version):
                continue
            pins[one.name] = one
            asked = [other for other in wanted if other.name == entry["other"] and not _apart(document, one, other)]
            if asked:
                yield from _broken(document, entry, one, asked[-1], wanted, release)
            elif entry.get("absent") and _is_environment(one) and not _is_bounded(document, entry, wanted):
                if _brings_packages(one):
                    continue
                absent.setdefault(one.name, []).append(entry)
    for name, entries in absent.items():
        one = pins[name]
        known = _known(one, entries[0]) | {
            "name": " and ".join(entry["other"] for entry in entries),
            "right": " and ".join(f"{entry['other']}{entry['works']}" for entry in entries),
            "source_of": "; ".join(entry["source"] for entry in entries),
        }
        yield from drafts(release, "pins-break", one.word, form="absent", invocation=one.pip, **known)
    yield from _paired(wanted, release)
    yield from _same(document, wanted, release)


def _apart(document: Document, one: Requirement, other: Requirement) -> bool:
    """True for the two branches of an ``if`` of a shell, of which one runs, and for two images of a program."""
    if one.pip is None or other.pip is None or one.pip is other.pip:
        return False
    text = dict(document.texts).get(one.pip.command.file, "")
    between = lines_of(text)[min(one.word.line, other.word.line) : max(one.word.line, other.word.line)]
    return are_branches(text, one.word.line, other.word.line) or any(map(ANOTHER_IMAGE.search, between))


def _same(document: Document, wanted: list[Requirement], release: str) -> Iterator[Draft]:
    """Packages of one project in different versions."""
    for entry in rule_data(FAMILY)["same"]:
        if any(entry["unless"] in text for _, text in document.texts):
            continue
        first = _brought(wanted, entry)
        if first is None or first[1] < Version(entry["since"]):
            continue
        for name in entry["others"]:
            asked = [one for one in wanted if one.name == name]
            version = as_version(asked[-1].exact.partition("+")[0]) if asked else None
            newest = Version(entry["newest"][name]) if name in entry["newest"] else None
            known = _known(first[0], {**entry, "other": name, "works": f"=={first[1]}"})
            known["error"] = entry["error"].format(name=name)
            if version is not None and version != first[1]:
                form = ""
            elif asked and not asked[-1].specifier and newest is not None and newest > first[1]:
                form = "newest"
            else:
                continue
            other = asked[-1]
            known["other"] = other.word.text
            yield from drafts(release, "pins-break", other.word, form=form, invocation=other.pip, **known)


def _brought(wanted: list[Requirement], entry: dict[str, Any]) -> tuple[Requirement, Version] | None:
    """Who says which version of the first package there is, and that version."""
    for one in wanted:
        if one.name == entry["of"] and (version := as_version(one.exact.partition("+")[0])):
            return one, version
    for one in wanted:
        found = needs_of(one.name, one.exact) if one.name == entry["brought_by"] and one.exact else None
        need = found.needs.get(entry["of"], "") if found is not None else ""
        if need.startswith("==") and (version := as_version(need[2:])):
            return one, version
    return None


def _paired(wanted: list[Requirement], release: str) -> Iterator[Draft]:
    """A version of what an image is built with that belongs to a later or a much earlier release."""
    for entry in rule_data(FAMILY)["paired"]:
        of = [one for one in wanted if one.name == entry["of"] and one.exact]
        others = [one for one in wanted if one.name == entry["other"] and one.exact]
        at = as_version(of[0].exact) if len({one.exact for one in of}) == 1 else None
        version = as_version(others[-1].exact.partition("+")[0]) if others else None
        if at is None or version is None:
            continue
        steps = [(Version(step), Version(made)) for step, made in entry["steps"].items()]
        if not steps[0][0] <= at < Version(entry["until"]):
            continue
        place = max(number for number, (step, _) in enumerate(steps) if step <= at)
        is_early = place > 0 and version <= steps[place - 1][1] and version < steps[place][1]
        fits = entry["fits"].get(str(steps[place][0])) == str(version)
        if (version >= steps[place + 1][1] and not fits) or is_early:
            known = _known(of[0], {**entry, "works": f"=={steps[place][1]}", "error": ""})
            other = others[-1]
            known["other"] = other.word.text
            yield from drafts(release, "pins-break", other.word, form="paired", invocation=other.pip, **known)


def _is_environment(one: Requirement) -> bool:
    """True in a file that makes an environment; on a page the reader may have the rest already."""
    return one.pip is not None and (not is_typed(one.pip) or bool(one.pip.command.image))


def _known(one: Requirement, entry: dict[str, Any]) -> dict[str, Any]:
    return {
        "one": one.word.text,
        "of": one.name,
        "name": entry["other"],
        "error": entry["error"],
        "source_of": entry["source"],
        "right": f"{entry['other']}{entry['works']}",
    }


def _broken(
    document: Document,
    entry: dict[str, Any],
    one: Requirement,
    last: Requirement,
    wanted: list[Requirement],
    release: str,
) -> Iterator[Draft]:
    """A version of the other that it does not run with, asked for or taken as the newest."""
    known = _known(one, entry) | {"other": last.word.text}
    if last.specifier and disjoint(entry["other"], entry["works"], last.specifier):
        if not _excluded(one, last):
            yield from drafts(release, "pins-break", last.word, invocation=last.pip, **known)
    elif (
        not takes(entry["works"], entry["newest"])
        and takes(last.specifier, entry["newest"])
        and not _brings_packages(last)
        and not _is_bounded(document, entry, wanted)
    ):
        yield from drafts(release, "pins-break", last.word, form="newest", invocation=last.pip, **known)


def _brings_packages(one: Requirement) -> bool:
    """True in an image that has the packages of an engine, which pip leaves as they are."""
    return one.pip is not None and BRINGS.search(one.pip.image) is not None


def _excluded(one: Requirement, other: Requirement) -> bool:
    """True where the metadata exclude it already, which another rule says."""
    found = needs_of(one.name, one.exact)
    need = found.needs.get(other.name, "") if found is not None else ""
    return bool(need) and disjoint(other.name, need, other.specifier)


def _is_bounded(document: Document, entry: dict[str, Any], wanted: list[Requirement]) -> bool:
    """True where something else of the text keeps the newest away, or may."""
    if any(len(MAKES_ONE.findall(text)) > 1 for _, text in document.texts):
        return True  # which of the environments holds both, nobody tells
    if any(LOCKED.search(text) for _, text in document.texts) or any(not one.name for one in requirements(document)):
        return True
    if entry["other"] == "transformers" and any(one.name == HUB and one.exact for one in wanted):
        return True  # each release of it wants a hub of its own time
    if sum(needs_of(one.name, one.exact) is None for one in wanted if one.exact) >= MANY:
        return True  # a list of pins, of which one or the other wants an earlier one, too
    for one in wanted:
        found = needs_of(one.name, one.exact) if one.exact else None
        need = found.needs.get(entry["other"], "") if found is not None else ""
        if need and not takes(need, entry["newest"]):
            return True
    return False
