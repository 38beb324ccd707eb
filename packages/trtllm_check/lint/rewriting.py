"""The words of a command after edits, written as one of a shell again."""

import re
import shlex
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise

from trtllm_check.lint.finding import Drop, Edit, Insert, Put, Swap
from trtllm_check.lint.invocations import Invocation, regrouped
from trtllm_check.lint.programs import FLAG, Given
from trtllm_check.lint.shell.words import ShellCommand, Word
from trtllm_check.releases import Release

LINE_WIDTH = 110
# What a shell reads as one word without quotes; a pattern or a home folder has to stay without.
PLAIN = re.compile(r"[\w@%+=:,./~*?^-]+", re.ASCII)
EXPANDED = re.compile(r"\$[{(]|`[^`]+`")
KEPT = re.compile(r"(\$\{[^}]*\}|\$\(.*\)|`[^`]+`)", re.DOTALL)


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
    return written(command, line.result(), tool_start)


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


def written(command: ShellCommand, words: Sequence[tuple[Word | None, str]], tool_start: Word | None) -> str:
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
