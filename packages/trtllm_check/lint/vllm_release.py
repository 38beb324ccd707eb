"""Which release of vLLM a text is for, by what it names: pins, images, logs, ``pip show``, clones, prose.

Of the kinds the weightiest counts: what is installed says more than what is said. Two releases of one weight tell
nothing, and neither does a least version ("vLLM 0.8.5 or later", ``vllm>=0.8.5``).
"""

import re
from collections.abc import Iterator
from functools import lru_cache
from typing import NamedTuple

from trtllm_check.lint.document import Document
from trtllm_check.lint.lookups import once
from trtllm_check.lint.shell.words import lines_of
from trtllm_check.lint.supposing import supposed
from trtllm_check.releases.vllm import VllmRelease, vllm_facts

VERSION = r"v?(?P<version>\d+\.\d+\.\d+(?:\.\d+)?(?:\.?(?:post|dev|rc)\d+)?)(?![\w.]*\d)(?!\.\*)"
IMAGE = re.compile(
    r"(?:^|(?<!lmcache)[/\s\"'=:(])(?:vllm-openai(?:-[a-z]+)?|vllm-tpu|vllm-cpu(?:-env|-release-repo)?|vllm-arm64-cpu-release-repo"
    r"|(?:vllm/)?vllm):v?(?P<version>\d+\.\d+\.\d+(?:\.?post\d+)?)(?![\w.]*\d)"
)
ENGINE = VERSION.replace("version", "engine")
LOG = rf"vLLM API server version {VERSION}|Initializing (?:an LLM|a V[01] LLM) engine \({ENGINE}\)"
VARIABLE = r"^\W*(?:(?:ARG|ENV|export)\s+)?[\"']?VLLM_(?:VERSION|TAG|REF)[\"']?\s*[=:]\s*[\"']?"
REPOSITORY = "vllm-project/vllm"
ANY, EACH_LINE = re.IGNORECASE | re.ASCII, re.IGNORECASE | re.MULTILINE  # Chinese stands beside a word without a blank
TEXTS: tuple[tuple[int, re.Pattern[str]], ...] = (  # weight, how it is written
    (5, re.compile(LOG)),
    (5, re.compile(rf"(?<![\w/.-])vllm(?:\[[\w, -]+\])?\s*={{2,3}}\s*{VERSION}", ANY)),
    (5, re.compile(r"(?<![\w-])vllm-(?P<version>\d+\.\d+\.\d+(?:\.post\d+)?)(?:[+%][\w.%]+)?(?:-cp\d|\.tar\.gz)")),
    (5, re.compile(rf"^\W*Name:\s*vllm\W*\n\W*Version:\s*{VERSION}", EACH_LINE)),
    (5, re.compile(rf"^[\s#>|]*vllm[ \t|]+{VERSION}(?=[\s+|]|$)", re.MULTILINE)),
    (5, re.compile(rf"^[\s#]*vllm\s*=\s*(?:\{{[^}}\n]*version\s*=\s*)?[\"']={{0,2}}{VERSION}[\"']", re.MULTILINE)),
    (4, IMAGE),
    (4, re.compile(rf"(?:-b|--branch)[ =]+{VERSION}(?=\s)[^\n]*{REPOSITORY}", ANY)),
    (4, re.compile(rf"{REPOSITORY}(?:\.git)?[^\n]*(?:-b|--branch|@)[ =]*{VERSION}(?=\s|$|[\"'#])", ANY)),
    (
        4,
        re.compile(
            rf"{REPOSITORY}(?:\.git)?\n(?:[^\n]*\n){{0,3}}?[^\n]*\bgit checkout (?:tags/)?{VERSION}(?=\s|$)", ANY
        ),
    ),
    (5, re.compile(rf"\bvllm(?: --version|\.__version__\)?[\"']?)[ \t]*\n[\"']?{VERSION}[\"']?[ \t]*$", re.MULTILINE)),
    (5, re.compile(rf"\b(?:module|ml)[ ]+(?:(?:load|add)[ ]+)?(?:[^\n]*[ ])?vllm/{VERSION}", ANY)),
    (5, re.compile(rf"\bvllm(?:\[[\w, -]+\])?(?:~=|@){VERSION}(?=[\s\"',;]|$)", ANY)),
    (4, re.compile(rf"\bvllm[\w+-]*?[_+:-]{VERSION}[\w.+-]*?\.(?:sif|sqsh|simg)\b", ANY)),
    (4, re.compile(rf"\bvllm-openai@sha256:\w+[ \t]*#[ \t]*{VERSION}", ANY)),
    (4, re.compile(rf"\bhelm (?:install|upgrade)[^\n]*\bvllm\b[^\n]*--set[ =][\w.]*\btag={VERSION}(?=\s|$)")),
    (
        4,
        re.compile(
            rf"\bimage:[ ]*[\"']?(?:docker\.io/)?vllm/vllm-openai[\"']?[ ]*\n[ \t]*version:[ ]*[\"']?{VERSION}",
            ANY,
        ),
    ),
    (3, re.compile(rf"^[ \t>|]*\**vLLM(?:[ ]version)?\**[ \t]*\|[ \t]*{VERSION}[ \t]*\|", EACH_LINE)),
    (3, re.compile(rf"\bconda activate [\w-]*?vllm[-_]{VERSION}", ANY)),
    (4, re.compile(rf"{VARIABLE}{VERSION}", EACH_LINE)),
    (3, re.compile(rf"\bvllm[ \t]*+\(?(?:version|release|版本)?\**+[ \t]*+(?:[:=：]\**+[ \t]*+)?{VERSION}", ANY)),
    (3, re.compile(rf"\bvllm\.__version__[ \t]*[:=]{{1,2}}[ \t]*[\"']?{VERSION}")),
)
BOUNDS = r"added|introduced|removed|gone|deprecated|dropped|landed|supported|new"
FROM_SOURCE = re.compile(  # a clone of no tag, that is installed
    r"git clone [^\n]*vllm-project/vllm(?:\.git)?[ \t]*\\?\r?\n(?:(?!git checkout)[^\n]*\n){0,12}?[^\n]*"
    r"(?:pip install (?:-e|--editable|\.)|setup\.py)"
)
LEAST = re.compile(  # in front of a version in prose that is not the one in use
    rf"(?:since|before|until|from|prior to|(?:{BOUNDS}) (?:in|by|with|since)|requires?|at least|>=?|≥|<=?|older than"
    r"|newer than|up to|after|below|above|than|unlike|fixed in)\W*(?:the\s+)?$",
    re.IGNORECASE,
)
OR_MORE = re.compile(  # and behind it
    r"^[`*_\"')]*\s*(?:\+|(?:or|and)\s+(?:later|newer|above|up|higher|greater|earlier|older|below)|onwards?|upwards?"
    r"|through|to\s+v?\d|-+>|→|[-–]\s*v?\d+\.)",
    re.IGNORECASE,
)
NEWEST = re.compile(  # installed over whatever was there
    r"\bpip3? install\b(?=[^\n]*[ ](?:-\w*U\w*|--upgrade|--pre)[ ])"
    r"[^\n]*?[ ][\"']?vllm(?:\[[\w, -]*\])?[\"']?(?=[ \t]|$)",
    re.MULTILINE,
)
LEAST_TOLD = re.compile(
    rf"\bmin(?:imum)?_?vllm_?version[\"']?[ ]*[:=][ ]*[\"']?{VERSION}"
    rf"|\bvllm[*`]*[ ]*(?:≥|>=)[ ]*{VERSION.replace('version', 'least')}",
    re.IGNORECASE,
)
INSTALLS = re.compile(r"\b(?:pip3?|uv|poetry|conda|install|FROM|docker)\b|^[ \t]*vllm")
OF_A_MONTH = re.compile(r"nvcr\.io/nvidia/(?:tritonserver:\d\d\.\d\d-vllm|vllm:\d\d\.\d\d)")
SAID = 3
SUPPOSED = 5
OTHERS = re.compile(r"trt-?llm|tensorrt[-_]llm|tritonserver|djl-inference", re.IGNORECASE)
BEFORE = 40
MOST = 100


