"""Names of Python packages that a release does not have: modules, classes, functions, methods.

Where the text names a release, what that lacks is an error; where it names none, what the newest no longer has is a
warning. What no release ever had is an error only where another name is almost the same.
"""

import re
from collections.abc import Iterator
from functools import lru_cache
from typing import Any, NamedTuple

from trtllm_check.lint.carriers.used_names import CAUGHT, UsedName
from trtllm_check.lint.document import Document
from trtllm_check.lint.finding import Draft, Platform, drafts, rule_data
from trtllm_check.lint.installs import requirements
from trtllm_check.lint.rules.pins import sdk_major
from trtllm_check.lint.shell.pasted import is_shown_as_old
from trtllm_check.lint.supposing import supposed
from trtllm_check.lint.vllm_release import vllm_told
from trtllm_check.releases.python_names import NameVerdict, PythonPackage, python_package

FAMILY = "python_names"
RULE = "python-name"
OTHER_BUILD = re.compile(r"neuron|gaudi|habana|hpu|ascend|openvino", re.IGNORECASE)
OURS = "tensorrt_llm"
MOST = 3
SDK, THIRD = "sagemaker", re.compile(r"(?i:sdk) [vV]?3\b|sagemaker\s*[=>]=\s*3\b")
SECOND = re.compile(r"(?i:sdk) [vV]2\b")
PATCHED, PATCHES = "trl", re.compile(r"\b(?:from|import) unsloth\b")
RELATIVE = re.compile(r"^from \.+\w* import ", re.MULTILINE)  # a module of a package, which has pins of its own
SPECIFIER = r"(?:[<>=~!]=?=?\s*\d+(?:\.\d+)*(?:(?:\.post|\.dev|rc)\d+)?)"


class Told(NamedTuple):
    """The version that a text tells of a package, "" for none; ``many``: several, which say nothing together."""

    version: str = ""
    many: bool = False


def check(document: Document, platform: Platform) -> Iterator[Draft]:
    """All drafts of the family."""
    told: dict[str, Told] = {}
    seen: set[tuple[str, str]] = set()
    strange: set[str] = set()
    old: dict[tuple[str, str], list[tuple[UsedName, NameVerdict]]] = {}
    files = tuple(file for file, _ in document.texts)
    for one in document.names:
        package = python_package(one.package) if one.call is None and one.error != "NameError" else None
        if package is None or is_local(one.package, files):
            continue
        if one.package not in told:
            told[one.package] = told_version(document, one.package, package, platform)
            if is_from_git(document, one.package):
                strange.add(one.package)
        if one.package in strange or (one.package == PATCHED and one.keyword and _is_patched(document.texts)):
            continue
        version = told[one.package]
        if one.keyword:
            for draft in _keyword(one, package, version, platform):
                yield _weighed(draft, one, document)
            continue
        verdict = _verdict(package, one, version.version)
        if verdict is None or (one.file, verdict.dotted) in seen or _said_elsewhere(document, one):
            continue
        if one.error == CAUGHT:
            whole = _verdict(package, one, "")  # of all releases
            if whole is None or verdict.kind not in ("never", "absent") or whole.kind != "never" or not whole.near:
                continue  # the code does without it
            verdict = whole
        if verdict.kind == "gone" and is_shown_as_old(dict(document.texts).get(one.file, ""), one.place.line):
            continue
        seen.add((one.file, verdict.dotted))
        is_known = bool(package.near_releases(version.version))
        if verdict.kind == "never" and one.package in rule_data(FAMILY)["hinted"] and not verdict.near:
            continue  # a module of that name, of nobody knows whom
        if verdict.kind == "never" and OTHER_BUILD.search(verdict.dotted):
            continue  # of a vendor's build for processors of its own
        if one.error == CAUGHT:
            yield from _draft(one, verdict, package, "never, caught", platform)
        elif verdict.kind == "never":
            is_elsewhere = verdict.dotted in rule_data(FAMILY)["packages"][one.package].get("instead", {})
            form = "never" if verdict.near else "never, elsewhere" if is_elsewhere else "never, perhaps"
            yield from _draft(one, verdict, package, form, platform)
        elif version.many:
            continue
        elif is_known:
            yield from _draft(one, verdict, package, verdict.kind, platform, version=version.version)
        elif verdict.kind == "gone":
            old.setdefault((one.file, one.package), []).append((one, verdict))
    for found in old.values():
        is_part = RELATIVE.search(dict(document.texts).get(found[0][0].file, "")) is not None
        for draft in _today(found, platform):
            weighed = _weighed(draft, found[0][0], document)
            yield weighed._replace(severity="info") if is_part else weighed


