"""Words that a program takes from a list of its own, or in one form only: commands, names of a cluster, addresses."""

import re
from collections.abc import Iterator
from typing import Any

from trtllm_check.lint.document import Document
from trtllm_check.lint.finding import Draft, Platform, drafts, rule_data
from trtllm_check.lint.invocations import Invocation
from trtllm_check.lint.rules.names import is_open
from trtllm_check.lint.rules.near_names import is_slip
from trtllm_check.lint.shell.pasted import fences, is_shell
from trtllm_check.lint.shell.words import ShellCommand, Word, word_at

FAMILY, RULE = "known_words", "known-word"
LINK = re.compile(
    r"^[ \t]*(?:\$ )?(?:sudo )?(?:git clone|curl|wget|pip3? install|docker pull|helm repo add)\b[^\n#`]*?"
    r"(?P<link>\[(?P<address>https?://[^\]\s]+)\]\(https?://[^)\s]+\))",
    re.MULTILINE,
)
RAW = re.compile(r"https://raw\.githubusercontent\.com/(?P<path>[\w.-]+/(?:main|master)/[\w./-]+)")
ON_PODS = frozenset({"exec", "logs", "attach", "port-forward"})
ON_KINDS = frozenset({"get", "delete", "describe"})
PODS = frozenset({"pod", "pods", "po", "deployment", "deploy", "service", "svc"})
NO_NAME = re.compile(r"(?=.*_)[a-z0-9][a-z0-9_.-]*")
KUBECTL_VALUED = frozenset({"-n", "--namespace", "-c", "--container", "-f", "--filename", "-l", "--selector", "-o"})
ON_CONTAINERS = frozenset({"exec", "stop", "start", "restart", "kill", "logs", "attach"})


def check(document: Document, platform: Platform) -> Iterator[Draft]:
    """All drafts of the family."""
    release = platform.release.name
    for command in document.commands:
        words = command.words[1:] if command.words and command.words[0].text == "sudo" else command.words
        if len(words) > 1:
            yield from _verb(words, command, release)
        if words and words[0].text == "kubectl":
            yield from _object(words, command, release)
    yield from _containers(document, release)
    for file, text in document.texts:
        for block in fences(text):
            if is_shell(block.language, text[block.start : block.end]):
                for match in LINK.finditer(text, block.start, block.end):
                    place = word_at(text, match.start("link"), match["link"])
                    yield from drafts(release, RULE, place, form="link", file=file, right=match["address"])
        for match in RAW.finditer(text):
            known: dict[str, Any] = {"address": match[0], "path": match["path"]}
            yield from drafts(release, RULE, word_at(text, match.start(), match[0]), form="raw", file=file, **known)


def _verb(words: tuple[Word, ...], command: ShellCommand, release: str) -> Iterator[Draft]:
    """``pip isntall``: a letter missing, too many, or at its neighbour's place in the name of a command."""
    known = rule_data(FAMILY)["commands"].get(words[0].text, "").split()
    verb = words[1].text
    if not known or verb in known or not verb.isalpha() or len(verb) < 4 or len(words) < 3:
        return
    right = next((one for one in known if is_slip(verb, one)), "")
    if right:
        about: dict[str, Any] = {"tool": words[0].text, "verb": verb, "right": right}
        yield from drafts(release, RULE, words[1], form="verb", file=command.file, **about)


def _object(words: tuple[Word, ...], command: ShellCommand, release: str) -> Iterator[Draft]:
    """``kubectl exec -it build_engines -- bash``: a name that no object of Kubernetes can have."""
    plain: list[Word] = []
    skip = False
    for word in words[1:]:
        if word.text == "--":
            break
        if not skip and not word.text.startswith("-"):
            plain.append(word)
        skip = not skip and word.text in KUBECTL_VALUED
    texts = [word.text for word in plain]
    at = (
        1 if texts[:1] and texts[0] in ON_PODS else 2 if texts[1:2] and texts[0] in ON_KINDS and texts[1] in PODS else 0
    )
    if not at or len(plain) <= at:
        return
    kind, slash, name = plain[at].text.rpartition("/")
    if (slash and kind not in PODS) or ":" in name or not NO_NAME.fullmatch(name):
        return
    about: dict[str, Any] = {"name": name, "right": name.replace("_", "-")}
    yield from drafts(release, RULE, plain[at], form="object", file=command.file, **about)


def _containers(document: Document, release: str) -> Iterator[Draft]:
    """``docker exec cpu-tests`` where the text has called its container cpu-test."""
    named = {word.text for one in document.of("docker") for word in one.values("--name") if not is_open(word.text)}
    if not named or any(re.search(r"docker[ -]compose|container_name", text) for _, text in document.texts):
        return
    for one in document.of("docker"):
        place = _container(one)
        if place is None or place.text in named or is_open(place.text):
            continue
        right = next((name for name in sorted(named) if is_slip(place.text, name) or _same(place.text, name)), "")
        if right:
            about: dict[str, Any] = {"name": place.text, "right": right}
            yield from drafts(release, RULE, place, form="container", file=one.command.file, **about)


def _container(docker: Invocation) -> Word | None:
    words = docker.positional
    return words[1] if len(words) > 1 and words[0].text in ON_CONTAINERS else None


def _same(name: str, other: str) -> bool:
    """True for two names that differ in their marks only: ``vllm_server`` and ``vllm-server``."""
    return re.sub(r"[_.-]", "", name) == re.sub(r"[_.-]", "", other)
