"""Mends a script in its place: only the words that a finding names change, and only if a new check agrees.

Quotes, variables, comments and everything else stay as they are written. What cannot be placed exactly (a value that
comes from a variable, a word that was pasted with other characters) is left to the reader.
"""

import difflib
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from trtllm_check.lint.finding import Draft, Drop, Edit, Finding, Insert, Platform, Swap
from trtllm_check.lint.fixing import GRAVITY, Family, drafts_of, findings
from trtllm_check.lint.ignoring import read_ignores, without_ignored
from trtllm_check.lint.invocations import Invocation
from trtllm_check.lint.reading import read_document
from trtllm_check.lint.rewriting import anchor, arguments, quoted
from trtllm_check.lint.shell.words import Word

MOST_TRIES = 30
QUOTES = "'\""
ONLY_CONTINUATION = re.compile(r"[ \t]*\\?[ \t]*")


class Patch(NamedTuple):
    """``text`` in the place of the characters ``start`` to ``end``."""

    start: int
    end: int
    text: str


class Mended(NamedTuple):
    """The script after all changes that a new check agrees with; ``left``: what it still finds."""

    text: str
    changes: int
    left: tuple[Finding, ...]


def mended(text: str, platform: Platform, families: Sequence[Family]) -> Mended:
    """``text``, a shell script, with the fixes of its findings, but of those that a comment in it ignores."""
    found = findings(read_document(text, "shell"), platform, families)
    changes = 0
    refused: set[tuple[str, str]] = set()
    for _ in range(MOST_TRIES):
        for draft, patches in _patches(text, platform, families):
            key = (draft.rule, draft.message)
            if key in refused:
                continue
            changed = _applied(text, patches)
            after = findings(read_document(changed, "shell"), platform, families)
            if _is_better(found, after, draft):
                text, found = changed, after
                changes += 1
                break
            refused.add(key)
        else:
            break
    return Mended(text, changes, tuple(without_ignored(found, {"": text})))


def diff(before: str, after: str, name: str) -> str:
    """What changed, as ``diff -u`` writes it."""
    lines = difflib.unified_diff(
        before.splitlines(keepends=True), after.splitlines(keepends=True), f"a/{name}", f"b/{name}"
    )
    return "".join(line if line.endswith("\n") else f"{line}\n" for line in lines)


def write(path: Path, text: str) -> Path:
    """Put ``text`` into ``path``; what was there goes into a new file beside it, which is returned."""
    backup = path.with_name(f"{path.name}.orig")
    number = 1
    while backup.exists():
        backup = path.with_name(f"{path.name}.orig{number}")
        number += 1
    backup.write_bytes(path.read_bytes())
    path.write_text(text, encoding="utf-8", newline="")
    return backup


def _is_better(before: Sequence[Finding], after: Sequence[Finding], draft: Draft) -> bool:
    """True if the finding is gone, and no other came that is not milder."""
    old = [(one.rule, one.message) for one in before]
    new = [(one.rule, one.message) for one in after]
    if new.count((draft.rule, draft.message)) >= old.count((draft.rule, draft.message)):
        return False
    came = [one for one in after if (one.rule, one.message) not in old]
    return all(GRAVITY[one.severity] > GRAVITY[draft.severity] for one in came)


def _patches(text: str, platform: Platform, families: Sequence[Family]) -> Iterator[tuple[Draft, list[Patch]]]:
    """What to change for each finding that can be mended in its place, the gravest first."""
    document = read_document(text, "shell")
    starts = [0]
    for line in text.split("\n"):
        starts.append(starts[-1] + len(line) + 1)
    ignores, _ = read_ignores(text)  # somebody has looked at these, and they stay
    for draft in sorted(drafts_of(document, platform, families), key=lambda one: GRAVITY[one.severity]):
        if draft.invocation is None or not draft.edits or draft.severity == "info":
            continue
        if any(draft.rule in one.rules and draft.place.line in one.lines for one in ignores):
            continue
        patches: list[Patch] = []
        for edit in draft.edits:
            found = _patch(edit, draft.invocation, platform, text, starts)
            if found is None:
                break
            patches += found
        else:
            yield draft, patches


