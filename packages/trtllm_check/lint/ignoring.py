"""``# playbook: ignore=rule reason``: findings that somebody has looked at, with the reason why they stay.

The comment stands on the finding's line, or on a line of its own before the command. A reason has to be given.
"""

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from trtllm_check.lint.finding import Finding, Fix

COMMENT = re.compile(r"(?:#|//|<!--|;)\s*playbook:\s*ignore\b(?P<rest>.*)")
NAMED = re.compile(r"\s*=\s*(?P<rules>[\w.-]+(?:\s*,\s*[\w.-]+)*)(?P<reason>.*)")
MARKER = "playbook:"
RULE = "ignore-comment"
SOURCE = "docs/checks.md, ignore comments"


class Ignore(NamedTuple):
    """One comment: the rules that it names, and the lines whose findings it takes away."""

    rules: tuple[str, ...]
    lines: tuple[int, ...]


def without_ignored(findings: Sequence[Finding], texts: Mapping[str, str]) -> list[Finding]:
    """The findings that no comment of ``texts`` (file -> text) takes away, and one a comment without a reason."""
    kept: list[Finding] = []
    ignores = {}
    for file, text in texts.items():
        if MARKER in text:
            ignores[file], wrong = read_ignores(text, file)
            kept += wrong
    kept += [one for one in findings if not any(_holds(ignore, one) for ignore in ignores.get(one.file, ()))]
    return sorted(kept, key=lambda one: (one.file, one.line, one.column))


def read_texts(folder: Path, findings: Sequence[Finding]) -> dict[str, str]:
    """The texts of the files of ``folder`` that have a finding."""
    files = dict.fromkeys(finding.file for finding in findings if finding.file)
    return {file: (folder / file).read_text(encoding="utf-8", errors="replace") for file in files}


def read_ignores(text: str, file: str = "") -> tuple[list[Ignore], list[Finding]]:
    """The comments of a text, and a finding for each that says no rule or no reason."""
    found, wrong = [], []
    lines = text.split("\n")
    for number, line in enumerate(lines, 1):
        comment = COMMENT.search(line)
        if comment is None:
            continue
        named = NAMED.fullmatch(comment["rest"].removesuffix("-->").rstrip())
        if named is None or not named["reason"].strip(" :-"):
            wrong.append(_wrong(file, number, comment.start() + 1))
            continue
        alone = not line[: comment.start()].strip()
        rules = tuple(name.strip() for name in named["rules"].split(","))
        found.append(Ignore(rules, _next_command(lines, number) if alone else (number,)))
    return found, wrong


def _next_command(lines: Sequence[str], number: int) -> tuple[int, ...]:
    """The numbers of the lines behind line ``number``: the first, and those that a backslash makes part of it."""
    last = number + 1
    while last < len(lines) and lines[last - 1].rstrip().endswith("\\"):
        last += 1
    return tuple(range(number + 1, last + 1))


def _holds(ignore: Ignore, finding: Finding) -> bool:
    return finding.rule in ignore.rules and finding.line in ignore.lines


def _wrong(file: str, line: int, column: int) -> Finding:
    message = "this comment ignores nothing: it needs a rule and a reason"
    why = "who reads it later has to know why the finding may stay"
    fix = Fix("action", "write # playbook: ignore=RULE and the reason behind it")
    return Finding(RULE, "warning", line, column, message, why, fix, SOURCE, file)
