"""Findings for the places where people work: JSON, SARIF, GitHub's annotations, lines as a compiler writes them."""

import json
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any

from serving_base.errors import UsageError
from trtllm_check.lint.finding import Finding, as_json, show
from trtllm_check.rules import Severity, rule
from trtllm_check.rules.table import worded

SARIF_SCHEMA = "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json"
HELP = "docs/checks.md"
# What each format calls a severity.
LEVELS: dict[Severity, str] = {"error": "error", "warning": "warning", "info": "note"}
COMMANDS: dict[Severity, str] = {"error": "error", "warning": "warning", "info": "notice"}
NO_FILE = "-"  # standard input
DISTRIBUTION = "llama3-fp8-playbook"
INDENT = " " * 4  # of code in Markdown
ROOT = "%SRCROOT%"
"""What code scanning calls the repository's folder."""
# What it takes: docs.github.com, "SARIF support for code scanning" and "SARIF results exceed one or more limits".
MOST_RESULTS, MOST_LETTERS = 25_000, 1024


def as_sarif(findings: Sequence[Finding], release: str) -> str:
    """SARIF 2.1.0, one run: what code scanning and editors read. Findings of standard input are in the file ``-``."""
    findings = _most_grave(findings)
    ids = {id_: number for number, id_ in enumerate(dict.fromkeys(finding.rule for finding in findings))}
    rules = [_rule(id_, next(one for one in findings if one.rule == id_)) for id_ in ids]
    driver = {"name": "playbook check", **_version(), "rules": rules}
    run = {
        "tool": {"driver": driver},
        "columnKind": "unicodeCodePoints",
        "properties": {"release": release},
        "results": [_result(finding, ids[finding.rule]) for finding in findings],
    }
    return json.dumps({"$schema": SARIF_SCHEMA, "version": "2.1.0", "runs": [run]}, indent=2)


def as_github(findings: Sequence[Finding], release: str) -> str:
    """One workflow command a finding, which GitHub Actions shows beside the line."""
    return "\n".join(_command(finding, release) for finding in findings)


def as_gcc(findings: Sequence[Finding], release: str) -> str:
    """``file:line:column: error: message [rule]``, which editors and problem matchers know from gcc."""
    del release  # a compiler's line has no place for it
    return "\n".join(
        f"{one.file or NO_FILE}:{one.line}:{one.column}: {LEVELS[one.severity]}: {_line(one.message)} [{one.rule}]"
        for one in findings
    )


FORMATS: Mapping[str, Callable[[Sequence[Finding], str], str]] = MappingProxyType(
    {"sarif": as_sarif, "github": as_github, "gcc": as_gcc}
)


def report(
    findings: Sequence[Finding], release: str, output: str, *, told: str = "", instead: str = "", hints: bool = False
) -> None:
    """Print the findings in a format; without ``hints`` those of severity info are only counted, on stderr.

    ``told``: how the release is known, where it was not asked for; ``instead``: what a text for people names in its
    place, "vLLM" and a release of it.
    """
    if output not in ("text", "json", *FORMATS):
        known = ", ".join(("text", "json", *FORMATS))
        raise UsageError(f"no format {output!r}", fix=f"give --format one of: {known}")
    shown = [one for one in findings if hints or one.severity != "info"]
    if output == "text":
        show(shown, instead or (f"{release}, {told}" if told else release))
    elif output == "json":
        print(as_json(shown, release, told))
    elif text := FORMATS[output](shown, release):
        print(text)
    if hidden := len(findings) - len(shown):
        print(f"{hidden} hint{'s' if hidden > 1 else ''} not shown: --hints", file=sys.stderr)


def _version() -> dict[str, str]:
    """The version of the distribution that this is a part of; nothing where it is not installed as one."""
    from importlib.metadata import PackageNotFoundError, version

    try:
        return {"version": version(DISTRIBUTION)}
    except PackageNotFoundError:
        return {}


def _most_grave(findings: Sequence[Finding]) -> Sequence[Finding]:
    """All, or as many as code scanning takes, the gravest first."""
    if len(findings) <= MOST_RESULTS:
        return findings
    print(f"{len(findings) - MOST_RESULTS} findings left out: code scanning takes {MOST_RESULTS}", file=sys.stderr)
    return sorted(findings, key=lambda one: [*LEVELS].index(one.severity))[:MOST_RESULTS]


