"""An option that is given twice under its two names, of which argparse keeps the last."""

from collections.abc import Iterator
from typing import Any

from trtllm_check.lint.document import Document
from trtllm_check.lint.finding import Draft, Platform, drafts
from trtllm_check.lint.programs import Given
from trtllm_check.lint.rules.arguments import is_checked
from trtllm_check.lint.rules.names import is_open


def check(document: Document, platform: Platform) -> Iterator[Draft]:
    """All drafts of the family."""
    release = platform.release
    for one in document.invocations:
        if len(one.given) < 2 or not is_checked(one, release):
            continue
        seen: dict[str, Given] = {}
        for given in one.given:
            argument = release.tools[one.tool].argument(given.flag) if given.flag else None
            if (
                argument is None
                or argument.is_switch
                or argument.action == "append"
                or not argument.aliases
                or len(given.values) != 1
            ):
                continue
            first = seen.setdefault(argument.aliases[0], given)
            value, before = given.values[0].text, first.values[0].text
            if first is not given and first.flag != given.flag and value != before and not is_open(value + before):
                known: dict[str, Any] = {"flag": given.flag, "value": value, "first": first.flag, "before": before}
                yield from drafts(release.name, "option-twice", given.word, invocation=one, tool=one.tool, **known)
