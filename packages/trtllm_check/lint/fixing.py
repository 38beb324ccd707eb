"""From what the rules hand in to findings: all edits of one command go into one corrected command.

A corrected command is read and checked again, until the rules know nothing more to fix in it.
"""

import re
import shlex
import warnings
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, field
from itertools import pairwise
from typing import NamedTuple

from serving_base.errors import PlaybookError
from trtllm_check.lint.certainty import OF_ONE_RELEASE, weighed
from trtllm_check.lint.document import Document
from trtllm_check.lint.finding import Draft, Drop, Edit, Finding, Fix, Insert, Platform, Put, Swap
from trtllm_check.lint.invocations import Invocation, regrouped
from trtllm_check.lint.programs import FLAG, Given
from trtllm_check.lint.reading import read_document
from trtllm_check.lint.shell.words import ShellCommand, Word
from trtllm_check.lint.supposing import watched
from trtllm_check.lint.tested import is_tested
from trtllm_check.releases import Release

LINE_WIDTH = 110
# What a shell reads as one word without quotes; a pattern or a home folder has to stay without.
PLAIN = re.compile(r"[\w@%+=:,./~*?^-]+", re.ASCII)
EXPANDED = re.compile(r"\$[{(]|`[^`]+`")
KEPT = re.compile(r"(\$\{[^}]*\}|\$\(.*\)|`[^`]+`)", re.DOTALL)
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


class _Line:
    """The words of a command while edits are made."""

    def __init__(self, command: ShellCommand, inner: Mapping[int, str]) -> None:
        self.words = command.words
        self.text = {id(word): inner.get(id(word), word.text) for word in command.words}
        self.gone: set[int] = set()
        self.before: dict[int, tuple[str, ...]] = {}
        self.behind: dict[int, list[str]] = {}
        self.settled: set[tuple[int, str]] = set()  # flags of an invocation that an edit has been made to

    def result(self) -> list[tuple[Word | None, str]]:
        """The words, each with the one it was; None for a new one."""
        found: list[tuple[Word | None, str]] = []
        for word in self.words:
            found += [(None, text) for text in self.before.get(id(word), ())]
            if id(word) not in self.gone:
                found.append((word, self.text[id(word)]))
            found += [(None, text) for text in self.behind.get(id(word), [])]
        return found

    def drop(self, given: Given) -> None:
        self.gone |= {id(given.word), *map(id, given.values)}

    def set(self, given: Given, value: str | None) -> None:
        self.gone |= set(map(id, given.values))
        self.text[id(given.word)] = given.name
        if value is not None:
            self.behind[id(given.word)] = [value]

    def add(self, invocation: Invocation, flag: str, value: str | None) -> None:
        self.behind.setdefault(id(anchor(invocation)), []).extend([flag] if value is None else [flag, value])

    def swap(self, old: Word, new: str) -> None:
        for word in self.words:
            start = word.places.index(old.places[0]) if old.places and old.places[0] in word.places else -1
            if word is old:
                start = 0
            text = self.text[id(word)]
            if start >= 0 and text[start : start + len(old.text)] == old.text:
                self.text[id(word)] = text[:start] + new + text[start + len(old.text) :]
                if text and not self.text[id(word)]:
                    self.gone.add(id(word))
                return


def rewritten(
    command: ShellCommand,
    tool_start: Word | None,
    edits: Iterable[tuple[Invocation, Edit]],
    release: Release,
    inner: Mapping[int, str] | None = None,
) -> str:
    """``command`` after ``edits``; of two edits of one flag the first counts. ``inner``: words that changed inside."""
    line = _Line(command, inner or {})
    edits = list(edits)
    swaps = dict.fromkeys(edit for _, edit in edits if isinstance(edit, Swap))  # equal ones count once
    for swap in sorted(swaps, key=lambda swap: (swap.old.line, swap.old.column), reverse=True):
        line.swap(swap.old, swap.new)
    uses: dict[int, dict[str, list[Given]]] = {}
    for invocation, edit in edits:
        if isinstance(edit, Insert):
            line.before.setdefault(id(edit.before), edit.words)
        elif id(invocation) not in uses:
            uses[id(invocation)] = _by_name(arguments(invocation, release))
    for kind in (Drop, Put):
        for invocation, edit in edits:
            if isinstance(edit, Drop | Put) and isinstance(edit, kind):
                _apply(line, invocation, edit, uses[id(invocation)].get(edit.flag, []))
    return _shell(command, line.result(), tool_start)


def arguments(invocation: Invocation, release: Release) -> tuple[Given, ...]:
    """The arguments as the release's tool takes them; as any release's does if it has none."""
    tool = release.tools.get(invocation.tool)
    return invocation.given if tool is None else regrouped(invocation, tool)


