"""Names that a program uses, and that nothing of the text imports or makes."""

import re
from collections.abc import Iterator

from trtllm_check.lint.carriers.loose_names import ERROR
from trtllm_check.lint.document import Document
from trtllm_check.lint.finding import Draft, Platform, drafts
from trtllm_check.lint.shell.pasted import fences

FAMILY = "loose_names"
RULE = "name-missing"
FROM, PB_UTILS = re.compile(r"from (?P<module>\S+) import"), "triton_python_backend_utils"
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
        is_page = any(fences(text))
        form = "on a page" if is_page and not _imports_others(one.member, text) else ""
        instead = one.member if one.member.startswith("write ") else f"put {one.member} at the top"
        for draft in drafts(
            platform.release.name, RULE, one.place, form=form, file=one.file, name=one.dotted, instead=instead
        ):
            yield draft._replace(severity="warning") if is_page and not form else draft


def _imports_others(member: str, text: str) -> bool:
    """True where the text has a line that imports other names of the module: this one was forgotten there."""
    match = FROM.match(member)
    module = match["module"] if match else PB_UTILS if "pb_utils." in member else ""
    return bool(module) and re.search(rf"^[ \t]*from {re.escape(module)} import\b", text, re.MULTILINE) is not None
