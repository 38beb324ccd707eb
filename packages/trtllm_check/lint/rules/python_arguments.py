"""What calls of Python's packages are given, against what their sources take: required arguments, places, kinds.

A required argument that is missing, one that is given twice, places that are too many: by the told release, or by all
releases that were read. A kind is refused where every release that was read refuses it.
"""

from collections.abc import Iterator
from typing import Any

from trtllm_check.lint.carriers.used_calls import GivenArgument, UsedCall
from trtllm_check.lint.carriers.used_names import UsedName
from trtllm_check.lint.document import Document
from trtllm_check.lint.finding import Draft, Platform, drafts, rule_data
from trtllm_check.lint.rules.python_names import Told, elsewhere, is_from_git, is_local, shown_call, told_version
from trtllm_check.releases.python_names import PythonPackage, Signature, python_package

FAMILY = "python_arguments"
RULE = "python-signature"


def check(document: Document, platform: Platform) -> Iterator[Draft]:
    """All drafts of the family."""
    told: dict[str, Told] = {}
    files = tuple(file for file, _ in document.texts)
    for one in document.names:
        package = python_package(one.package) if one.call is not None else None
        if package is None or one.call is None or is_local(one.package, files):
            continue
        if one.package not in told:
            is_strange = is_from_git(document, one.package)
            told[one.package] = (
                Told(many=True) if is_strange else told_version(document, one.package, package, platform)
            )
        version = told[one.package]
        for form, at, known in (
            *_misfits(one.call, _signatures(package, one.dotted, version), one),
            *_kinds(one, one.call, package, version),
            *_needs(one, one.call, package, version),
        ):
            for draft in drafts(
                platform.release.name, RULE, at, form=form, file=one.file, call=shown_call(one), **known
            ):
                yield draft._replace(source=package.source)


def _signatures(package: PythonPackage, dotted: str, told: Told) -> tuple[Signature, ...]:
    """What the told release takes; what any release does where none is told, or the call is gone from that one."""
    is_known = bool(told.version) and not told.many and bool(package.near_releases(told.version))
    found = package.signature(dotted, told.version) if is_known else ()
    return found or package.signature(dotted, "")


def _misfits(call: UsedCall, forms: tuple[Signature, ...], one: UsedName) -> Iterator[tuple[str, Any, dict[str, Any]]]:
    """What stops with a TypeError whichever of the forms the release has."""
    names = {given.name for given in call.names}
    if not forms:
        return
    lacking = [sorted(_lacking(call, form, names)) for form in forms]
    if all(lacking) and not call.is_open:
        every = set.intersection(*(set(each) for each in lacking)) - elsewhere(one)
        if every:
            wanted = " and ".join(name for name in forms[0].places if name in every) or " and ".join(sorted(every))
            yield "missing", one.place, {"name": wanted, "many": "s" if len(every) > 1 else ""}
    count = len(call.places)
    if not call.is_open and all(0 <= form.most < count for form in forms):
        most = max(form.most for form in forms)
        yield "places", call.places[most].at, {"most": str(most), "count": str(count)}
    twice = [set(form.places[:count]) & names for form in forms]
    if count and all(twice) and not call.is_open:
        for given in call.names:
            if all(given.name in each for each in twice):
                yield "twice", given.at, {"name": given.name}


def _lacking(call: UsedCall, form: Signature, names: set[str]) -> frozenset[str]:
    """What is required and not given; nothing where more is given by place than the table names."""
    if len(call.places) > len(form.places):
        return frozenset()
    return form.required - names - set(form.places[: len(call.places)])


def _kinds(
    one: UsedName, call: UsedCall, package: PythonPackage, told: Told
) -> Iterator[tuple[str, Any, dict[str, Any]]]:
    """Arguments of a kind that the call refuses."""
    wanted = _wanted(one, package)
    if not wanted:
        return
    forms = _signatures(package, one.dotted, told)
    places = forms[0].places if forms and len({form.places[: len(call.places)] for form in forms}) == 1 else ()
    named = [given._replace(name=name) for given, name in zip(call.places, places, strict=False)]
    for given in (*named, *call.names):
        rule = wanted.get(given.name)
        if rule is not None and given.kind in rule["refuses"].split() and not _is_coerced(given, rule, told):
            form = "text" if given.kind == "str" and rule.get("number") else "kind"
            yield form, given.at, _shown(given, rule)


def _is_coerced(given: GivenArgument, rule: dict[str, Any], told: Told) -> bool:
    """True for a text of digits that becomes a number, or a dictionary an object, in the told release or perhaps."""
    from packaging.version import InvalidVersion, Version

    if given.kind != rule.get("taken", "str") or "coerced" not in rule:
        return False
    try:
        return not told.version or Version(told.version) >= Version(rule["coerced"])
    except InvalidVersion:
        return True


def _needs(
    one: UsedName, call: UsedCall, package: PythonPackage, told: Told
) -> Iterator[tuple[str, Any, dict[str, Any]]]:
    """What has a default, and is refused without a value."""
    needs = rule_data(FAMILY)["needs"].get(package.signed(one.dotted))
    forms = _signatures(package, one.dotted, told)
    names = {given.name for given in call.names}
    if needs is None or not forms or call.is_open or names & set(needs["unless"].split()):
        return
    names |= set(forms[0].places[: len(call.places)])
    if lacking := [name for name in needs["all"].split() if name not in names]:
        known = {"name": " and ".join(lacking), "unless": needs["unless"].split()[0]}
        yield "needed", one.place, known


def _wanted(one: UsedName, package: PythonPackage) -> dict[str, Any]:
    """Argument -> what is said of its kind."""
    data = rule_data(FAMILY)
    found = data["arguments"].get(one.package, {})
    return {
        name: data["kinds"][kind]
        for kind, names in found.get(package.signed(one.dotted), {}).items()
        for name in names.split()
    }


def _shown(given: GivenArgument, rule: dict[str, Any]) -> dict[str, Any]:
    words: dict[str, str] = rule_data(FAMILY)["words"]
    kind = words.get(given.kind, f"an object of {given.kind}")
    number = given.written.strip("\"'")
    return {"name": given.name, "written": given.written, "kind": kind, "wanted": rule["wanted"], "number": number}
