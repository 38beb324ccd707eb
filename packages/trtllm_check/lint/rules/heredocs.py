"""Scripts in a here-document without quotes: the outer shell fills in the variables that only the script sets."""

import re
from collections.abc import Iterator
from typing import Any

from trtllm_check.lint.document import Document
from trtllm_check.lint.finding import Draft, Platform, drafts
from trtllm_check.lint.shell.words import lines_of, word_at

START = re.compile(r"^(?P<line>[^\n#]*?<<-?[ \t]*(?P<mark>[A-Za-z_]\w*)\b[^\n]*)$", re.MULTILINE)
INTO_A_SHELL = re.compile(
    r"^[ \t]*(?:sudo )?(?:ssh|bash|sh|docker exec|kubectl exec|srun|sbatch)\b|\|[ \t]*(?:ba)?sh\b"
)
INTO_A_SCRIPT = re.compile(r">[ \t]*\S+\.(?:sh|bash|sbatch|slurm)\b")
FIRST_LINE = re.compile(r"#!\S*sh\b|#!/usr/bin/env (?:ba)?sh\b|#SBATCH\b")
SET = re.compile(
    r"^[ \t]*(?:export[ ]+|local[ ]+)?(?P<name>[A-Za-z_]\w*)=|\bfor[ ]+(?P<loop>[A-Za-z_]\w*)[ ]+in\b", re.M
)
LONGEST = 40_000  # of a body


def check(document: Document, platform: Platform) -> Iterator[Draft]:
    """All drafts of the family."""
    commanded = {command.file for command in document.commands}
    for file, text in document.texts:
        if "<<" in text and file in commanded:
            yield from _text(text, file, platform.release.name)


def _text(text: str, file: str, release: str) -> Iterator[Draft]:
    for match in START.finditer(text):
        end = re.compile(rf"^[ \t]*{match['mark']}[ \t\r]*$", re.MULTILINE).search(
            text, match.end(), match.end() + LONGEST
        )
        if end is None:
            continue
        body, before = text[match.end() + 1 : end.start()], text[: match.start()]
        is_script = INTO_A_SHELL.search(match["line"]) or INTO_A_SCRIPT.search(match["line"]) or FIRST_LINE.match(body)
        name = _lost(body, before) if is_script else ""
        if name:
            known: dict[str, Any] = {"name": name, "mark": match["mark"]}
            place = word_at(text, match.start("mark"), match["mark"])
            yield from drafts(release, "heredoc-filled-in", place, file=file, **known)


def _lost(body: str, before: str) -> str:
    """The first variable that the body sets and uses, and nothing sets before it; "" for none."""
    uses = {number: line for number, line in enumerate(lines_of(body)) if "$" in line}
    for match in SET.finditer(body) if uses else ():
        name = match["name"] or match["loop"]
        used = re.compile(rf"(?<!\\)\$(?:{name}\b|\{{{name}[}}:%#/])")
        if used.search(body, match.end()) and not re.search(
            rf"(?:^|[\s;]){name}=|\bfor {name} in\b|\bread\b.*\b{name}\b", before
        ):
            return name
    return ""
