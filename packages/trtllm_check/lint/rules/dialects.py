"""Scripts that ``sh`` runs and that are written in bash, and lines of a notebook on a page, each with its own shell."""

import posixpath
import re
from collections.abc import Iterator
from typing import Any

from trtllm_check.lint.carriers.notebooks import is_notebook
from trtllm_check.lint.carriers.workloads import ServedContainer
from trtllm_check.lint.document import Document
from trtllm_check.lint.finding import Draft, Platform, drafts
from trtllm_check.lint.shell.dash import WITH_DASH, of_bash
from trtllm_check.lint.shell.words import Word, lines_of, word_at

RULE = "syntax-of-another-shell"
FIRST_LINE = re.compile(r"^(?P<indent>[ \t]*)#![ ]?(?:/usr)?/bin/(?:env[ ]+)?sh(?:[ ]+-\w+)?[ \t]*\n", re.MULTILINE)
END = re.compile(r"^[ \t]*(?:#!|`{3,}|~{3,})", re.MULTILINE)
HELD = re.compile(r"<<-?[ \t]*['\"]?(?P<mark>\w+)['\"]?[^\n]*\n\Z")
STARTED_BY_BASH = re.compile(r"(?<![\w/#!])bash[ \t]+(?:-\w+[ \t]+)*\S+\.sh\b")
ENTRY = re.compile(r"\bentrypoint:\s*(?:\[|-)\s*[\"']?(?:/bin/|/usr/bin/)?sh[\"']?\s*(?:,|-)\s*[\"']?-\w*c\b")
OF_A_NOTEBOOK = re.compile(r"^[ \t]*(?P<mark>[!%])(?P<command>[ ]?[a-z][^\n]*)$", re.MULTILINE)
ALONE = re.compile(r"[ ]?(?P<what>cd|export|source|conda activate)[ \t]+(?P<rest>[^\s&;|#]+)[ \t]*(?:#.*)?")
C_OPTION = re.compile(r"-\w*c")
OF_RED_HAT = re.compile(
    r"image:[^\n]*(?:\bubi\d|redhat|\brhel|fedora|centos|rocky|alma|\bquay\.io/)"
)  # sh is bash there


def check(document: Document, platform: Platform) -> Iterator[Draft]:
    """All drafts of the family."""
    release = platform.release.name
    for file, text in document.texts:
        if "#!" in text and not STARTED_BY_BASH.search(text):
            yield from _scripts(text, file, release)
        if "!cd" in text or "! cd" in text or "!export" in text:
            yield from _lost(text, file, release)
    texts = dict(document.texts)
    for one in document.workloads:
        script = _script(one, texts.get(one.file, ""))
        if script is not None and WITH_DASH.match(one.image):
            yield from _workload(one, script, release)


def _lost(text: str, file: str, release: str) -> Iterator[Draft]:
    """``!cd folder`` of a notebook that a page shows, and other lines behind it."""
    if is_notebook(text):
        return  # whose reader sees it
    lines = list(OF_A_NOTEBOOK.finditer(text))
    for number, match in enumerate(lines):
        alone = ALONE.fullmatch(match["command"].rstrip())
        if alone is None or match["mark"] == "%" or number + 1 == len(lines):
            continue
        name, _, value = alone["rest"].partition("=")
        form = {"cd": "folder", "export": ""}.get(alone["what"], "environment")
        known: dict[str, Any] = {"what": match["command"].strip()}
        known["right"] = f"%cd {alone['rest']}" if form == "folder" else f"%env {name}={value}"
        place = word_at(text, match.start("mark"), f"!{match['command'].strip()}")
        yield from drafts(release, "notebook-line", place, form=form, file=file, **known)


def _scripts(text: str, file: str, release: str) -> Iterator[Draft]:
    """``#!/bin/sh``, and what stands below it; where sh is bash, as on Red Hat, it runs."""
    if OF_RED_HAT.search(text):
        return
    for match in FIRST_LINE.finditer(text):
        held = HELD.search(text, text.rfind("\n", 0, max(match.start() - 1, 0)) + 1, match.start())
        mark = re.compile(rf"^[ \t]*{held['mark']}[ \t]*$", re.MULTILINE) if held else END
        end = mark.search(text, match.end())
        inside = _indented(text[match.end() : end.start() if end else len(text)], len(match["indent"]))
        for one in of_bash(inside):
            place = word_at(text, match.end() + one.start, one.what)
            known: dict[str, Any] = {"what": one.what, "says": one.says, "instead": one.instead}
            yield from drafts(release, RULE, place, form="sh", file=file, **known)


def _indented(text: str, margin: int) -> str:
    """The lines up to one that stands further out than the script's first, as in a block of YAML."""
    at = 0
    for line in text.splitlines(keepends=True):
        if line.strip() and len(line) - len(line.lstrip()) < margin:
            return text[:at]
        at += len(line)
    return text


def _script(one: ServedContainer, text: str) -> Word | None:
    """What stands behind ``sh -c``, which is the entry point of its own in compose."""
    words = one.words
    if one.kind == "compose" and words and "entrypoint" in text:
        return words[0] if ENTRY.search("\n".join(lines_of(text)[one.first - 1 : one.last])) else None
    is_sh = len(words) > 2 and posixpath.basename(words[0].text) == "sh" and C_OPTION.fullmatch(words[1].text)
    return words[2] if is_sh else None


def _workload(one: ServedContainer, script: Word, release: str) -> Iterator[Draft]:
    """``command: ["/bin/sh", "-c"]`` in an image whose sh is known."""
    for found in of_bash(script.text):
        place = script.part(found.start, found.start + len(found.what))
        known: dict[str, Any] = {"what": found.what, "says": found.says, "instead": found.instead, "image": one.image}
        yield from drafts(release, RULE, place, form="sh of an image", file=one.file, **known)