def _keyword(one: UsedName, package: PythonPackage, told: Told, platform: Platform) -> Iterator[Draft]:
    """A keyword that the call of the told release does not take, or none of all releases."""
    verdict = None if told.many else package.judge_keyword(one.dotted, one.keyword, told.version)
    is_known = bool(package.near_releases(told.version))
    if verdict is None or (verdict.kind in ("later", "absent") and not is_known) or one.keyword in elsewhere(one):
        return
    meant = _meant_instead(one)
    form = {"never": "never" if verdict.near and not meant else "never at all"}.get(verdict.kind, verdict.kind)
    for draft in drafts(
        platform.release.name,
        "python-keyword",
        one.place,
        form=form if is_known or verdict.kind == "never" else "gone today",
        file=one.file,
        call=shown_call(one),
        name=one.keyword,
        version=told.version,
        since=verdict.since,
        last=verdict.last,
        near=verdict.near,
        do=meant or f"leave {one.keyword} out",
    ):
        yield draft._replace(source=package.source)


def elsewhere(one: UsedName) -> frozenset[str]:
    """The arguments that other rules speak of."""
    return frozenset(rule_data(FAMILY)["packages"][one.package].get("elsewhere", "").split())


def _meant_instead(one: UsedName) -> str:
    """What to write for a keyword that people know from elsewhere; "" for others."""
    known = rule_data(FAMILY)["packages"][one.package]
    if one.keyword in known.get("extra", "").split() and one.dotted.endswith(".create"):
        return f"write extra_body=dict({one.keyword}=...)"
    meant: str = known.get("keywords", {}).get(one.keyword, "")
    return meant


@lru_cache(maxsize=8)
def _is_patched(texts: tuple[tuple[str, str], ...]) -> bool:
    """True with unsloth, which gives trl's trainers the keywords of earlier releases."""
    return any(PATCHES.search(text) for _, text in texts)


def shown_call(one: UsedName) -> str:
    """The call without its package; ``modelopt.torch.quantization.quantize`` whole, for PyTorch has names like it."""
    short = one.dotted.removeprefix(f"{one.package}.")
    return one.dotted if short.startswith("torch.") else short


def is_from_git(document: Document, name: str) -> bool:
    """True where pip takes a package from a commit, which may have what no release has."""
    distribution = rule_data(FAMILY)["packages"][name]["distribution"]
    return any(re.search(rf"git\+\S*/{distribution}(?:\.git)?(?=[@\s#\"'`]|$)", text) for _, text in document.texts)


