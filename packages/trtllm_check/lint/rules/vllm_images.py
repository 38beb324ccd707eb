"""Variables of AWS's vLLM images, whose entry point makes options of them: ``SM_VLLM_MAX_MODEL_LEN``."""

import re
from collections.abc import Iterator
from difflib import get_close_matches
from typing import Any

from packaging.version import Version

from trtllm_check.lint.document import Document
from trtllm_check.lint.finding import Draft, Platform, drafts
from trtllm_check.lint.rules.vllm_table import absence, instead_of, release_for
from trtllm_check.lint.shell.words import Word
from trtllm_check.releases.vllm import options_of, vllm_facts

VARIABLE = re.compile(
    r"(?<![\w$])SM_VLLM_(?P<name>[A-Z][A-Z0-9_]*[A-Z0-9])(?=\\?[\"']?\s*[=:,]|[\"']?\]?\s*$)", re.MULTILINE
)
COMMENT = re.compile(r"^\s*(?:#|//)")
SAID = re.compile(r"\\?[\"']?\s*[=:,]\s*\\?[\"']?(?P<value>true|false)\b", re.IGNORECASE)  # of a notebook's JSON, too
OWN_ENTRY = re.compile(
    r"^[\s\"]*PREFIX=\\?[\"']?SM_VLLM_", re.MULTILINE
)  # as examples/online_serving/sagemaker-entrypoint.sh
HANDS_ON = re.compile(r"ARGS\+=\(\\?\"\$\{?value")
TRUE = re.compile(r"value[^\n]{0,20}==?\s*\\?[\"']?(?:true|false)\b|is_true|\btrue\\?[\"']?(?:\||\)\s)", re.IGNORECASE)
SWITCHES_SINCE = "0.17.1"  # aws/deep-learning-containers@1c1aacc0: before it the entry point hands true on as a word
NEAR = 0.85
TOOL = "vllm serve"


def check(document: Document, platform: Platform) -> Iterator[Draft]:
    """Each variable once a file that names no option of the release, or of any."""
    for file, text in document.texts:
        seen: set[str] = set()
        for match in VARIABLE.finditer(text) if "SM_VLLM_" in text and "vllm-omni" not in text else ():
            begin = text.rfind("\n", 0, match.start()) + 1
            name = match["name"].lower().replace("_", "-")
            if name in seen or COMMENT.match(text[begin : match.start()]):
                continue
            seen.add(name)
            place = Word(match[0], text.count("\n", 0, begin) + 1, match.start() - begin + 1)
            known: dict[str, Any] = {"flag": f"--{name} (of {match[0]})", "tool": TOOL}
            changes, told = options_of("serve").get(name), release_for(document, None)
            value = SAID.match(text, match.end())
            kind = changes.at((told or vllm_facts().newest).place) if changes is not None else ""
            if value is not None and kind in ("switch", "toggle"):
                yield from _switch(match[0], value["value"], place, file, document, platform.release.name)
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


def _switch(variable: str, value: str, place: Word, file: str, document: Document, release: str) -> Iterator[Draft]:
    """``SM_VLLM_ENFORCE_EAGER=true``: a word behind an option that takes none, in images before the repair."""
    known: dict[str, Any] = {"variable": variable, "value": value, "since": SWITCHES_SINCE}
    texts = [text for _, text in document.texts]
    if any(map(OWN_ENTRY.search, texts)):
        if any(map(HANDS_ON.search, texts)) and not any(map(TRUE.search, texts)):
            yield from drafts(release, "vllm-image-switch", place, form="own", file=file, **known)
        return
    told = release_for(document, None)
    if told is not None and Version(told.written) >= Version(SWITCHES_SINCE):
        return
    for draft in drafts(release, "vllm-image-switch", place, file=file, **known):
        yield draft if told is not None else draft._replace(severity="info")


def _unknown(name: str, place: Word, file: str, known: dict[str, Any], release: str) -> Iterator[Draft]:
    options = options_of("serve")
    if any(one.startswith(name) for one in options):
        return  # argparse takes the beginning of an option for it
    close = get_close_matches(name, options, 1, NEAR)
    meant = f"SM_VLLM_{close[0].upper().replace('-', '_')}" if close else ""
    known["instead"] = f"write {meant}" if meant else "leave it out"
    yield from drafts(release, "vllm-option", place, form="" if close else "not certain", file=file, **known)
