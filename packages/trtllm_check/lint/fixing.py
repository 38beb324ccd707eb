"""From what the rules hand in to findings: all edits of one command go into one corrected command.

A corrected command is read and checked again, until the rules know nothing more to fix in it.
"""

import re
import warnings
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, field
from typing import NamedTuple

from serving_base.errors import PlaybookError
from trtllm_check.lint.certainty import OF_ONE_RELEASE, weighed
from trtllm_check.lint.document import Document
from trtllm_check.lint.finding import Draft, Drop, Edit, Finding, Fix, Platform, Put, Swap
from trtllm_check.lint.held_arguments import is_held
from trtllm_check.lint.invocations import Invocation
from trtllm_check.lint.programs import FLAG
from trtllm_check.lint.reading import read_document
from trtllm_check.lint.rewriting import quoted, rewritten, written
from trtllm_check.lint.shell.words import ShellCommand, Word
from trtllm_check.lint.spelling import spelled
from trtllm_check.lint.supposing import watched
from trtllm_check.lint.tested import is_tested

Family = Callable[[Document, Platform], Iterable[Draft]]
MOST_ROUNDS = 10
MOST_CORRECTED = 200
FEWEST_FLAGS = 2
TOO_MANY = f"correct the first {MOST_CORRECTED} commands, then check again: no more are corrected at once"
NOTHING_LEFT = "write the command anew: of its arguments none is one of this tool in this release"
GRAVITY = {"error": 0, "warning": 1, "info": 2}
VARIABLE_NAME = re.compile(r"\{[^{}]*\}|\w+")
QUOTES = "'\""
LEAVE_OUT = ("unknown-flag",)  # rules whose correction may take an option out


@dataclass
class _Changes:
    """The edits of each command, those of the gravest findings first."""

    commands: dict[int, ShellCommand] = field(default_factory=dict)
    edits: dict[int, list[tuple[Invocation, Edit]]] = field(default_factory=lambda: defaultdict(list))

    @classmethod
    def of(cls, drafts: Iterable[Draft]) -> "_Changes":
        changes = cls()
        for draft in sorted(drafts, key=lambda draft: GRAVITY[draft.severity]):
            if draft.invocation is not None and draft.edits:
                command = draft.invocation.command
                changes.commands[id(command)] = command
                changes.edits[id(command)] += [(draft.invocation, edit) for edit in draft.edits]
        return changes

    def only(self, commands: Set[int]) -> "_Changes":
        """Those of ``commands``."""
        return _Changes(
            {key: one for key, one in self.commands.items() if key in commands},
            defaultdict(list, {key: edits for key, edits in self.edits.items() if key in commands}),
        )


class Said(NamedTuple):
    """A draft and the family that handed it in."""

    draft: Draft
    family: Family


Doubt = Callable[[Sequence[Said], Mapping[str, Set[Family]], Document, Platform], list[Draft]]


def findings(
    document: Document, platform: Platform, families: Sequence[Family], doubt: Doubt | None = None
) -> list[Finding]:
    """What ``families`` find in ``document``, by file and place; ``doubt`` has the last word on how grave each is."""
    askers: dict[str, set[Family]] = {}
    said = _said(document, platform, families, askers)
    drafts = [one.draft for one in said] if doubt is None else doubt(said, askers, document, platform)
    grave = [one for one in drafts if one.severity != "info"]
    fixes = _fixes(document, platform, families, _Changes.of(grave))
    hinted = {id(one.invocation.command) for one in drafts if one.severity == "info" and one.edits and one.invocation}
    with_hints = _fixes(document, platform, families, _Changes.of(drafts).only(hinted), hints=True) if hinted else {}
    lost = _lost(drafts)
    found = [_finding(draft, with_hints if draft.severity == "info" else fixes, lost) for draft in drafts]
    return sorted(found, key=lambda one: (one.file, one.line, one.column, one.rule, one.message))


def _fixes(
    document: Document, platform: Platform, families: Sequence[Family], changes: "_Changes", *, hints: bool = False
) -> dict[int, str]:
    """By command its correction, "" where nothing is left of it; what a hint says goes in with ``hints`` only."""
    fixes: dict[int, str] = {}
    texts = dict(document.texts)
    for outer, members in _groups(document, changes)[:MOST_CORRECTED]:
        text = _corrected(document, platform, changes, outer, members)
        text = _settled(text, platform, families, hints=hints)
        text = _respelled(text, spelled(outer.words, texts.get(outer.file, "")))
        left = text if _still_does_something(outer, text) else ""
        fixes |= {id(command): left for command in members}
    return fixes


