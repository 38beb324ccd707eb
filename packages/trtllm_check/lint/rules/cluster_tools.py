"""kubectl and helm: options that they do not have, and charts that a repository does not have."""

import re
from collections.abc import Iterator
from difflib import get_close_matches
from typing import Any

from trtllm_check.lint.document import Document
from trtllm_check.lint.finding import Draft, Platform, drafts, rule_data
from trtllm_check.lint.shell import ShellCommand, Word
from trtllm_check.lint.shell.words import word_at

FAMILY = "cluster_tools"
CHART = re.compile(r"(?P<repository>[a-z][\w.-]*)/(?P<chart>[a-z][\w.-]*)")
ADDRESS = re.compile(r"https?://(?P<host>[\w./-]+?)/?")
INSTALLS = ("install", "upgrade", "template", "pull", "show")
VALUED = (
    "-f",
    "--values",
    "--set",
    "--set-string",
    "--set-file",
    "-n",
    "--namespace",
    "--version",
    "--repo",
    "--timeout",
)
BEFORE = ("sudo",)
FORWARD = re.compile(r"port-forward\b[^\n]*?[ \t](?P<here>\d{2,5}):(?P<there>\d{2,5})(?=\s|$)")
ASKED = re.compile(r"(?:localhost|127\.0\.0\.1):(?P<port>\d{2,5})(?!\d)")
ONE_WORD = re.compile(r"(?P<verb>[a-z]+)/(?P<rest>[a-z][\w.-]*)")
OF_RELEASES = ("uninstall", "delete", "status", "rollback", "history", "test")  # helm's commands with no chart
NEAR = 0.85  # of seven letters one too few or too many, or two that changed places
LIKE = 0.7
TOOLS = ("kubectl", "helm", "oc", "gcloud", "aws", "eksctl")


def check(document: Document, platform: Platform) -> Iterator[Draft]:
    """All drafts of the family."""
    added: dict[str, str] = {}
    for file, text in document.texts:
        yield from _forwarded(text, file, platform.release.name)
    read = {id(one.command) for one in document.invocations}
    for command in document.commands:
        words = _words(command)
        if len(words) < 2:
            continue
        if words[0].text in TOOLS:
            yield from _cut(command, words[0].text, read, platform.release.name)
        yield from _misspelt(words, command.file, platform.release.name)
        if words[0].text == "kubectl":
            yield from _kubectl(words, command.file, platform.release.name)
            yield from _one_word(words, command.file, platform.release.name)
        elif words[0].text == "helm":
            texts = [word.text for word in words]
            if texts[1:3] == ["repo", "add"] and len(texts) > 4 and (match := ADDRESS.fullmatch(texts[4])):
                added[texts[3]] = match["host"].rstrip("/")
            yield from _glued(words, command.file, platform.release.name)
            yield from _helm(words, added, command.file, platform.release.name)


def _forwarded(text: str, file: str, release: str) -> Iterator[Draft]:
    """``kubectl port-forward svc/x 80:30080`` beside requests to localhost:30080."""
    found = [*FORWARD.finditer(text)] if "port-forward" in text else []
    here = {match["here"] for match in found}
    asked = {match["port"] for match in ASKED.finditer(text)} if found else set()
    for match in found:
        if match["there"] in asked and match["there"] not in here and not asked & here:
            place = word_at(text, match.start("here"), f"{match['here']}:{match['there']}")
            known: dict[str, Any] = {"here": match["here"], "there": match["there"]}
            yield from drafts(release, "cluster-tool", place, form="forward", file=file, **known)


def _cut(command: ShellCommand, tool: str, read: set[int], release: str) -> Iterator[Draft]:
    """The first place at which a shell ends a command that goes on: no backslash, or a blank behind it."""
    ends = [cut for cut in command.cuts if not cut.text.startswith("#")]
    is_listing = [word.text for word in command.words[1:3]] == ["s3", "ls"]  # with what it printed below
    if ends and id(command) not in read and not is_listing:
        form = "blank" if ends[0].text and not ends[0].text.strip() else ""
        yield from drafts(release, "line-cut", ends[0], form=form, file=command.file, tool=tool)


