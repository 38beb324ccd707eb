"""Lines of Python among the commands of a block that is called a shell's, or of a script."""

import re
from collections.abc import Iterator
from typing import Any

from trtllm_check.lint.document import Document
from trtllm_check.lint.finding import Draft, Platform, drafts
from trtllm_check.lint.shell.languages import COMMAND
from trtllm_check.lint.shell.pasted import fences
from trtllm_check.lint.shell.words import word_at

RULE = "python-in-shell"
SHELLS = frozenset({"bash", "sh", "shell", "zsh", "console", "terminal"})
SCRIPT = re.compile(r"\A#![^\n]*\b(?:ba|z|da|k)?sh\b")
PYTHON = re.compile(
    r"^(?P<line>from[ ][A-Za-z_][\w.]*[ ]import[ ][\w*(][\w, *()]*|import[ ][A-Za-z_][\w.]*(?:[ ]as[ ]\w+)?)"
    r"[ \t]*(?:#[^\n]*)?$",
    re.MULTILINE,
)
# What a shell hands to Python: a document, a text of its own, a prompt.
HANDED = re.compile(
    r"<<|-c[ ]+[\"']|^[ \t$>#]*(?:[^\n]*[ ])?i?python[\d.]*(?:[ ]-i)?[ \t]*$|^[ \t]*(?:>>>|In \[)|\bcat[ ]*>|\btee\b"
    r"|\becho\b|\bprintf\b|=\$?[\"']\n"
    r"|(?:\bnano|\bvim?|\bcode)[ ]\S+\.py",
    re.MULTILINE,
)


def check(document: Document, platform: Platform) -> Iterator[Draft]:
    """All drafts of the family."""
    for file, text in document.texts:
        if "import " not in text:
            continue
        blocks = [(block.start, block.end) for block in fences(text) if block.language in SHELLS]
        for start, end in [(0, len(text))] if SCRIPT.match(text) else blocks:
            inside = text[start:end]
            match = PYTHON.search(inside)
            if match is None or HANDED.search(inside, 0, match.start()):
                continue
            if any(COMMAND.match(line) for line in inside.split("\n")):
                place = word_at(text, start + match.start("line"), match["line"])
                known: dict[str, Any] = {"line": match["line"], "word": match["line"].split()[0]}
                yield from drafts(platform.release.name, RULE, place, file=file, **known)