def _respelled(text: str, spellings: Mapping[str, str]) -> str:
    """``text``, one command, with the variables that its words came from."""
    if not spellings:
        return text
    document = read_document(text, "shell")
    found = [one for one in document.commands if one.words]
    if not found:
        return text
    command = min(found, key=lambda one: (one.words[0].line, one.words[0].column))  # not $(pwd) within it
    words = [(word, spellings.get(word.text, word.text)) for word in command.words]
    return written(command, words, _tool_start(document, command))


def _lost(drafts: Iterable[Draft]) -> dict[int, str]:
    """By command, the unknown options with their values that its correction leaves out, and puts nothing in for."""
    found: dict[int, dict[str, None]] = defaultdict(dict)
    for draft in drafts:
        one = draft.invocation
        if one is None or draft.rule not in LEAVE_OUT or not all(isinstance(edit, Drop) for edit in draft.edits):
            continue
        names = {edit.flag for edit in draft.edits if isinstance(edit, Drop)}
        for given in one.given:
            if given.name in names and given.values:
                found[id(one.command)][" ".join([given.flag, *(word.text for word in given.values)])] = None
    return {key: ", ".join(names) for key, names in found.items()}


def _still_does_something(command: ShellCommand, text: str) -> bool:
    """False for a correction that is a bare tool, where the command had two arguments or more."""
    flags = sum(FLAG.fullmatch(word.text) is not None for word in command.words)
    return flags < FEWEST_FLAGS or " -" in text


def drafts_of(document: Document, platform: Platform, families: Sequence[Family]) -> list[Draft]:
    """Without what two families say alike."""
    return [one.draft for one in _said(document, platform, families)]


class FamilyFailed(UserWarning):
    """A family of rules failed; what the others find stands."""


def _asked(family: Family, document: Document, platform: Platform) -> list[Draft]:
    """The drafts of ``family``; if it fails, a :class:`FamilyFailed` tells it, and only its own findings are lost."""
    try:
        return list(family(document, platform))
    except PlaybookError:
        raise
    except Exception as error:  # any fault of a rule: one text that nobody thought of must not hide all findings
        name = family.__module__.rpartition(".")[2]
        warnings.warn(
            f"the rules of {name} failed on this text with {error!r}, so what they would say is missing; "
            "all other rules were asked. Please report it with the text",
            FamilyFailed,
            stacklevel=2,
        )
        return []


def _said(
    document: Document, platform: Platform, families: Sequence[Family], askers: dict[str, set[Family]] | None = None
) -> list[Said]:
    """The drafts; into ``askers``, by package, the families that found its release nowhere."""
    found: dict[tuple[str, int, int, str], Said] = {}
    with watched() as asked:
        for family in families:
            asked.clear()
            drafts = _asked(family, document, platform)
            for package in asked:
                if askers is not None:
                    askers.setdefault(package, set()).add(family)
            for draft in drafts:
                if platform.earlier and draft.rule in OF_ONE_RELEASE:
                    continue
                draft = weighed(draft, document, platform)
                draft = draft._replace(severity="info") if is_tested(draft, document) else draft
                key = (draft.rule, draft.place.line, draft.place.column, f"{draft.file}:{draft.message}")
                found.setdefault(key, Said(draft, family))
    return list(found.values())


def _in_words(edit: Edit) -> str:
    """An edit of options that stand without their command."""
    if isinstance(edit, Drop):
        return f"leave {edit.flag} out"
    if isinstance(edit, Put):
        return f"write {edit.flag}" if edit.value is None else f"write {edit.flag} {quoted(edit.value)}"
    if isinstance(edit, Swap):
        return f"write {edit.new} for {edit.old.text}" if edit.new else f"leave {edit.old.text} out"
    return f"write {' '.join(edit.words)} in front of {edit.before.text}"


