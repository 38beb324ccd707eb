"""vLLM of its main branch, put over the release of an image or built on a CUDA that main has left behind."""

import re
from collections.abc import Iterator
from typing import Any

from trtllm_check.lint.document import Document
from trtllm_check.lint.finding import Draft, Platform, drafts
from trtllm_check.lint.shell.words import word_at

RULE = "unpinned-main"
IMAGE = re.compile(
    r"^FROM[ \t]+(?:--\S+[ ]+)?(?:\S*/)?vllm-openai:(?P<tag>v\d+\.\d+\.\d+)\S*[ \t]*(?:AS[ ]+\w+)?\r?$", re.MULTILINE
)
OLD_CUDA = re.compile(
    r"^FROM[ \t]+(?:--\S+[ ]+)?(?P<image>\S*(?:cuda:?-?11\.\d|cu11\d)\S*)", re.MULTILINE | re.IGNORECASE
)
ADDRESS = r"https://github\.com/vllm-project/vllm(?:\.git)?/?"
INSTALLED = re.compile(
    rf"\bpip3? install\b[^\n&;|]*?[ ](?P<what>(?:[\"']?vllm[ ]*@[ ]*)?[\"']?git\+{ADDRESS}(?:@main)?)(?=[\"'\s#]|$)",
    re.MULTILINE,
)
CLONED = re.compile(rf"\bgit clone (?:--(?:depth|recurs\w+)[ =]?\S*[ ]+)*(?P<what>{ADDRESS})(?=\s|$|&|;)")
PINNED = re.compile(r"git (?:checkout|switch|reset)|--branch|\b-b[ ]|VLLM_USE_PRECOMPILED|use_existing_torch")
BUILT = re.compile(r"pip3? install[^\n]*(?:-e[ ]+\S*|--editable|[ ]\./?(?=\s|$)|[ ]\S*vllm/?(?=\s|$))|setup\.py")
STAGES = re.compile(r"^FROM[ \t]", re.MULTILINE)


def check(document: Document, platform: Platform) -> Iterator[Draft]:
    """All drafts of the family: Dockerfiles of one stage."""
    release = platform.release.name
    for file, text in document.texts:
        if "vllm-project/vllm" not in text or len(STAGES.findall(text)) != 1 or PINNED.search(text):
            continue
        cloned = CLONED.search(text)
        source = INSTALLED.search(text) or (cloned if BUILT.search(text, cloned.end() if cloned else 0) else None)
        if source is None:
            continue
        place = word_at(text, source.start("what"), source["what"])
        image, old = IMAGE.search(text), OLD_CUDA.search(text)
        if image is not None:
            known: dict[str, Any] = {"tag": image["tag"], "line": text.count("\n", 0, image.start()) + 1}
            yield from drafts(release, RULE, place, form="image", file=file, **known)
        elif old is not None:
            known = {"image": old["image"], "line": text.count("\n", 0, old.start()) + 1}
            yield from drafts(release, RULE, place, form="CUDA", file=file, **known)