def _patch(edit: Edit, invocation: Invocation, platform: Platform, text: str, starts: list[int]) -> list[Patch] | None:
    """None where a word has no exact place in the text."""
    if isinstance(edit, Swap):
        extent = _extent(edit.old, text, starts)
        return None if extent is None else [Patch(*extent, quoted(edit.new) if edit.new else "")]
    if isinstance(edit, Insert):
        extent = _extent(edit.before, text, starts)
        return (
            None if extent is None else [Patch(extent[0], extent[0], "".join(f"{quoted(one)} " for one in edit.words))]
        )
    uses = [one for one in arguments(invocation, platform.release) if one.flag and one.name == edit.flag]
    if isinstance(edit, Drop):
        spans = [_whole(one.word, one.values, text, starts) for one in uses]
        return None if None in spans else [Patch(*span, "") for span in spans if span is not None]
    wanted = edit.flag if edit.value is None else f"{edit.flag} {quoted(edit.value)}"
    if uses:
        span = _whole(uses[-1].word, uses[-1].values, text, starts)
        return None if span is None else [Patch(*span, wanted)]
    extent = _extent(anchor(invocation), text, starts)
    return None if extent is None else [Patch(extent[1], extent[1], f" {wanted}")]


def _whole(flag: Word, values: Sequence[Word], text: str, starts: list[int]) -> tuple[int, int] | None:
    extents = [_extent(word, text, starts) for word in (flag, *values)]
    known = [one for one in extents if one is not None]
    if len(known) < len(extents):
        return None
    return min(start for start, _ in known), max(end for _, end in known)


def _extent(word: Word, text: str, starts: list[int]) -> tuple[int, int] | None:
    """Where ``word`` stands with its quotes; None if the text has other characters there."""
    if not word.places or len(word.places) != len(word.text):
        return None
    (first, column), (last, end_column) = word.places[0], word.places[-1]
    start, end = starts[first - 1] + column - 1, starts[last - 1] + end_column
    if text[start:end] != word.text:
        return None
    if start and end < len(text) and text[start - 1] in QUOTES and text[end] == text[start - 1]:
        return start - 1, end + 1
    return start, end


def _applied(text: str, patches: Sequence[Patch]) -> str:
    for patch in sorted(set(_merged(patches)), reverse=True):
        text = text[: patch.start] + patch.text + text[patch.end :]
        if not patch.text:
            text = _without_gap(text, patch.start)
    return text


def _merged(patches: Sequence[Patch]) -> list[Patch]:
    """What is put where something goes takes its place."""
    gone = {patch.end: patch for patch in patches if not patch.text}
    merged: list[Patch] = []
    for patch in patches:
        before = gone.pop(patch.start, None) if patch.start == patch.end else None
        merged = [one for one in merged if one is not before]
        merged.append(Patch(before.start, before.end, patch.text.strip()) if before else patch)
    return merged


def _without_gap(text: str, position: int) -> str:
    """Without the blanks that a removed word leaves, and without its line if nothing else is in it."""
    begin = text.rfind("\n", 0, position) + 1
    end = text.find("\n", position)
    end = len(text) if end < 0 else end
    line = text[begin:end]
    if ONLY_CONTINUATION.fullmatch(line) and begin:
        if line.rstrip().endswith("\\"):
            return text[:begin] + text[end + 1 :]
        before = text[: begin - 1].rstrip(" \t")
        return before.removesuffix("\\").rstrip(" \t") + text[end:]
    start = position
    while start > begin and text[start - 1] in " \t":
        start -= 1
    after = text[position:]
    return (
        text[:start] + (after if not after.strip("\n") or after[0] in " \t\n" else f" {after}")
        if start > begin
        else text
    )
