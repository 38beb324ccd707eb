"""Names and ports that commands and manifests of one text share: services, secrets, claims, autoscalers."""

import re
from collections.abc import Iterator
from difflib import get_close_matches
from typing import Any

from trtllm_check.lint.document import Document
from trtllm_check.lint.finding import Draft, Platform, drafts
from trtllm_check.lint.shell.words import Word, word_at

SERVICE = re.compile(r"(?:svc|services?)/(?P<name>[a-z][a-z0-9-]*)")
PORTS = re.compile(r"(?:(?P<here>\d{0,5}):)?(?P<there>\d{2,5})")
REFERENCE = re.compile(
    r"secretKeyRef:[ \t]*(?:\{(?P<flow>[^{}]*)\}|\n(?P<block>(?:[ \t]+(?:name|key|optional):[^\n]*(?:\n|$)){1,3}))"
)
NAME = re.compile(r"(?<![\w-])name:[ \t]*[\"']?(?P<value>[\w.-]+)")
DECLARED = re.compile(r"^kind:[ \t]*(?:Sealed|External)?Secret\b", re.MULTILINE)
OPEN = re.compile(r"[<>{}$]|^(?:your|my)[-_]", re.IGNORECASE)


CLAIM = re.compile(r"\bclaimName:[ \t]*[\"']?(?P<name>[a-z0-9][a-z0-9.-]*)[\"']?(?=[\s,}]|$)", re.MULTILINE)
TARGET = re.compile(
    r"\bscaleTargetRef:[ \t]*\n(?:[ ]+(?:apiVersion|kind):[^\n]*\n)*[ ]+name:[ \t]*[\"']?(?P<name>[a-z][a-z0-9.-]*)"
)
OBJECT = re.compile(
    r"^kind:[ \t]*(?P<kind>PersistentVolumeClaim|Deployment|StatefulSet)[ \t]*\n"
    r"(?:metadata:[ \t]*(?:\n(?:[ ][^\n]*\n)*?[ ]+|\{[^}\n]*?))name:[ \t]*[\"']?(?P<name>[a-z0-9][a-z0-9.-]*)",
    re.MULTILINE,
)
CLAIMS, SCALED = ("PersistentVolumeClaim",), ("Deployment", "StatefulSet")
NEAR = 0.8


def check(document: Document, platform: Platform) -> Iterator[Draft]:
    """All drafts of the family."""
    release = platform.release.name
    made: set[str] = set()
    for command in document.commands:
        texts = [word.text for word in command.words]
        if texts[:1] == ["sudo"]:
            texts = texts[1:]
        if texts[:1] not in (["kubectl"], ["oc"]):
            continue
        if "port-forward" in texts:
            yield from _forwarded(document, list(command.words), command.file, release)
        if texts[1:4] == ["create", "secret", "generic"]:
            made |= _made(texts)
    for file, text in document.texts:
        if "\n---" in text or "```" in text:
            yield from _claims(text, file, release)
            yield from _targets(text, file, release)
    for file, text in document.texts if len(made) == 1 else ():
        yield from _references(text, next(iter(made)), file, release)


def _declared(text: str, kinds: tuple[str, ...]) -> list[str]:
    return [match["name"] for match in OBJECT.finditer(text) if match["kind"] in kinds]


def _claims(text: str, file: str, release: str) -> Iterator[Draft]:
    """A claim that nothing declares, beside one of nearly its name that nothing uses."""
    declared = _declared(text, CLAIMS)
    used = list(CLAIM.finditer(text)) if declared else []
    unused = [name for name in declared if name not in {match["name"] for match in used}]
    for match in used:
        close = get_close_matches(match["name"], unused, 1, NEAR) if match["name"] not in declared else []
        if close:
            place = word_at(text, match.start("name"), match["name"])
            known: dict[str, Any] = {"name": match["name"], "right": close[0]}
            yield from drafts(release, "cluster-link", place, form="claim", file=file, **known)


def _targets(text: str, file: str, release: str) -> Iterator[Draft]:
    """An autoscaler of a workload that is not there, beside the only one."""
    declared = _declared(text, SCALED)
    targets = list(TARGET.finditer(text)) if len(declared) == 1 else []
    for match in targets:
        name, only = match["name"], declared[0]
        if name != only and (
            name.startswith(only) or only.startswith(name) or get_close_matches(name, declared, 1, NEAR)
        ):
            known: dict[str, Any] = {"name": name, "right": only}
            place = word_at(text, match.start("name"), name)
            yield from drafts(release, "cluster-link", place, form="target", file=file, **known)


def _forwarded(document: Document, words: list[Word], file: str, release: str) -> Iterator[Draft]:
    """``kubectl port-forward svc/server 8000:8000`` of a service that has port 80 alone."""
    named = next((match["name"] for word in words if (match := SERVICE.fullmatch(word.text))), "")
    services = [one for one in document.services if one.name == named]
    ports = services[0].ports if len(services) == 1 else ()
    if not ports or not all(port.isdecimal() for port in ports):
        return
    for word in words:
        match = PORTS.fullmatch(word.text)
        if match is not None and match["there"] not in ports:
            here = match["here"] or match["there"]
            known: dict[str, Any] = {"name": named, "port": match["there"], "right": f"{here}:{ports[0]}"}
            known["ports"] = ", ".join(ports)
            yield from drafts(release, "cluster-link", word, form="service port", file=file, **known)
            return


def _made(texts: list[str]) -> set[str]:
    """The name of the secret that a command makes."""
    name = texts[4] if len(texts) > 4 else ""
    return {name} - {""} if not name.startswith("-") and not OPEN.search(name) else set()


def _references(text: str, made: str, file: str, release: str) -> Iterator[Draft]:
    """Another secret than the one that the text makes, where it refers to one alone. Keys: secrets.py."""
    used: dict[str, int] = {}
    for match in REFERENCE.finditer(text):
        inside = match["flow"] or match["block"]
        name = NAME.search(inside)
        if name is None:
            return
        start = match.start("flow") if match["flow"] else match.start("block")
        used.setdefault(name["value"], start + name.start("value"))
    if len(used) == 1 and made not in used and not DECLARED.search(text):
        ((name_used, position),) = used.items()
        if not OPEN.search(name_used):
            known: dict[str, Any] = {"name": name_used, "made": made}
            yield from drafts(
                release, "cluster-link", word_at(text, position, name_used), form="secret", file=file, **known
            )
