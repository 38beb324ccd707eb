"""Tildes that no shell fills in: in quotes, and behind the = of an option."""

import re
from collections.abc import Iterator
from typing import Any

from trtllm_check.lint.document import Document
from trtllm_check.lint.facts import OUTPUT
from trtllm_check.lint.finding import Draft, Platform, drafts
from trtllm_check.lint.invocations import Invocation
from trtllm_check.lint.rules.box import boxes
from trtllm_check.lint.shell.words import Word, lines_of, word_at

RULE = "tilde-in-quotes"
QUOTES = "\"'"
SET = re.compile(
    r"(?:^|[;&|]|\bthen|\bdo)[ \t]*(?:(?:export|local|readonly|declare)[ \t]+)?(?P<name>[A-Za-z_]\w*)="
    r"(?P<value>\"(?:\$\{\w+:?[-=])?~/[^\"\n]*\"|'~/[^'\n]*')",
    re.MULTILINE,
)
# What fills it in after all.
LATER = re.compile(r"\beval\b|/#\\?~|expanduser|envsubst|s[|#@,/]\^?~|HOME/\$\{\w+#")
MOUNT = re.compile(r"(?:^|,)(?:source|src)=(?P<path>~/[^,]*)")
GOES = ("cd", "pushd")
COPIES = ("cp", "mv", "ln", "ls", "source", ".")
OURS = re.compile(r"--(?:\w+_dir|model[-_]repo(?:sitory)?|model[-_]store|engine_dir|checkpoint_dir|output_dir)")
TOOLS = (*OUTPUT, "trtllm-build", "tritonserver", "launch_triton_server.py", "run.py", "summarize.py")


def check(document: Document, platform: Platform) -> Iterator[Draft]:
    """All drafts of the family."""
    release = platform.release.name
    texts = {file: text for file, text in document.texts if "~/" in text}
    said: set[tuple[str, int]] = set()
    made = _made(document) if texts else ()
    for form, part, file in _uses(document) if texts else ():
        place = _place(part, texts.get(file, ""))
        form = "made" if form == "folder" and part.text.startswith(made) else form
        if place is not None and (file, place.line) not in said:
            said.add((file, place.line))
            known: dict[str, Any] = {"value": part.text}
            yield from drafts(release, RULE, place, form=form, file=file, **known)


def _uses(document: Document) -> Iterator[tuple[str, Word, str]]:
    """Words that begin with a tilde behind all quotes, and what in them is a path: the form of what is said of it."""
    for box in boxes(document):
        given = box.docker.given if box.docker else ()
        for one in given:
            if one.name in ("-v", "--volume"):
                yield from (("", word, box.file) for word in one.values if word.text.startswith("~/"))
            elif one.name == "--mount":
                for word in one.values:
                    if match := MOUNT.search(word.text):
                        yield "", word.part(*match.span("path")), box.file
    for invocation in document.of(*TOOLS):
        yield from _options(invocation)
    for command in document.commands:
        first, *rest = command.words or (Word("", 0, 0),)
        plain = [word for word in rest if not word.text.startswith("-")]
        if first.text in GOES or (first.text == "mkdir" and plain):
            form = "made" if first.text == "mkdir" else "folder"
            yield from ((form, word, command.file) for word in plain[:1] if word.text.startswith("~/"))
        elif first.text in COPIES:
            yield from (("folder", word, command.file) for word in plain[:1] if word.text.startswith("~/"))


def _made(document: Document) -> tuple[str, ...]:
    """Folders below one called ~ that commands of the text make, so that later ones find them."""
    words = (
        command.words[-1].text
        for command in document.commands
        if len(command.words) > 1 and command.words[0].text in ("mkdir", "git", "python", "python3", "wget", "hf")
    )
    return tuple(word for word in words if word.startswith("~/"))


def _options(invocation: Invocation) -> Iterator[tuple[str, Word, str]]:
    for one in invocation.given:
        if OURS.fullmatch(one.name):
            for word in one.values[:1]:
                if word.text.startswith("~/"):
                    yield "option", word, invocation.command.file


def _place(part: Word, text: str) -> Word | None:
    """Where the tilde is kept from the shell; None where it is not."""
    lines = lines_of(text)
    line = lines[part.line - 1] if 0 < part.line <= len(lines) else ""
    path = re.split(r"[:,]", part.text)[0]
    if any(f"{quote}{path}" in line for quote in QUOTES) or re.search(rf"[-\w]=[\"']?{re.escape(path)}", line):
        return part if not LATER.search(line) else None
    for match in SET.finditer(text):
        value = match["value"].strip(QUOTES)
        value = value[value.index("~") :].rstrip("}")
        if path.startswith(value) and re.search(rf"\$\{{?{match['name']}\b", line) and not LATER.search(text):
            return word_at(text, match.start("value"), match["value"])
    return None
