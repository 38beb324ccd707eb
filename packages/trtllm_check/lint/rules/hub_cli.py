"""Commands of ``hf`` and ``huggingface-cli`` by release, and options that are written as no version takes them."""

from collections.abc import Iterator
from difflib import get_close_matches
from typing import Any

from trtllm_check.lint.document import Document
from trtllm_check.lint.finding import Draft, Platform, Swap, drafts, rule_data
from trtllm_check.lint.invocations import Invocation
from trtllm_check.lint.rules.names import is_open
from trtllm_check.lint.rules.python_names import is_upgraded, told_version
from trtllm_check.releases.clients import hub_tool
from trtllm_check.releases.python_names import python_package
from trtllm_check.rules import Severity

FAMILY = "hub_cli"
NEAR = 0.8
TOOLS = ("hf", "huggingface-cli")
COMMANDS = ("download", "upload")
LIBRARY = "huggingface_hub"


def check(document: Document, platform: Platform) -> Iterator[Draft]:
    """All drafts of the family."""
    said: set[tuple[str, str, str]] = set()
    for one in document.of(*TOOLS):
        command = one.arguments[0].text if one.arguments else ""
        if command in COMMANDS:
            yield from _options(one, command, platform.release.name)
        if command and not command.startswith("-") and not is_open(command):
            for draft in _command(one, command, document, platform):
                what = (one.command.file, draft.message, "" if draft.place is one.path else command)
                if what not in said:
                    said.add(what)
                    yield draft


def _command(one: Invocation, command: str, document: Document, platform: Platform) -> Iterator[Draft]:
    """A command that the installed release does not have, or none has; without any pin, what today's has."""
    library, table = python_package(LIBRARY), hub_tool(one.tool)
    told = told_version(document, LIBRARY, library, platform) if library is not None else None
    if table is None or told is None or told.many:
        return
    release, instead = platform.release.name, rule_data(FAMILY)["instead"][one.tool].get(command, "")
    about: dict[str, Any] = {"tool": one.tool, "command": command, "version": told.version, "instead": instead}
    if command not in table.calls[one.tool]:
        if instead:
            yield from drafts(release, "hub-command", one.arguments[0], form="never", invocation=one, **about)
        return
    is_known = bool(table.near_releases(told.version))
    verdict = table.judge_command(one.tool, command, told.version)
    if verdict is None or (verdict.kind == "later" and not is_known):
        return
    whole = all(table.judge_command(one.tool, each, told.version) for each in table.calls[one.tool])
    about |= {"since": verdict.since, "last": verdict.last}
    about["instead"] = instead or f"what {told.version or 'the newest'} has"
    place, form = (one.path, f"tool {verdict.kind}") if whole else (one.arguments[0], verdict.kind)
    severity: Severity = "error" if is_known else "warning" if is_upgraded(LIBRARY, document) else "info"
    for draft in drafts(release, "hub-command", place, form=form, invocation=one, **about):
        yield draft._replace(severity=severity, source=table.source)


def _options(one: Invocation, command: str, release: str) -> Iterator[Draft]:
    known = rule_data(FAMILY)[command].split()
    for word in one.arguments:
        name, sign, value = word.text.partition("=")
        if not name.startswith("--") or name in known or is_open(name) or name == "--":
            continue
        if any(full.startswith(name) for full in known):
            continue  # argparse completes it
        plain = name.replace("_", "-")
        close = [plain] if plain in known else get_close_matches(name, known, 1, NEAR)
        if close:
            edits = (Swap(word, f"{close[0]}{sign}{value}"),)
            about = {"tool": one.tool, "command": command, "name": name, "instead": close[0]}
            yield from drafts(release, "hub-option", word, edits=edits, invocation=one, **about)
