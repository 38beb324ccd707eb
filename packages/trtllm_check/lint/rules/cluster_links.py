"""Ports that commands of kubectl forward, and those that the services of one text have."""

import re
from collections.abc import Iterator
from typing import Any

from trtllm_check.lint.document import Document
from trtllm_check.lint.finding import Draft, Platform, drafts
from trtllm_check.lint.rules.box import boxes
from trtllm_check.lint.shell.words import Word

PODS = re.compile(r"(?:deploy(?:ments?)?|deployment\.apps|sts|statefulsets?)/(?P<name>[a-z][a-z0-9-]*)")
SERVICE = re.compile(r"(?:svc|services?)/(?P<name>[a-z][a-z0-9-]*)")
PORTS = re.compile(r"(?:(?P<here>\d{0,5}):)?(?P<there>\d{2,5})")


def check(document: Document, platform: Platform) -> Iterator[Draft]:
    """All drafts of the family."""
    release = platform.release.name
    for command in document.commands:
        texts = [word.text for word in command.words]
        if texts[:1] == ["sudo"]:
            texts = texts[1:]
        if texts[:1] not in (["kubectl"], ["oc"]):
            continue
        if "port-forward" in texts:
            yield from _forwarded(document, list(command.words), command.file, release)
            yield from _to_pods(document, list(command.words), command.file, release)


def _to_pods(document: Document, words: list[Word], file: str, release: str) -> Iterator[Draft]:
    """``kubectl port-forward deployment/server 8080:80`` of a container that listens on 8000."""
    named = next((match["name"] for word in words if (match := PODS.fullmatch(word.text))), "")
    owned = (
        [box for box in boxes(document) if box.workload is not None and box.workload.owner == named] if named else []
    )
    if len(owned) != 1 or owned[0].workload is None or not owned[0].workload.alone:
        return
    listens = owned[0].listens()
    declared = {port for _, port in owned[0].workload.named_ports}
    for match in filter(None, (PORTS.fullmatch(word.text) for word in words)):
        port = int(match["there"])
        if listens and port not in listens and port not in declared:
            word = next(word for word in words if word.text == match[0])
            known: dict[str, Any] = {"port": port, "listens": listens[0]}
            known["right"] = f"{match['here'] or port}:{listens[0]}"
            yield from drafts(release, "cluster-link", word, form="forwarded", file=file, **known)
            return


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