def is_of_a_month(document: Document) -> bool:
    """True for vLLM in a container whose tag is a month: it is no release that was read, nor today's."""
    return any(_months(document))


@once
def _months(document: Document) -> Iterator[bool]:
    yield any(OF_A_MONTH.search(text) for _, text in document.texts)


class VllmTold(NamedTuple):
    """``text`` on ``line`` of ``file`` says the release."""

    release: VllmRelease
    text: str
    line: int
    file: str
    weight: int

    @property
    def is_image(self) -> bool:
        return image_release(f" {self.text}") is not None

    def __str__(self) -> str:
        return f"{self.text} ({f'{self.file}, ' if self.file else ''}line {self.line})"


def vllm_told(document: Document) -> VllmTold | None:
    """The evidence of the one release that counts; None where there is none, or more than one."""
    found = _best(document.texts)
    return found[0] if len(found) == 1 else supposed_release()


def vllm_named(document: Document) -> tuple[str, ...]:
    """The releases that the weightiest evidence names, the only one or several."""
    return tuple(one.release.written for one in _best(document.texts))


@lru_cache(maxsize=8)
def _is_from_source(texts: tuple[tuple[str, str], ...]) -> bool:
    return any("git clone" in text and FROM_SOURCE.search(text) for _, text in texts)