def _finding(draft: Draft, fixes: Mapping[int, str], lost: Mapping[int, str]) -> Finding:
    file, fix = draft.file, Fix("action", draft.action)
    if draft.invocation is not None:
        file = file or draft.invocation.command.file
        if draft.edits and is_held(draft.invocation.command.words):
            fix = Fix("action", ", ".join(map(_in_words, draft.edits)))
        elif draft.edits:
            text = fixes.get(id(draft.invocation.command))
            without = lost.get(id(draft.invocation.command), "")
            fix = Fix("command", text, without) if text else Fix("action", TOO_MANY if text is None else NOTHING_LEFT)
    line, column = draft.place.line, draft.place.column
    return Finding(draft.rule, draft.severity, line, column, draft.message, draft.why, fix, draft.source, file)


def _settled(text: str, platform: Platform, families: Sequence[Family], *, hints: bool) -> str:
    """``text``, one command, after all further edits that the rules have for it."""
    for _ in range(MOST_ROUNDS):
        document = read_document(text, "shell")
        drafts = drafts_of(document, platform, families)
        changes = _Changes.of([one for one in drafts if hints or one.severity != "info"])
        groups = _groups(document, changes)
        changed = _corrected(document, platform, changes, *groups[0]) if groups else text
        if changed == text:
            break
        text = changed
    return text


def _groups(document: Document, changes: _Changes) -> list[tuple[ShellCommand, list[ShellCommand]]]:
    """Commands that change, by the command of the text that they are a part of (``bash -c``), or by themselves."""
    groups: dict[int, tuple[ShellCommand, list[ShellCommand]]] = {}
    own = {id(one) for one in document.commands}
    for command in changes.commands.values():
        outer = command if id(command) in own else _outer(document, command)
        groups.setdefault(id(outer), (outer, []))[1].append(command)
    return list(groups.values())


def _corrected(
    document: Document, platform: Platform, changes: _Changes, outer: ShellCommand, members: list[ShellCommand]
) -> str:
    """The text of ``outer`` after the edits of its ``members``, itself among them or not."""
    inner: dict[int, str] = {}
    for word in outer.words:
        parts = []
        for command in members:
            start = _position(word, command)
            if command is not outer and start is not None:
                text = rewritten(command, _tool_start(document, command), changes.edits[id(command)], platform.release)
                parts.append((*_extent(word, command, start), text))
        for start, end, text in sorted(parts, reverse=True):
            inner[id(word)] = inner.get(id(word), word.text)[:start] + text + inner.get(id(word), word.text)[end:]
    return rewritten(outer, _tool_start(document, outer), changes.edits.get(id(outer), []), platform.release, inner)


def _tool_start(document: Document, command: ShellCommand) -> Word | None:
    """The innermost tool's word: each flag behind it gets a line of its own."""
    return document.lookups.tool_starts.get(id(command))


def _outer(document: Document, command: ShellCommand) -> ShellCommand:
    for outer in document.commands:
        if outer.file == command.file and any(_position(word, command) is not None for word in outer.words):
            return outer
    return command


def _position(word: Word, command: ShellCommand) -> int | None:
    """Where in ``word``, which holds all of ``command``, its words begin."""
    if not command.words or not command.words[0].places or not command.words[-1].places:
        return None
    first, last = command.words[0].places[0], command.words[-1].places[-1]
    # A word of another reading of the same command holds its first word, and not its last.
    return word.places.index(first) if first in word.places and last in word.places else None


def _extent(word: Word, command: ShellCommand, start: int) -> tuple[int, int]:
    """Start and end of ``command`` in ``word``, its quotes and assignments included."""
    last_of = {place: number for number, place in enumerate(word.places)}  # a value stands at one place
    ends = [last_of[last.places[-1]] + 1 for last in command.words if last.places and last.places[-1] in last_of]
    starts = [
        word.places.index(one.places[0]) for one in command.assignments if one.places and one.places[0] in word.places
    ]
    start, end = min([start, *starts]), max([start, *ends])
    if word.text[end - 1 : end] == "$" and (name := VARIABLE_NAME.match(word.text, end)):
        end = name.end()  # a value from outside stands at the first letter of its variable
    while start and word.text[start - 1] in QUOTES:
        start -= 1
    while end < len(word.text) and word.text[end] in QUOTES:
        end += 1
    return start, end
