"""An archive that is written under one name, and uploaded under another that nothing makes."""

import posixpath
import re
from collections.abc import Iterator
from difflib import SequenceMatcher
from functools import lru_cache
from typing import Any

from trtllm_check.lint.document import Document
from trtllm_check.lint.finding import Draft, Platform, drafts
from trtllm_check.lint.shell.words import word_at

RULE = "archive-of-another-name"
NAME = r"(?P<name>[\w./-]+\.(?:tar\.gz|tgz|tar|zip))"
WRITTEN = (
    re.compile(rf"\btar[ \t]+(?:-C[ \t]*\S+[ \t]+)?-?(?=[a-zA-Z]*c)[a-zA-Z]*f[ \t]+[\"']?{NAME}(?![\w.{{$])"),
    re.compile(rf"\btar[ \t]+(?=[^\n]*-\w*c)[^\n|;&]*[ \t]-\w*f[ \t]+[\"']?{NAME}(?![\w.{{$])"),
    re.compile(
        rf"\btarfile\.open\([ \t]*(?:name[ \t]*=[ \t]*)?[\"']{NAME}[\"'][ \t]*,[ \t]*(?:mode[ \t]*=[ \t]*)?[\"'][wx]"
    ),
    re.compile(rf"\bzip[ \t]+-\w+[ \t]+[\"']?{NAME}(?![\w.{{$])"),
)
UPLOADED = (
    re.compile(rf"\.upload_(?:data|file)\([ \t]*(?:(?:path|Filename)[ \t]*=[ \t]*)?[\"']{NAME}[\"']"),
    re.compile(rf"\bS3Uploader\.upload\([ \t]*(?:local_path[ \t]*=[ \t]*)?[\"']{NAME}[\"']"),
    re.compile(rf"\baws[ \t]+s3[ \t]+(?:cp|mv)[ \t]+[\"']?{NAME}[\"']?[ \t]+[\"']?(?:s3://|\$|\{{)"),
    re.compile(rf"\bgsutil[ \t]+(?:-m[ \t]+)?cp[ \t]+[\"']?{NAME}[\"']?[ \t]+[\"']?gs://"),
)
ALIKE = 0.6


def check(document: Document, platform: Platform) -> Iterator[Draft]:
    """All drafts of the family."""
    for file, text in document.texts:
        if "upload" not in text and "s3 cp" not in text and "gsutil" not in text:
            continue
        written = {posixpath.basename(name): line for name, line in _found(text, WRITTEN)}
        uploads = [match for one in UPLOADED for match in one.finditer(text)]
        names = {posixpath.basename(match["name"]) for match in uploads}
        left = [name for name in written if name not in names]
        if len(written) != 1 or len(left) != 1:
            continue
        for match in uploads:
            name = posixpath.basename(match["name"])
            if _ending(name) == _ending(left[0]) and _alike(name, left[0]) and _mentions(text, name) == 1:
                known: dict[str, Any] = {"name": match["name"], "written": left[0], "line": written[left[0]]}
                place = word_at(text, match.start("name"), match["name"])
                yield from drafts(platform.release.name, RULE, place, file=file, **known)


def _found(text: str, patterns: tuple[re.Pattern[str], ...]) -> Iterator[tuple[str, int]]:
    for one in patterns:
        for match in one.finditer(text):
            yield match["name"], text.count("\n", 0, match.start()) + 1


def _ending(name: str) -> str:
    return name.partition(".")[2]


@lru_cache(maxsize=64)
def _alike(one: str, other: str) -> bool:
    first, second = one.partition(".")[0], other.partition(".")[0]
    return first in second or second in first or SequenceMatcher(None, first, second).ratio() >= ALIKE


def _mentions(text: str, name: str) -> int:
    """How often a file of this name is spoken of, but for its place in the store."""
    return len(re.findall(rf"(?<![\w.-]){re.escape(name)}(?![\w-])", re.sub(r"\b(?:s3|gs)://\S+", "", text)))
