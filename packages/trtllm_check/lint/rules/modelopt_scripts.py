"""Model Optimizer's own scripts: options of those in Python and of the one of the shell, by release."""

import re
from collections.abc import Iterator
from difflib import get_close_matches
from typing import Any

from trtllm_check.lint.document import Document
from trtllm_check.lint.finding import Draft, Platform, drafts, rule_data
from trtllm_check.lint.rules.names import is_open
from trtllm_check.lint.shell.words import Word, file_name
from trtllm_check.releases.modelopt import absent, known_version, modelopt_facts

FAMILY = "modelopt_scripts"
RULE = "modelopt-option"
EXAMPLE = "huggingface_example.sh"
PTQ = "hf_ptq.py"
MULTINODE = "multinode_ptq.py"
MOST_BEFORE = 24  # words of accelerate launch in front of the script
PIN = re.compile(r"nvidia[-_]modelopt(?:\[[\w,\s-]*\])?\s*={2,3}\s*(?P<version>\d+\.\d+\.\d+)", re.IGNORECASE)
VERSION = r"v?(?P<version>\d+\.\d+\.\d+)(?=[\s\"']|$)"
CLONES = (
    re.compile(rf"git clone\b[^\n]*(?:-b|--branch)[ =]{VERSION}[^\n]*/(?:TensorRT-)?Model-Optimizer\b", re.IGNORECASE),
    re.compile(rf"git clone\b[^\n]*/(?:TensorRT-)?Model-Optimizer\b[^\n]*(?:-b|--branch)[ =]{VERSION}", re.IGNORECASE),
)
OPTION = re.compile(r"(?P<flag>--[A-Za-z][\w-]*)(?:=.*)?", re.DOTALL)
NEAR = 0.8


def check(document: Document, platform: Platform) -> Iterator[Draft]:
    """All drafts of the family."""
    version = _version(document)
    for one in document.of(PTQ):
        if not version and PTQ in platform.release.tools:
            continue  # the release's own table speaks of it
        yield from _options(PTQ, one.arguments, one.command.file, version, platform.release.name)
    for command in document.commands:
        names = [file_name(word.text) for word in command.words[:MOST_BEFORE]]
        if MULTINODE in names:
            behind = command.words[names.index(MULTINODE) + 1 :]
            yield from _options(MULTINODE, behind, command.file, version, platform.release.name)
        at = next((n for n, word in enumerate(command.words[:3]) if file_name(word.text) == EXAMPLE), None)
        if at is not None:
            yield from _options(EXAMPLE, command.words[at + 1 :], command.file, version, platform.release.name)


def _version(document: Document) -> str:
    texts = [text for _, text in document.texts]
    found = {match["version"] for text in texts for match in PIN.finditer(text)}
    found = {match["version"] for text in texts for one in CLONES for match in one.finditer(text)} or found
    return known_version(found.pop()) if len(found) == 1 else ""


def _options(script: str, words: tuple[Word, ...], file: str, version: str, release: str) -> Iterator[Draft]:
    known = modelopt_facts().scripts[script]
    meant: dict[str, str] = rule_data(FAMILY)["instead"]
    for word in words:
        match = OPTION.fullmatch(word.text)
        flag = match["flag"] if match else ""
        if not flag or is_open(flag):
            continue
        about: dict[str, Any] = {"script": script, "flag": flag, "version": version or modelopt_facts().releases[-1]}
        lacking = absent(script, flag, version)
        if lacking is not None and (version or lacking.gone):
            form = ("gone" if lacking.gone else "later") if version else "gone, perhaps"
            about |= {"since": lacking.since, "until": lacking.until}
            about["instead"] = meant.get(flag) or "leave it out"
            yield from drafts(release, RULE, word, form=form, file=file, **about)
        elif flag not in known and not any(one.startswith(flag) for one in known):
            close = get_close_matches(flag, known, 1, NEAR)
            instead = meant.get(flag) or (f"write {close[0]}" if close else "")
            if instead:
                yield from drafts(release, RULE, word, file=file, **about, instead=instead)