def told_version(document: Document, name: str, package: PythonPackage, platform: Platform) -> Told:
    """What pins, requirements and images tell; of TensorRT-LLM what the checker is asked for, or the text tells."""
    if name == OURS:
        if platform.earlier:
            return Told(platform.written, many=not platform.written)
        return Told("" if platform.guessed else platform.release.name)
    found = set(_spoken(document.texts, name))
    distribution = rule_data(FAMILY)["packages"][name]["distribution"]
    found |= {_meant(one.specifier, package) for one in requirements(document) if one.name == distribution} - {""}
    if name in rule_data(FAMILY)["hinted"] and not found and (implied := _implied(name, document, platform)):
        return implied
    if name == "vllm" and (told := vllm_told(document)):
        return Told(told.release.written)  # the weightiest of all that it tells, ``pip show`` and logs too
    whole = "\n".join(text for _, text in document.texts) if name == SDK else ""
    if name == SDK and THIRD.search(whole) and (found or SECOND.search(whole)):
        return Told(many=True)  # of the change from one major version to the next
    if any(".dev" in version for version in found):
        return Told(many=True)  # a state between two releases, or of somebody's own
    return Told(found.pop()) if len(found) == 1 else Told(supposed(name), many=len(found) > 1)


@lru_cache(maxsize=64)
def _spoken(texts: tuple[tuple[str, str], ...], name: str) -> frozenset[str]:
    """The versions of a package that the texts write down; asked again for every release that they may be for."""
    package = python_package(name)
    found: set[str] = set()
    for pattern, spoken in _patterns(name) if package else ():
        for _, text in texts:
            for match in pattern.finditer(text):
                if spoken and name in rule_data(FAMILY)["hinted"] and not _is_pin(text, match):
                    continue
                if version := _meant(match["version"], package) if spoken and package else match["version"]:
                    found.add(version)
    return frozenset(found)


def _is_pin(text: str, match: re.Match[str]) -> bool:
    """False for a bound that code minds, and for what a comment behind code says of the code."""
    before = text[text.rfind("\n", 0, match.start()) + 1 : match.start()]
    code, sign, _ = before.partition("#")
    return match["version"].startswith("==") and not (sign and code.strip())


def _implied(name: str, document: Document, platform: Platform) -> Told | None:
    """What TensorRT-LLM's release brings; several where what else is pinned tells that it is not today's."""
    pinned = any(one.exact for one in requirements(document))
    distribution = rule_data(FAMILY)["packages"][name]["distribution"]
    if any(one.name == distribution for one in requirements(document)):
        return Told(many=True) if pinned else None
    pin = "" if platform.guessed else platform.release.pins.get(name, "")
    if re.fullmatch(r"[\d.]+", pin):
        return Told(pin)
    return Told(many=True) if pinned or not platform.guessed or vllm_told(document) else None


def _patterns(name: str) -> Iterator[tuple[re.Pattern[str], bool]]:
    """How texts tell the version, and whether that is a specifier."""
    data = rule_data(FAMILY)["packages"][name]
    for one in data.get("images", ()):
        yield re.compile(one), False
    dist = data["distribution"].replace("-", "[-_]")
    yield re.compile(rf"^name = \"{dist}\"\nversion = \"(?P<version>\d+\.\d+\.\d+)\"", re.MULTILINE), False  # of a lock
    yield re.compile(rf"(?<![\w.-]){dist}-(?P<version>\d+\.\d+\.\d+)-(?:cp3|py3)"), False  # a wheel
    if name not in rule_data(FAMILY)["hinted"]:
        yield (
            re.compile(rf"(?<![\w./-]){dist}[ ]v?(?P<version>\d+\.\d+\.\d+)(?![\w.+-]*\w)(?!\+)", re.IGNORECASE),
            False,
        )
    yield re.compile(rf"(?<![\w./-]){dist}(?:\[[\w, -]+\])?\s*(?P<version>{SPECIFIER}(?:\s*,\s*{SPECIFIER})*)"), True


def _meant(specifier: str, package: PythonPackage) -> str:
    """The version behind ==, or the newest that is taken where today's is not; "" for today's."""
    from packaging.specifiers import InvalidSpecifier, SpecifierSet

    exact = re.fullmatch(r"={2,3}\s*(\d+\.\d+\.\w[\w.]*)", specifier)
    if exact:
        return exact[1]
    try:
        taken = list(SpecifierSet(specifier).filter(package.releases, prereleases=True))
    except InvalidSpecifier:
        return ""
    return taken[-1] if taken and taken[-1] != package.releases[-1] else ""


