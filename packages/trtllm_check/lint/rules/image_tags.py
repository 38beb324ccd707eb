"""Images that no registry has: tags written another way, taken away, of a variant or a release that was never made."""

import re
from collections.abc import Iterator
from typing import Any

from packaging.version import Version

from trtllm_check.lint.document import Document
from trtllm_check.lint.finding import Draft, Platform, drafts
from trtllm_check.lint.rules.box import boxes
from trtllm_check.lint.shell.words import Word, word_at
from trtllm_check.releases.images import TagFault, tag_fault
from trtllm_check.releases.vllm import vllm_facts

VLLM = re.compile(
    r"(?:docker\.io/)?vllm/vllm-openai:v(?P<version>\d+\.\d+\.\d+(?:\.\d+)?(?:\.post\d+)?)(?:-[a-z0-9_]+)?"
)
FIRST_IMAGE = "0.2.4"
BLANK = re.compile(
    r"^[ \t]*(?:- )?image:[ \t]*[\"']?(?P<image>[a-z][\w.-]*[ ]+[\w.-]+/[\w./-]+:[\w.-]+)[\"']?[ \t]*$",
    re.MULTILINE,
)
WRITTEN = re.compile(
    r"^[ \t]*(?:- )?image:[ \t]*[\"']?(?P<image>[a-z][\w.-]*(?:/[\w.-]+)+:[\w.-]+)[\"']?[ \t]*(?:#.*)?$", re.M
)
COLONS = re.compile(
    r"^[ \t]*(?:FROM[ \t]+(?:--platform=\S+[ \t]+)?|(?:- )?image:[ \t]*[\"']?)"
    r"(?P<image>[a-z0-9][\w.-]*(?:/[\w.-]+)*::(?P<tag>[\w.-]+))",
    re.MULTILINE,
)
NUMBER = re.compile(r"\bVLLM_(?:REF|TAG|VERSION|BRANCH)=[\"']?v?(?P<version>\d+\.\d+\.\d+)(?![\w.])")


def check(document: Document, platform: Platform) -> Iterator[Draft]:
    """Each image once, at its first place."""
    release = platform.release.name
    seen: set[str] = set()
    for image, place, file in _images(document):
        if image in seen:
            continue
        seen.add(image)
        fault = tag_fault(image) or _no_release(image)
        if fault is not None:
            known: dict[str, Any] = {
                "image": image,
                "why": fault.why,
                "instead": fault.instead,
                "origin": fault.source,
            }
            form = "" if fault.sure else "not certain"
            yield from drafts(release, "image-tag-unknown", place, form=form, file=file, **known)
    for file, text in document.texts:
        for match in BLANK.finditer(text) if "image:" in text else ():
            line = text.count("\n", 0, match.start("image")) + 1
            place = Word(match["image"], line, match.start("image") - text.rfind("\n", 0, match.start("image")))
            yield from drafts(release, "image-tag-unknown", place, form="blank", file=file, image=match["image"])
        for match in COLONS.finditer(text) if "::" in text else ():
            place = word_at(text, match.start("image"), match["image"])
            right = match["image"].replace("::", ":")
            yield from drafts(
                release, "image-tag-unknown", place, form="colons", file=file, image=match["image"], instead=right
            )
        yield from _numbers(text, file, release)


def _numbers(text: str, file: str, release: str) -> Iterator[Draft]:
    """``VLLM_REF=v1.10.0``: a version far behind the newest."""
    newest = vllm_facts().releases[-1]
    for match in NUMBER.finditer(text) if "VLLM_" in text else ():
        if Version(match["version"]).major > Version(newest).major:
            place = word_at(text, match.start("version"), match["version"])
            about: dict[str, Any] = {"version": match["version"], "newest": newest}
            yield from drafts(release, "image-tag-unknown", place, form="number", file=file, **about)


def _images(document: Document) -> Iterator[tuple[str, Word, str]]:
    """The images that are started, built upon or pulled."""
    for box in boxes(document):
        if not box.docker and ":" in box.image.rpartition("/")[2]:
            yield box.image, box.place, box.file
    for word in document.images:
        file = next((file for file, text in document.texts if word.text in text), "")
        if ":" in word.text.rpartition("/")[2] or _is_pulled(document, word):
            yield word.text, word, file
    yield from ((word.text, word, file) for word, file in written_images(document))


def written_images(document: Document) -> Iterator[tuple[Word, str]]:
    """``image: X`` of YAML that no reader knows: an object of somebody's own kind, or one in a here-document."""
    known = {word.text for word in document.images} | {box.image for box in boxes(document)}
    for file, text in document.texts:
        for match in WRITTEN.finditer(text) if "image:" in text else ():
            if match["image"] not in known:
                yield word_at(text, match.start("image"), match["image"]), file


def _is_pulled(document: Document, word: Word) -> bool:
    """True for an image without a tag that docker is given; in YAML its tag may stand elsewhere."""
    given = [one.positional[1:2] for one in document.of("docker")]
    is_base = any(
        re.search(rf"^[ \t]*FROM[ \t]+{re.escape(word.text)}[ \t]*(?:$|AS)", text, re.M) for _, text in document.texts
    )
    return is_base or any(word.text == one[0].text for one in given if one)


def _no_release(image: str) -> TagFault | None:
    """An image of a vLLM between two releases that was never one."""
    match = VLLM.fullmatch(image)
    known = vllm_facts().releases
    if match is None or match["version"] in known or not FIRST_IMAGE:
        return None
    version = Version(match["version"])
    if not Version(FIRST_IMAGE) <= version <= Version(known[-1]):
        return None
    near = max((one for one in known if Version(one) < version), key=Version)
    return TagFault(
        f"vLLM has no release {match['version']}",
        f"vllm/vllm-openai:v{near}",
        "github.com/vllm-project/vllm",
        sure=False,
    )
