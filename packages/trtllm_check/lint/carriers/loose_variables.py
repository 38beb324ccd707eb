"""Settings of an LMI container in languages that no other reader knows: TypeScript's CDK, Terraform, Go, Java."""

import re
from collections.abc import Iterator
from itertools import islice

from trtllm_check.lint.setting_rows import REFERENCE
from trtllm_check.lint.shell.words import Word

ABOUT = re.compile(r"djl-inference|djl-lmi|djl-serving|OPTION_ROLLING_BATCH")
WRITTEN = re.compile(
    r"(?<![\w$\"'])[\"']?(?P<name>OPTION_[A-Z0-9_]+|HF_MODEL_ID|TENSOR_PARALLEL_DEGREE)[\"']?[ \t]*(?:[:=]|=>|,)[ \t]*"
    r"(?P<quote>[\"'])(?P<value>[^\"'`\n$\\{}<>]*)(?P=quote)"
)
# The same in a row of a table and an item of a list of a page.
NAMES = r"OPTION_[A-Z0-9_]+|HF_MODEL_ID|TENSOR_PARALLEL_DEGREE"
VALUE = r"(?!option\.|[A-Z_]{4,}\b)[\w./-]+"  # and no name of another variable
TOLD = re.compile(
    rf"^[ \t]*(?:\|[ \t]*[`*]*(?P<row>{NAMES})[`*]*[ \t]*\|[ \t]*[`\"]?(?P<cell>{VALUE})[`\"]?[ \t]*\|"
    rf"|[-*+][ \t]+[`*]*(?P<item>{NAMES})[`*]*[ \t]*(?:[=:]|→|->)[ \t]*[`\"]?(?P<given>{VALUE})[`\"]?[.,;]?[ \t]*"
    r"(?:$|[(—–#]|-[ ]))",
    re.MULTILINE,
)
FEWEST = 2
MOST = 200


def loose_variables(text: str) -> Iterator[tuple[str, Word]]:
    """Names with the places of their values; nothing of a text that sets one of them twice."""
    found: dict[str, Word] = {}
    for match in islice(WRITTEN.finditer(text), MOST) if ABOUT.search(text) else ():
        start = match.start("value")
        place = Word(match["value"], text.count("\n", 0, start) + 1, start - text.rfind("\n", 0, start))
        if match["name"] in found:
            return
        found[match["name"]] = place
    yield from found.items() if found else _told(text)


def _told(text: str) -> Iterator[tuple[str, Word]]:
    """What a page tells in rows or items, at least two of them."""
    if REFERENCE.search(text):
        return
    found: dict[str, Word] = {}
    for match in islice(TOLD.finditer(text), MOST):
        name, group = (match["row"], "cell") if match["row"] else (match["item"], "given")
        start = match.start(group)
        if name in found:
            return
        found[name] = Word(match[group], text.count("\n", 0, start) + 1, start - text.rfind("\n", 0, start))
    yield from found.items() if len(found) >= FEWEST else ()
