"""``HF_HOME=/data/hub``: the hub's library puts its files into ``hub`` below HF_HOME, and so into ``hub/hub``."""

import re
from collections.abc import Iterator
from typing import Any

from trtllm_check.lint.document import Document
from trtllm_check.lint.finding import Draft, Platform, drafts
from trtllm_check.lint.shell.words import word_at

RULE = "hub-below-hub"
HOME = re.compile(
    r"^(?P<before>[^\n#]*)\bHF_HOME[\"']?\]?[ \t]*(?:[=:,]|\n[ \t]*[\"']?value[\"']?:)[ \t]*[\"']?"
    r"(?P<path>(?:/|~|\$|\.)[^\s\"':;,#]*/hub)/?(?=[\"'\s;,)]|$)",
    re.MULTILINE,
)
# Where files of the hub lie already: its own cache, and folders that people share.
FILLED = re.compile(r"hugging-?face/hub$|weights|models?/|shared|datasets", re.IGNORECASE)
ELSEWHERE = re.compile(r"\b(?:HF_HUB_CACHE|HUGGINGFACE_HUB_CACHE)\b")


def check(document: Document, platform: Platform) -> Iterator[Draft]:
    """All drafts of the family."""
    for file, text in document.texts:
        if "HF_HOME" not in text or ELSEWHERE.search(text):
            continue
        for match in HOME.finditer(text):
            path = match["path"]
            known: dict[str, Any] = {"path": path, "right": path.removesuffix("/hub")}
            place = word_at(text, match.start("path"), path)
            form = "" if FILLED.search(path) else "perhaps"
            yield from drafts(platform.release.name, RULE, place, form=form, file=file, **known)
