"""Findings as text, with colours on a terminal, and as JSON."""

import json
import sys
from collections.abc import Iterator, Sequence
from typing import Any

from trtllm_check.lint.report.finding import Finding

COLOURS = {"error": "bold red", "warning": "bold yellow", "info": "bold cyan"}
WORDS = {"error": "error", "warning": "warning", "info": "hint"}
KEYS = ("rule", "severity", "line", "column", "file", "message", "why", "fix", "source")
Piece = tuple[str, str]
"""Text and its style."""


def as_json(findings: Sequence[Finding], release: str) -> str:
    return json.dumps({"release": release, "findings": [_data(finding) for finding in findings]}, indent=2)


def show(findings: Sequence[Finding], release: str) -> None:
    """Print the findings; in colours if somebody sees them."""
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
    counts = {word: sum(finding.severity == severity for finding in findings) for severity, word in WORDS.items()}
    parts = [f"{count} {word}{'s' if count > 1 else ''}" for word, count in counts.items() if count]
    against = f" for TensorRT-LLM {release}" if release else ""
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
        yield f"  fix:{_indented(finding.fix.text)}\n", "green"
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