def is_from_source(document: Document) -> bool:
    """True where the text builds vLLM of no tag: an image in which it does is of another release."""
    return _is_from_source(document.texts)


def is_named_by_images(document: Document) -> bool:
    """True where only images name them: of what runs in none of these they say little."""
    found = _best(document.texts)
    return bool(found) and all(one.is_image for one in found)


def supposed_release() -> VllmTold | None:
    """What is supposed where the text tells nothing."""
    release = vllm_facts().release(written) if (written := supposed("vllm")) else None
    return VllmTold(release, written, 1, "", SUPPOSED) if release is not None else None


@lru_cache(maxsize=1024)
def image_release(image: str) -> VllmRelease | None:
    """The release that an image's tag names."""
    match = IMAGE.search(image)
    return vllm_facts().release(match["version"]) if match else None


def vllm_alone(document: Document) -> str:
    """``vLLM 0.7.3, told by ...`` for a text that is of vLLM and of no TensorRT-LLM; "" for any other."""
    of_vllm = document.of("vllm") or any(call.api == "vllm" for call in document.calls)
    others = (document.configs, document.properties, document.lmi_environment, document.option_files)
    if not of_vllm or any(others) or any(OTHERS.search(text) for _, text in document.texts):
        return ""
    told = vllm_told(document)
    if told is not None:
        return f"vLLM {told.release.written}, told by {told}"
    return f"vLLM {vllm_facts().newest.written}, the newest that was read: the text tells none"


@lru_cache(maxsize=8)
def _best(texts: tuple[tuple[str, str], ...]) -> tuple[VllmTold, ...]:
    """The first of each release that the weightiest evidence names."""
    found = [one for file, text in texts for one in _evidence(text, file) if not _is_too_old(text, one)]
    if _is_from_source(texts):
        found = [one for one in found if not one.is_image]  # what the image brings is replaced
    heaviest = max((one.weight for one in found), default=0)
    first: dict[str, VllmTold] = {}
    for one in found:
        if one.weight == heaviest:
            first.setdefault(one.release.written, one)
    newest = vllm_facts().newest
    for file, text in texts if first else ():
        if (match := NEWEST.search(text)) is not None:
            line = text.count("\n", 0, match.start()) + 1
            first.setdefault(newest.written, VllmTold(newest, match[0], line, file, heaviest))
    return tuple(first.values())


def _evidence(text: str, file: str) -> Iterator[VllmTold]:
    if "vllm" not in text.lower() and " LLM engine (" not in text:
        return
    for weight, pattern in TEXTS:
        for number, match in enumerate(pattern.finditer(text)):
            if number > MOST:
                break
            named = match.groupdict()
            written = named.get("version") or named.get("engine") or ""
            if weight == SAID and _is_bound(text, match):
                continue
            release = vllm_facts().release(written)
            if release is not None:
                start = match.start() + len(match[0]) - len(match[0].lstrip(" \t\n#>|\"'=/:("))
                shown = " ".join(text[start : match.end()].split())[:90]
                yield VllmTold(release, shown, text.count("\n", 0, start) + 1, file, weight)


def _is_too_old(text: str, one: VllmTold) -> bool:
    """True for a release that a sentence names, where the text wants a later one at least."""
    if one.is_image or INSTALLS.search(lines_of(text)[one.line - 1].replace(one.text, "")):
        return False
    for match in LEAST_TOLD.finditer(text):
        least = vllm_facts().release(match["version"] or match["least"])
        if least is not None and least.place > one.release.place:
            return True
    return False


def _is_bound(text: str, match: re.Match[str]) -> bool:
    """True for a version that only bounds the one in use: "since vLLM 0.9.0", "vLLM 0.8.5 or later"."""
    before = text[max(0, match.start() - BEFORE) : match.start()]
    return LEAST.search(before) is not None or OR_MORE.match(text[match.end() : match.end() + BEFORE]) is not None
