"""From what the rules hand in to findings: all edits of one command go into one corrected command.

A corrected command is read and checked again, until the rules know nothing more to mend in it.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

from trtllm_check.lint.commands.invocations import Invocation
from trtllm_check.lint.documents.document import Document, Setting, read_document
from trtllm_check.lint.report.drafts import Draft, Edit
from trtllm_check.lint.report.editing import rewritten
from trtllm_check.lint.report.finding import Finding, Fix
from trtllm_check.lint.shell.words import ShellCommand, Word

Family = Callable[[Document, Setting], Iterable[Draft]]

MOST_ROUNDS = 10
GRAVITY = {"error": 0, "warning": 1, "info": 2}
QUOTES = "'\""


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


def findings(document: Document, setting: Setting, families: Sequence[Family]) -> list[Finding]:
    """What ``families`` find in ``document``, by file and place."""
    drafts = _drafts(document, setting, families)
    changes = _Changes.of(drafts)
    fixes: dict[int, str] = {}
    for outer, members in _groups(document, changes):
        text = _settled(_corrected(document, setting, changes, outer, members), setting, families)
        fixes |= {id(command): text for command in members}
    found = [_finding(draft, fixes) for draft in drafts]
    return sorted(found, key=lambda one: (one.file, one.line, one.column, one.rule, one.message))


def _drafts(document: Document, setting: Setting, families: Sequence[Family]) -> list[Draft]:
    """Without what two families say alike."""
    drafts: dict[tuple[str, int, int, str], Draft] = {}
    for family in families:
        for draft in family(document, setting):
            drafts.setdefault(
                (draft.rule, draft.place.line, draft.place.column, f"{draft.file}:{draft.message}"), draft
            )
    return list(drafts.values())


def _finding(draft: Draft, fixes: dict[int, str]) -> Finding:
    file, fix = draft.file, Fix("action", draft.action)
    if draft.invocation is not None:
        file = file or draft.invocation.command.file
        if draft.edits:
            fix = Fix("command", fixes[id(draft.invocation.command)])
    line, column = draft.place.line, draft.place.column
    return Finding(draft.rule, draft.severity, line, column, draft.message, draft.why, fix, draft.source, file)


def _settled(text: str, setting: Setting, families: Sequence[Family]) -> str:
    """``text``, one command, after all further edits that the rules have for it."""
    for _ in range(MOST_ROUNDS):
        document = read_document(text, "shell")
        changes = _Changes.of(_drafts(document, setting, families))
        groups = _groups(document, changes)
        changed = _corrected(document, setting, changes, *groups[0]) if groups else text
        if changed == text:
            break
        text = changed
    return text


def _groups(document: Document, changes: _Changes) -> list[tuple[ShellCommand, list[ShellCommand]]]:
    """Commands that change, by the command of the text that they are a part of (``bash -c``), or by themselves."""
    groups: dict[int, tuple[ShellCommand, list[ShellCommand]]] = {}
    for command in changes.commands.values():
        outer = _outer(document, command)
        groups.setdefault(id(outer), (outer, []))[1].append(command)
    return list(groups.values())


def _corrected(
    document: Document, setting: Setting, changes: _Changes, outer: ShellCommand, members: list[ShellCommand]
) -> str:
    """The text of ``outer`` after the edits of its ``members``, itself among them or not."""
    inner: dict[int, str] = {}
    for word in outer.words:
        parts = []
        for command in members:
            start = _position(word, command)
            if command is not outer and start is not None:
                text = rewritten(command, _tool_start(document, command), changes.edits[id(command)], setting.release)
                parts.append((*_extent(word, command, start), text))
        for start, end, text in sorted(parts, reverse=True):
            inner[id(word)] = inner.get(id(word), word.text)[:start] + text + inner.get(id(word), word.text)[end:]
    return rewritten(outer, _tool_start(document, outer), changes.edits.get(id(outer), []), setting.release, inner)


def _tool_start(document: Document, command: ShellCommand) -> Word | None:
    """The innermost tool's word: each flag behind it gets a line of its own."""
    paths = [invocation.path for invocation in document.invocations if invocation.command is command]
    return paths[-1] if paths else None


def _outer(document: Document, command: ShellCommand) -> ShellCommand:
    if any(command is one for one in document.commands):
        return command
    for outer in document.commands:
        if outer.file == command.file and any(_position(word, command) is not None for word in outer.words):
            return outer
    return command


def _position(word: Word, command: ShellCommand) -> int | None:
    """Where in ``word`` the words of ``command`` begin."""
    places = command.words[0].places[:1] if command.words else ()
    return word.places.index(places[0]) if places and places[0] in word.places else None


def _extent(word: Word, command: ShellCommand, start: int) -> tuple[int, int]:
    """Start and end of ``command`` in ``word``, its quotes and assignments included."""
    ends = [
        word.places.index(last.places[-1]) + 1
        for last in command.words
        if last.places and last.places[-1] in word.places
    ]
    starts = [
        word.places.index(one.places[0]) for one in command.assignments if one.places and one.places[0] in word.places
    ]
    start, end = min([start, *starts]), max([start, *ends])
    while start and word.text[start - 1] in QUOTES:
        start -= 1
    while end < len(word.text) and word.text[end] in QUOTES:
        end += 1
    return start, end