def _verdict(package: PythonPackage, one: UsedName, version: str) -> NameVerdict | None:
    verdict = package.judge(one.dotted, version)
    if verdict is not None or not one.member:
        return verdict
    owner = one.dotted if one.dotted in package.members else one.dotted.rpartition(".")[2]
    found = package.judge_member(owner, one.member, version)
    return found._replace(owner=owner) if found is not None else None


@lru_cache(maxsize=256)
def is_local(package: str, files: tuple[str, ...]) -> bool:
    """True where the folder that is checked has the package itself."""
    return any(re.search(rf"(?:^|/){package}(?:\.py$|/)", file) for file in files)


def _said_elsewhere(document: Document, one: UsedName) -> bool:
    """Parts of SageMaker's SDK that the rule on its requirement speaks of."""
    if one.package != "sagemaker":
        return False
    parts = rule_data("pins")["sagemaker"]
    kinds = {"2": "third", "3": "second", "newest": "second"}
    names = [
        name for asked in requirements(document) if (major := sdk_major(asked)) for name in parts[kinds[major]].split()
    ]
    return any(one.dotted == name or one.dotted.startswith(f"{name}.") for name in names)


def _draft(
    one: UsedName, verdict: NameVerdict, package: PythonPackage, form: str, platform: Platform, **known: Any
) -> Iterator[Draft]:
    for draft in drafts(
        platform.release.name, RULE, one.place, form=form, file=one.file, **_known(one, verdict), **known
    ):
        yield draft._replace(source=package.source)


def _weighed(draft: Draft, one: UsedName, document: Document) -> Draft:
    """A hint where nothing tells that today's release is meant: old code, which its own environment runs."""
    if one.package not in (*rule_data(FAMILY)["hinted"], OURS) or draft.severity != "warning":
        return draft
    is_meant = is_upgraded(one.package, document) or is_long_gone(draft)
    return draft if is_meant else draft._replace(severity="info")


def is_long_gone(draft: Draft) -> bool:
    """True for a name that no text of today can mean the releases of."""
    return draft.rule == RULE and any(name in draft.message for name in rule_data(FAMILY)["long_gone"])


def is_upgraded(package: str, document: Document) -> bool:
    """True where the text itself installs the newest release: pip with -U, for without it what is there stays."""
    distribution = rule_data(FAMILY)["packages"][package]["distribution"]
    asked = (one for one in requirements(document) if one.name == distribution)
    return any(one.pip is not None and one.pip.has("-U", "--upgrade") for one in asked)


def _today(found: list[tuple[UsedName, NameVerdict]], platform: Platform) -> Iterator[Draft]:
    """One warning for a file, at the first of its names."""
    one, verdict = found[0]
    others = [other.dotted for _, other in found[1 : MOST + 1]]
    too = f" (so are {', '.join(others)})" if len(others) > 1 else f" (so is {others[0]})" if others else ""
    package = python_package(one.package)
    if package is not None:
        yield from _draft(one, verdict, package, "gone today", platform, too=too)


def _known(one: UsedName, verdict: NameVerdict) -> dict[str, Any]:
    what = rule_data(FAMILY)["packages"][one.package]
    instead = what.get("instead", {}).get(verdict.dotted, "")
    if not instead and verdict.moved:
        instead = f"take it from {verdict.moved}" if verdict.owner else f"import from {verdict.moved}"
    elif not instead:
        instead = f"write {verdict.near}" if verdict.near else "do without it"
    return {
        "package": what["called"],
        "name": verdict.dotted,
        "error": one.error,
        "since": verdict.since,
        "last": verdict.last,
        "near": verdict.near,
        "instead": instead,
        "pin": f"'{what['distribution']}{'<' if verdict.kind == 'gone' else '>='}{verdict.since}'",
    }