def _words(command: ShellCommand) -> list[Word]:
    words = list(command.words)
    while words and words[0].text in BEFORE:
        words = words[1:]
    return words


def _misspelt(words: list[Word], file: str, release: str) -> Iterator[Draft]:
    """``kuebctl get`` and ``kubectl app``."""
    verbs = rule_data(FAMILY)["verbs"].split()
    first, verb = words[0].text, words[1].text
    if first != "kubectl" and verb in verbs and get_close_matches(first, ["kubectl"], 1, NEAR) and first.isalpha():
        known: dict[str, Any] = {"name": first, "instead": "kubectl"}
        yield from drafts(release, "no-such-command", words[0], form="misspelt", file=file, **known)
    elif first == "kubectl" and verb not in verbs and verb.isalpha() and verb not in rule_data(FAMILY)["plugins"]:
        close = get_close_matches(verb, verbs, 1, LIKE)
        if close:
            known = {"verb": verb, "right": f"kubectl {close[0]}"}
            yield from drafts(release, "cluster-tool", words[1], form="verb", file=file, **known)


def _one_word(words: list[Word], file: str, release: str) -> Iterator[Draft]:
    """``kubectl -n serving get/hpa server``: the verb and the kind in one word."""
    verbs = rule_data(FAMILY)["verbs"].split()
    for word in words[1:]:
        match = ONE_WORD.fullmatch(word.text)
        if word.text in verbs or word.text in rule_data(FAMILY)["plugins"]:
            return
        if match is not None and match["verb"] in verbs:
            known: dict[str, Any] = {"verb": word.text, "right": f"kubectl {match['verb']} {match['rest']}"}
            yield from drafts(release, "cluster-tool", word, form="one word", file=file, **known)
            return


def _glued(words: list[Word], file: str, release: str) -> Iterator[Draft]:
    """``helm uninstall server-n serving``."""
    plain = [word for word in words[2:] if not word.text.startswith("-")]
    has_space = any(word.text.partition("=")[0] in ("-n", "--namespace") for word in words)
    if words[1].text in OF_RELEASES and len(plain) == 2 and not has_space and plain[0].text.endswith("-n"):
        name = plain[0].text.removesuffix("-n")
        known: dict[str, Any] = {"name": plain[0].text, "right": f"{name} -n {plain[1].text}"}
        yield from drafts(release, "cluster-tool", plain[0], form="glued", file=file, **known)


def _kubectl(words: list[Word], file: str, release: str) -> Iterator[Draft]:
    verb = next((word.text for word in words[1:] if not word.text.startswith("-")), "")
    for word in words[1:]:
        if word.text == "--":
            return
        name = word.text.partition("=")[0]
        entry = rule_data(FAMILY)["kubectl"].get(name)
        if entry is not None and verb in entry["of"]:
            known: dict[str, Any] = {"name": name, "verb": verb, "right": entry["right"]}
            yield from drafts(release, "cluster-tool", word, file=file, **known)


def _helm(words: list[Word], added: dict[str, str], file: str, release: str) -> Iterator[Draft]:
    if words[1].text not in INSTALLS:
        return
    data = rule_data(FAMILY)
    plain: list[Word] = []
    skip = False
    for word in words[2:]:
        if not skip and not word.text.startswith("-"):
            plain.append(word)
        skip = not skip and word.text in VALUED
    if any(word.text.partition("=")[0] == "--repo" for word in words):
        return
    for word in plain:
        match = CHART.fullmatch(word.text)
        if match is None:
            continue
        address = added.get(match["repository"]) or data["usual"].get(match["repository"], "")
        charts = data["charts"].get(address)
        if charts and match["chart"] not in charts:
            known: dict[str, Any] = {"chart": word.text, "address": address, "charts": ", ".join(charts)}
            known["right"] = f"{match['repository']}/{charts[0]}"
            yield from drafts(release, "cluster-tool", word, form="chart", file=file, **known)
