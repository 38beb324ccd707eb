"""The wheel and the clones of a text against its release, and what names none: it takes the newest."""

import re
from collections.abc import Iterator
from functools import partial

from trtllm_check.lint.document import Document
from trtllm_check.lint.evidence import facts_release, said
from trtllm_check.lint.finding import Draft, Edit, Platform, Put, Swap, drafts, rule_data
from trtllm_check.lint.installs import Clone, Requirement, clones, is_typed, requirements
from trtllm_check.releases import Release, known_releases, load_release

FAMILY = "versions"
LINKED = re.compile(r"TensorRT-LLM/(?:blob|tree)/v(\d+\.\d+\.\d+)")
OTHER_BUILD = re.compile(r"(?:\.post|\.dev|rc|\+)\d*.*$")
UNPINNED = "the commands and scripts of one release are for its wheel, and the next release takes other flags"


def from_sources(document: Document, platform: Platform) -> Iterator[Draft]:
    """All drafts on them."""
    release = platform.release
    newest = platform.guessed and release.name == known_releases()[-1]  # is what a text without a release means
    linked = {match[1] for _, text in document.texts for match in LINKED.finditer(text)}
    is_open = platform.guessed or not linked <= {release.name}  # a page that is about several
    named = _named(document, platform)
    for clone in clones(document):
        is_named = clone.reference in rule_data(FAMILY)["default_branches"]
        is_named = is_named or facts_release(clone.reference) == named.name
        yield from _in_words(_clone(clone, named if is_named else release, newest=is_open), named, release)
    wanted = list(requirements(document))
    listed = {one.exact for one in wanted if one.name == "tensorrt-llm" and one.exact and not is_typed(one.pip)}
    for requirement in wanted:
        is_alternative = len(listed) > 1 and not is_typed(requirement.pip)  # of several lists one is taken
        if not is_alternative:
            is_named = not requirement.specifier or facts_release(requirement.exact) == named.name
            wheel = _wheel(requirement, named if is_named else release, newest=newest)
            yield from _in_words(wheel, named, release)
        of_a_night = any(".dev" in one for one in listed)  # whose pin may be that of the release before
        if not platform.guessed and not of_a_night:  # else the pin of a release that nobody named
            yield from _modelopt(requirement, release)
    if newest:
        yield from _two_newest(document, wanted, release)


def _named(document: Document, platform: Platform) -> Release:
    """The release of what names none itself: that of the page's words, beside a container of another one."""
    words = said(document) if platform.told else None
    return load_release(words.release) if words is not None and words.release else platform.release


def _in_words(found: Iterator[Draft], named: Release, release: Release) -> Iterator[Draft]:
    """``found`` without a corrected command, which alone would be judged for ``release``, where ``named`` is meant."""
    yield from (one._replace(edits=()) if named.name != release.name else one for one in found)


def _two_newest(document: Document, wanted: list[Requirement], release: Release) -> Iterator[Draft]:
    """A wheel and the sources with its scripts, each in its newest state: the branch is ahead of the last wheel."""
    branches = rule_data(FAMILY)["default_branches"]
    clone = next((one for one in clones(document) if one.name.lower() == "nvidia/tensorrt-llm"), None)
    if clone is None or clone.reference not in branches:
        return
    for one in wanted:
        if one.name == "tensorrt-llm" and not one.specifier and one.pip is not None and not one.pip.has("--pre"):
            yield from drafts(
                release.name,
                "clone-of-another-release",
                one.word,
                form="two newest",
                invocation=one.pip,
                name=clone.name,
                branch=clone.reference or "main",
            )
            return


def without_build(version: str) -> str:
    """Without what marks another build of the same release."""
    return OTHER_BUILD.sub("", version.removeprefix("v"))


def _clone(clone: Clone, release: Release, *, newest: bool) -> Iterator[Draft]:
    key = next((key for key, end in rule_data(FAMILY)["repositories"].items() if end == clone.name.lower()), "")
    if not key:
        return
    checkout = release.checkouts.get(key)
    draft = partial(drafts, release.name, name=clone.name, tag=checkout.tag if checkout else "")
    if clone.reference in rule_data(FAMILY)["default_branches"]:
        if checkout is not None and not newest:
            edits: tuple[Edit, ...] = (Put(clone.flag or "--branch", checkout.tag),)
            yield from draft(
                "clone-of-another-release", clone.git.path, form="no tag", edits=edits, invocation=clone.git
            )
        return
    if checkout is not None and clone.reference == checkout.tag:
        return
    if key == "modelopt" or release_of_tag(clone.reference, release) in ("", release.name):
        return
    right = checkout.tag if checkout else ""
    instead = (
        f"take {right}" if right else "leave the clone out: this release has its Triton files in its own repository"
    )
    is_of_backend = "backend" in key
    yield from draft(
        "clone-of-another-release",
        clone.word,
        form="templates" if is_of_backend else "",
        edits=(Swap(clone.word, right),) if right else (),
        invocation=clone.checkout or clone.git,
        tag_given=clone.reference,
        instead=instead,
    )


def release_of_tag(reference: str, release: Release) -> str:
    """The release that a tag or a release branch names: this one, another, or "" if it says neither."""
    month = re.fullmatch(r"r(\d\d\.\d\d)", reference)
    if month:
        own = any(f":{month[1]}-" in image for image in release.containers.triton)
        return release.name if own else month[0]
    branch = re.fullmatch(r"release/(\d+\.\d+)", reference)
    if branch:
        return release.name if release.branch == reference or release.name.startswith(f"{branch[1]}.") else branch[1]
    tag = re.fullmatch(r"v?(\d+\.\d+\.\d+\S*)", reference)
    if tag:
        return release.name if tag[1] == release.name or without_build(tag[1]) == release.name else tag[1]
    return ""


def _wheel(requirement: Requirement, release: Release, *, newest: bool) -> Iterator[Draft]:
    version = requirement.exact
    if requirement.name == "tensorrt-llm" and not requirement.specifier:
        if newest:
            return
        yield from _replaced(
            "wheel-of-another-release",
            requirement,
            release,
            f"{requirement.word.text}=={release.name}",
            form="no version",
        )
        return
    if requirement.name != "tensorrt-llm" or not version or facts_release(version) == release.name:
        return
    right = requirement.word.text.replace(version, release.name)
    yield from _replaced("wheel-of-another-release", requirement, release, right)


def _modelopt(requirement: Requirement, release: Release) -> Iterator[Draft]:
    names = ("nvidia-modelopt", "nvidia-ammo")
    pinned = next((name for name in names if name in release.pins), "")
    if requirement.name != pinned or not requirement.specifier:
        return  # the other one has modules of another name, which the release does not import
    pin = release.pins[pinned]
    specifier = pin if pin[0] in "<>=~!" else f"=={pin}" if pin.count(".") > 1 else f"~={pin}.0"
    if not requirement.exact or requirement.meets(specifier):
        return
    right = f"{pinned}{requirement.extras}{specifier}"
    yield from _replaced("modelopt-not-the-pin", requirement, release, right)


def _replaced(rule: str, requirement: Requirement, release: Release, right: str, form: str = "") -> Iterator[Draft]:
    """The draft that writes ``right`` in the requirement's place."""
    yield from drafts(
        release.name,
        rule,
        requirement.word,
        form=form,
        edits=(Swap(requirement.word, right),),
        invocation=requirement.pip,
        reason=UNPINNED,
        requirement=requirement.word.text,
        right=right,
    )