def _rule(id_: str, first: Finding) -> dict[str, Any]:
    """What SARIF is told of a rule; one that is a sign of a log is described by its ``first`` finding."""
    try:
        entry = rule(id_).says[0]
        message, why, level = worded(entry.message, "<{}>"), worded(entry.why, "<{}>"), LEVELS[entry.severity]
    except KeyError:
        message, why, level = first.message, first.why, LEVELS[first.severity]
    short = _line(message)[:MOST_LETTERS]
    full = ". ".join(one[:1].upper() + one[1:] for one in (short, _line(why)) if one)
    return {
        "id": id_,
        "shortDescription": {"text": short},
        "fullDescription": {"text": full.strip(". ")[: MOST_LETTERS - 1] + "."},
        "help": {"text": f"{HELP}#{id_}"},
        "defaultConfiguration": {"level": level},
    }


def _result(finding: Finding, index: int) -> dict[str, Any]:
    message, why, fix = f"{_line(finding.message)}.", _line(finding.why), finding.fix
    do = f"Do, {fix.heading}" if fix.heading else "Do"
    lines = [
        message,
        f"Why: {why}." if why else "",
        f"{do}: {fix.text}",
        f"Source: {finding.source}",
    ]
    marked = [
        _marked(message),
        f"**Why:** {_marked(why)}." if why else "",
        f"**{do}:** {_code(fix.text) if fix.kind == 'command' else _marked(fix.text)}",
        f"**Source:** {_marked(finding.source)}",
    ]
    place = {
        "artifactLocation": _artifact(finding.file),
        "region": {"startLine": finding.line, "startColumn": finding.column},
    }
    return {
        "ruleId": finding.rule,
        "ruleIndex": index,
        "level": LEVELS[finding.severity],
        "message": {"text": "\n".join(filter(None, lines)), "markdown": "\n\n".join(filter(None, marked))},
        "locations": [{"physicalLocation": place}],
    }


def _marked(text: str) -> str:
    """``text`` as Markdown that shows it letter by letter."""
    return re.sub(r"([\\`*_\[\]<>#|~])", r"\\\1", text).replace("\n", "  \n")


def _code(text: str) -> str:
    """``text`` as code of Markdown: within the line, where it is wrapped, or indented where it has lines of its own."""
    if "\n" in text:
        return "".join(f"\n{INDENT}{line}" for line in ("", *text.split("\n"))).replace(f"{INDENT}\n", "\n", 1)
    mark = "`" * (1 + max(map(len, re.findall("`+", text)), default=0))
    return f"{mark} {text} {mark}" if "`" in text else f"{mark}{text}{mark}"


def _artifact(file: str) -> dict[str, str]:
    """A path as SARIF takes it: relative to the folder that the command runs in, where it is below that."""
    from urllib.parse import quote

    path = Path(file or NO_FILE)
    if path.is_absolute() and path.is_relative_to(Path.cwd()):
        path = path.relative_to(Path.cwd())
    return {"uri": path.as_uri()} if path.is_absolute() else {"uri": quote(path.as_posix()), "uriBaseId": ROOT}


def _command(finding: Finding, release: str) -> str:
    against = f" ({release})" if release else ""
    place = {"file": finding.file or NO_FILE, "line": finding.line, "col": finding.column}
    place["title"] = f"{finding.rule}{against}"
    given = ",".join(f"{name}={_property(str(value))}" for name, value in place.items())
    fix = f"fix, {finding.fix.heading}" if finding.fix.heading else "fix"
    text = f"{finding.message}\nwhy: {finding.why}\n{fix}: {finding.fix.text}"
    return f"::{COMMANDS[finding.severity]} {given}::{_data(text)}"


def _data(text: str) -> str:
    """Text as a workflow command takes it: actions/toolkit packages/core/src/command.ts."""
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    return _data(text).replace(":", "%3A").replace(",", "%2C")


def _line(text: str) -> str:
    return " ".join(text.split()).rstrip(".") if text.strip() else text