def _by_name(everything: Iterable[Given]) -> dict[str, list[Given]]:
    found: dict[str, list[Given]] = {}
    for given in everything:
        if given.flag:
            found.setdefault(given.name, []).append(given)
    return found


def _apply(line: _Line, invocation: Invocation, edit: Drop | Put, uses: Sequence[Given]) -> None:
    key = (id(invocation.path), edit.flag)
    if key in line.settled:
        return
    line.settled.add(key)
    if isinstance(edit, Drop):
        for given in uses:
            line.drop(given)
    elif uses:
        for given in uses[:-1]:
            line.drop(given)
        line.set(uses[-1], edit.value)
    else:
        line.add(invocation, edit.flag, edit.value)


def anchor(invocation: Invocation) -> Word:
    """The word behind which a new flag belongs."""
    words = [invocation.path, *invocation.arguments]
    if invocation.tool in ("mpirun", "python"):
        return invocation.path
    if invocation.tool == "docker" and len(invocation.positional) > 1:
        image = next(number for number, word in enumerate(words) if word is invocation.positional[1])
        return words[image - 1]
    return words[-1]


def quoted(text: str) -> str:
    """``text`` as one word of a shell; what was left to the shell to expand still is."""
    if EXPANDED.search(text):
        parts = KEPT.split(text)
        return '"' + "".join(part if number % 2 else _escaped(part) for number, part in enumerate(parts)) + '"'
    return text if PLAIN.fullmatch(text) else shlex.quote(text)


def _escaped(text: str) -> str:
    return re.sub(r'([\\"`$])', r"\\\1", text)


def _shell(command: ShellCommand, words: list[tuple[Word | None, str]], tool_start: Word | None) -> str:
    assignments = [
        f"{name}={quoted(value)}" for name, _, value in (word.text.partition("=") for word in command.assignments)
    ]
    start = next((number for number, (word, _) in enumerate(words) if word is tool_start and word is not None), 0)
    texts = [quoted(text) for _, text in words]
    flags = [number for number, (_, text) in enumerate(words) if number > start and FLAG.fullmatch(text)]
    lines = [""]
    for text in [*assignments, *texts[: flags[0] if flags else len(texts)]]:
        if lines[-1] and len(lines[-1]) + len(text) >= LINE_WIDTH:
            lines.append(text)
        else:
            lines[-1] = f"{lines[-1]} {text}".lstrip()
    lines += [" ".join(texts[begin:end]) for begin, end in pairwise([*flags, len(texts)])]
    text = " ".join(lines)
    return (text if len(text) <= LINE_WIDTH else " \\\n  ".join(lines)) + _input(command)


def _input(command: ShellCommand) -> str:
    """What goes into the command."""
    for redirect in command.redirects:
        if redirect.operator == "<<<":
            return f" <<< {quoted(redirect.target.text)}"
        if redirect.operator == "<<":
            return f" <<'EOF'\n{redirect.target.text.rstrip()}\nEOF"
    return ""


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
    changes = _Changes.of(drafts)
    fixes: dict[int, str] = {}
    for outer, members in _groups(document, changes)[:MOST_CORRECTED]:
        text = _settled(_corrected(document, platform, changes, outer, members), platform, families)
        left = text if _still_does_something(outer, text) else ""
        fixes |= {id(command): left for command in members}
    lost = _lost(drafts)
    found = [_finding(draft, fixes, lost) for draft in drafts]
    return sorted(found, key=lambda one: (one.file, one.line, one.column, one.rule, one.message))


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


def _finding(draft: Draft, fixes: Mapping[int, str], lost: Mapping[int, str]) -> Finding:
    file, fix = draft.file, Fix("action", draft.action)
    if draft.invocation is not None:
        file = file or draft.invocation.command.file
        if draft.edits:
            text = fixes.get(id(draft.invocation.command))
            without = lost.get(id(draft.invocation.command), "")
            fix = Fix("command", text, without) if text else Fix("action", TOO_MANY if text is None else NOTHING_LEFT)
    line, column = draft.place.line, draft.place.column
    return Finding(draft.rule, draft.severity, line, column, draft.message, draft.why, fix, draft.source, file)


def _settled(text: str, platform: Platform, families: Sequence[Family]) -> str:
    """``text``, one command, after all further edits that the rules have for it."""
    for _ in range(MOST_ROUNDS):
        document = read_document(text, "shell")
        changes = _Changes.of(drafts_of(document, platform, families))
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
    if word.text[end - 1 : end] == "$" and (name := VARIABLE_NAME.match(word.text, end)):
        end = name.end()  # a value from outside stands at the first letter of its variable
    while start and word.text[start - 1] in QUOTES:
        start -= 1
    while end < len(word.text) and word.text[end] in QUOTES:
        end += 1
    return start, end
