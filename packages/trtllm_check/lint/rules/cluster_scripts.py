"""What ``run_cluster.sh`` of vLLM is given, which goes by its order: image, address of the head, node type, folder."""

import re
from collections.abc import Iterator
from typing import Any

from trtllm_check.lint.document import Document
from trtllm_check.lint.finding import Draft, Platform, drafts
from trtllm_check.lint.shell.words import word_at

RULE = "run-cluster-order"
CALL = re.compile(r"\brun_cluster\.sh[ \t]+(?P<words>(?:[^\n#]*\\[ \t]*\n)*[^\n#]*)")
WORD = re.compile(r"\"[^\"\n]*\"|'[^'\n]*'|<[^<>\n]*>|\[[^\[\]\n]*\]|[^\s\\|;&`)]+")
CONTINUED = re.compile(r"(?<=\n)[ \t]*[$>](?=[ \t])")
TYPES, ROLE_AT, LEAST = ("--head", "--worker"), 2, 4
ENDS = re.compile(r"(?:\\(?![ \t]*\n))|[|;&`)]")


def check(document: Document, platform: Platform) -> Iterator[Draft]:
    """All drafts of the family."""
    for file, text in document.texts:
        for match in CALL.finditer(text) if "run_cluster.sh" in text else ():
            found = _judged(match)
            if found is not None:
                form, start, word, known = found
                yield from drafts(
                    platform.release.name, RULE, word_at(text, start, word), form=form, file=file, **known
                )


def _judged(match: re.Match[str]) -> tuple[str, int, str, dict[str, Any]] | None:
    """What is wrong, where, and its words."""
    words = _words(match)
    at = next((number for number, (word, _) in enumerate(words) if word in TYPES), None)
    if at is None or any(word.startswith(("$@", '"$@', "[", "$*")) for word, _ in words[: at + 1]):
        return None
    word, start = words[at]
    if at != ROLE_AT:
        third = words[ROLE_AT][0] if len(words) > ROLE_AT else "nothing"
        return "", start, word, {"role": word, "third": third, "number": at + 1}
    behind = words[LEAST - 1][0] if len(words) >= LEAST else ""
    if not behind or behind.startswith("-"):
        return "folder", start, word, {"role": word, "behind": behind or "nothing"}
    return None


def _words(match: re.Match[str]) -> list[tuple[str, int]]:
    """The words with their places; a prompt at a line's begin, and what stands behind a pipe, left out."""
    inside = CONTINUED.sub(lambda one: " " * len(one[0]), match["words"])
    end = ENDS.search(inside)
    inside = inside[: end.start()] if end else inside
    return [(one[0], match.start("words") + one.start()) for one in WORD.finditer(inside)]
