"""Variables of AWS's vLLM images, whose entry point makes options of them: ``SM_VLLM_MAX_MODEL_LEN``."""

import re
from collections.abc import Iterator
from difflib import get_close_matches
from typing import Any

from trtllm_check.lint.document import Document
from trtllm_check.lint.finding import Draft, Platform, drafts
from trtllm_check.lint.rules.vllm_table import absence, instead_of, release_for
from trtllm_check.lint.shell.words import Word
from trtllm_check.releases.vllm import options_of

VARIABLE = re.compile(
    r"(?<![\w$])SM_VLLM_(?P<name>[A-Z][A-Z0-9_]*[A-Z0-9])(?=[\"']?\s*[=:,]|[\"']?\]?\s*$)", re.MULTILINE
)
COMMENT = re.compile(r"^\s*(?:#|//)")
NEAR = 0.85
TOOL = "vllm serve"


def check(document: Document, platform: Platform) -> Iterator[Draft]:
    """Each variable once a file that names no option of the release, or of any."""
    for file, text in document.texts:
        seen: set[str] = set()
        for match in VARIABLE.finditer(text) if "SM_VLLM_" in text else ():
            begin = text.rfind("\n", 0, match.start()) + 1
            name = match["name"].lower().replace("_", "-")
            if name in seen or COMMENT.match(text[begin : match.start()]):
                continue
            seen.add(name)
            place = Word(match[0], text.count("\n", 0, begin) + 1, match.start() - begin + 1)
            known: dict[str, Any] = {"flag": f"--{name} (of {match[0]})", "tool": TOOL}
            changes, told = options_of("serve").get(name), release_for(document, None)
            if changes is None:
                yield from _unknown(name, place, file, known, platform.release.name)
                continue
            lacking = absence(changes, told)
            if lacking is None or (told is None and not lacking.gone):
                continue
            known |= {"has": lacking.has, "since": lacking.edge, "instead": instead_of("options", name)}
            known |= {"version": told.written if told else ""}
            rule = "vllm-option-gone" if lacking.gone else "vllm-option-of-another-version"
            form = "" if told else "not certain"
            yield from drafts(platform.release.name, rule, place, form=form, file=file, **known)


def _unknown(name: str, place: Word, file: str, known: dict[str, Any], release: str) -> Iterator[Draft]:
    options = options_of("serve")
    if any(one.startswith(name) for one in options):
        return  # argparse takes the beginning of an option for it
    close = get_close_matches(name, options, 1, NEAR)
    meant = f"SM_VLLM_{close[0].upper().replace('-', '_')}" if close else ""
    known["instead"] = f"write {meant}" if meant else "leave it out"
    yield from drafts(release, "vllm-option", place, form="" if close else "not certain", file=file, **known)
