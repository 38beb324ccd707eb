"""What the scripts of TensorRT-LLM's examples assert of their own arguments."""

import re
from collections.abc import Iterator, Mapping
from pathlib import PurePosixPath
from typing import Any

from trtllm_check.lint.document import Document
from trtllm_check.lint.finding import Draft, Platform, drafts, rule_data
from trtllm_check.lint.invocations import Invocation
from trtllm_check.lint.rules.names import is_open
from trtllm_check.releases.load import in_range

FAMILY = "script_pairs"
RULE = "example-option"
HELP = ("--help", "-h")


def check(document: Document, platform: Platform) -> Iterator[Draft]:
    """Every assertion of the table that a command meets."""
    for script in dict.fromkeys(pair["script"] for pair in rule_data(FAMILY)["pairs"]):
        for one in document.of(script):
            if not one.has(*HELP):
                yield from _of(one, script, platform)


def _of(one: Invocation, script: str, platform: Platform) -> Iterator[Draft]:
    release = platform.release.name
    folder = PurePosixPath(one.path.text).parent.name or one.folder
    for pair in rule_data(FAMILY)["pairs"]:
        if pair["script"] != script or folder not in pair["folders"]:
            continue
        if not platform.guessed and not in_range(release, pair.get("since", ""), pair.get("until", "")):
            continue
        if "unless" in pair and any(re.search(pair["unless"], word.text, re.IGNORECASE) for word in one.arguments):
            continue
        given = one.find(pair["at"])
        if given is not None and all(_holds(one, flag, wanted) for flag, wanted in pair["when"].items()):
            known: dict[str, Any] = {"script": script, "says": pair["says"], "do": pair["fix"]}
            yield from drafts(release, RULE, given.word, form="asserted", invocation=one, **known)


def _holds(one: Invocation, flag: str, wanted: Any) -> bool:
    """What the table asks of one flag; what is not told holds for nothing."""
    value = one.value(flag)
    if wanted == "absent":
        return value is None and not any(is_open(word.text) for word in one.positional)
    if value is None or wanted == "given":
        return value is not None
    if is_open(value):
        return False
    if isinstance(wanted, Mapping) and "above" in wanted:
        return value.isascii() and value.isdecimal() and int(value) > wanted["above"]
    return value in wanted if isinstance(wanted, list) else value not in wanted["not"]
