"""Names that a program uses, and that nothing of the text imports or makes."""

import re
from collections.abc import Iterator

from trtllm_check.lint.carriers.loose_names import ERROR
from trtllm_check.lint.document import Document
from trtllm_check.lint.finding import Draft, Platform, drafts
from trtllm_check.lint.shell.pasted import fences

FAMILY = "loose_names"
RULE = "name-missing"
MADE = (
    r"\bimport\b[^\n]*\b{name}\b|\b(?:as|def|class|for)\s+{name}\b"
    r"|^[ \t]*{name}\s*(?::[^\n=]+)?=|^[ \t]+{name},?[ \t]*$"
)


def check(document: Document, platform: Platform) -> Iterator[Draft]:
    """All drafts of the family."""
    texts = dict(document.texts)
    for one in document.names:
        if one.error != ERROR:
            continue
        text = texts.get(one.file, "")
        made = re.compile(MADE.format(name=re.escape(one.dotted)), re.MULTILINE)
        if made.search(text):
            continue  # another piece of the page does
        form = "on a page" if any(fences(text)) else ""
        instead = one.member if one.member.startswith("write ") else f"put {one.member} at the top"
        yield from drafts(
            platform.release.name, RULE, one.place, form=form, file=one.file, name=one.dotted, instead=instead
        )
