"""What rules are given (:class:`Platform`) and hand in (:class:`Draft`), and what is said of it (:class:`Finding`)."""

import json
import sys
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from serving_base.yaml_files import read_yaml
from trtllm_check.lint.invocations import Invocation
from trtllm_check.lint.shell.words import Word
from trtllm_check.releases import Release
from trtllm_check.rules import Severity, rule

if TYPE_CHECKING:
    from serving_base.facts.gpus import Gpu
COLOURS = {"error": "bold red", "warning": "bold yellow", "info": "bold cyan"}
WORDS = {"error": "error", "warning": "warning", "info": "hint"}
KEYS = ("rule", "severity", "line", "column", "file", "message", "why", "fix", "source")
Piece = tuple[str, str]
"""Text and its style."""


class Platform(NamedTuple):
    """What the text is checked for. ``gpu``: h100, h200, l4, l40s, a100 or another name of facts/gpus.yml.

    ``told``: the text tells the release; ``guessed``: nobody asked for it, and the text tells none; ``earlier``: the
    text is for a release before the first with facts, which stands for it; ``written`` is that release's number.
    """

    release: Release
    gpu: str = ""
    gpus: int | None = None
    guessed: bool = False
    told: bool = False
    earlier: bool = False
    written: str = ""


def gpu_of(platform: Platform) -> "Gpu | None":
    """The GPU of ``platform``, by any of its names (``h100``); None where none is named or known."""
    if not platform.gpu:
        return None
    from serving_base.facts.gpus import find_gpu

    return find_gpu(platform.gpu)


class Fix(NamedTuple):
    """What to do. A ``command`` is whole, corrected and ready to paste; an ``action`` is a sentence.

    ``without``: what a corrected command leaves out and nothing stands in for.
    """

    kind: Literal["command", "action"]
    text: str
    without: str = ""

    @property
    def heading(self) -> str:
        """What to put in front of it."""
        return f"without {self.without}, for which this release has nothing" if self.without else ""


class Finding(NamedTuple):
    """One thing that will not go as written. ``message`` says what will happen, ``why`` the reason.

    ``error``: the tool refuses or its result is wrong; ``warning``: silently not what was meant, or not certain;
    ``info``: good to know. Lines and columns count from 1. ``file`` is empty for a single text.
    """

    rule: str
    severity: Severity
    line: int
    column: int
    message: str
    why: str
    fix: Fix
    source: str
    file: str = ""


class Drop(NamedTuple):
    """Takes a flag out, with its values."""

    flag: str


class Put(NamedTuple):
    """Sets a flag, or adds it; without ``value`` it is a bare switch."""

    flag: str
    value: str | None = None


class Swap(NamedTuple):
    """Replaces one word of the command: an image, a path, a URL, a misspelt flag."""

    old: Word
    new: str


class Insert(NamedTuple):
    """Puts words in front of another: a launcher."""

    before: Word
    words: tuple[str, ...]


Edit = Drop | Put | Swap | Insert


class Draft(NamedTuple):
    """One finding of a rule at ``place``. The fix is the command of ``invocation`` with ``edits``, or ``action``.

    All edits of one invocation go into one corrected command: see :mod:`trtllm_check.lint.fixing`.
    ``file``: where it stands if there is no invocation.
    """

    rule: str
    severity: Severity
    place: Word
    message: str
    why: str
    source: str
    edits: tuple[Edit, ...] = ()
    action: str = ""
    invocation: Invocation | None = None
    file: str = ""


DATA_DIR = Path(__file__).parent / "rules"


def drafts(
    release: str,
    id_: str,
    place: Word,
    *,
    form: str = "",
    edits: tuple[Edit, ...] = (),
    invocation: Invocation | None = None,
    file: str = "",
    **known: Any,
) -> Iterator[Draft]:
    """The rule's draft at ``place``, with ``known`` put into its texts; none where it does not apply to the release."""
    entry = rule(id_).entry(release, form)
    if entry is None:
        return
    known = {"release": release, **known}
    yield Draft(
        id_,
        entry.severity,
        place,
        message=entry.message.format(**known),
        why=entry.why.format(**known),
        source=entry.source,
        edits=edits,
        action=entry.fix.format(**known),
        invocation=invocation,
        file=file,
    )


@cache
def rule_data(family: str) -> dict[str, Any]:
    """What the functions of a family know as data."""
    content: dict[str, Any] = read_yaml(DATA_DIR / f"{family}.yml")
    return content


def as_json(findings: Sequence[Finding], release: str, told: str = "") -> str:
    """``told``: how the release is known, where it was not asked for."""
    evidence = {"release_told": told} if told else {}
    return json.dumps({"release": release, **evidence, "findings": [_data(finding) for finding in findings]}, indent=2)


def show(findings: Sequence[Finding], release: str) -> None:
    """Print the findings; in colours if somebody sees them. ``release``: as :func:`summary` takes it."""
    pieces = list(text(findings, release))
    if not sys.stdout.isatty():
        print("".join(piece for piece, _ in pieces), end="")
        return
    from rich.console import Console
    from rich.text import Text

    Console().print(Text.assemble(*pieces), end="", soft_wrap=True)


def text(findings: Sequence[Finding], release: str) -> Iterator[Piece]:
    """All of it. Findings on one command share its correction, which stands behind the last of them."""
    for number, finding in enumerate(findings):
        following = [other.fix for other in findings[number + 1 :] if other.file == finding.file]
        yield from _one(finding, repeated=finding.fix.kind == "command" and finding.fix in following)
    yield f"{summary(findings, release)}\n", "bold"


def summary(findings: Sequence[Finding], release: str) -> str:
    """How many of what, and for what: a release of TensorRT-LLM, or "vLLM" and a release of it."""
    counts = {word: sum(finding.severity == severity for finding in findings) for severity, word in WORDS.items()}
    parts = [f"{count} {word}{'s' if count > 1 else ''}" for word, count in counts.items() if count]
    named = release if release.startswith("vLLM ") else f"TensorRT-LLM {release}"
    against = f" for {named}" if release else ""
    return (", ".join(parts) or "nothing found") + against


def _one(finding: Finding, repeated: bool) -> Iterator[Piece]:
    place = f"{finding.file or '-'}:{finding.line}:{finding.column}"
    yield f"{_printable(place)}: ", "bold"
    yield finding.severity, COLOURS[finding.severity]
    yield f" {finding.rule}\n", "bold"
    yield f"  {_printable(finding.message)}\n", ""
    if finding.why:
        yield f"  why: {_printable(finding.why)}\n", ""
    if repeated:
        yield "  fix: with the other findings on this command, see below\n", "green"
    else:
        heading = f", {finding.fix.heading}" if finding.fix.heading else ""
        yield f"  fix{heading}:{_indented(finding.fix.text)}\n", "green"
    yield f"  source: {_printable(finding.source)}\n\n", "dim"


def _indented(fix: str) -> str:
    """On the same line, or, of several lines, on lines of its own."""
    lines = _printable(fix).split("\n")
    return f" {lines[0]}" if len(lines) == 1 else "\n    ".join(["", *lines])


def _printable(words: str) -> str:
    """Without control characters, which a terminal would obey."""
    return "".join(letter if letter.isprintable() or letter == "\n" else ascii(letter)[1:-1] for letter in words)


def _data(finding: Finding) -> dict[str, Any]:
    data = finding._asdict() | {"fix": finding.fix._asdict()}
    return {key: data[key] for key in KEYS}
