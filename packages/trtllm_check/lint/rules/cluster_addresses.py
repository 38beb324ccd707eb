"""Addresses of a text's services of Kubernetes, in its pods and its commands, and names of objects in commands."""

import re
from collections.abc import Iterator, Sequence
from difflib import get_close_matches
from itertools import pairwise
from typing import Any

from trtllm_check.lint.carriers.compose import CLIENTS
from trtllm_check.lint.carriers.workloads import ClusterService
from trtllm_check.lint.document import Document
from trtllm_check.lint.finding import Draft, Platform, drafts
from trtllm_check.lint.rules.box import Box, boxes
from trtllm_check.lint.rules.cluster_names import LINK, is_told
from trtllm_check.lint.shell.words import ShellCommand, Word

ADDRESS = re.compile(
    r"(?P<scheme>https?)://(?P<host>[a-z][a-z0-9-]*(?:\.[a-z0-9-]+)*)(?::(?P<port>\d{2,5}))?(?P<path>/[^\s\"']*)?"
)
IN_CLUSTER = re.compile(r"(?P<name>[a-z][a-z0-9-]*)(?:\.[a-z0-9-]+(?:\.svc(?:\.cluster\.local)?)?)?")
OPENAI_BASE = re.compile(r"(?:OPENAI|LLM|VLLM)_(?:API_)?BASE(?:_URLS?)?")
SPEAKS_OPENAI = ("vllm", "trtllm", "nim", "sglang")
TYPES = {
    **dict.fromkeys(("svc", "service", "services"), "Service"),
    **dict.fromkeys(("deploy", "deployment", "deployments", "deployment.apps"), "Deployment"),
    **dict.fromkeys(("sts", "statefulset", "statefulsets"), "StatefulSet"),
    **dict.fromkeys(("pvc", "persistentvolumeclaim"), "PersistentVolumeClaim"),
}
OF_OBJECTS = ("port-forward", "logs", "exec", "scale", "wait", "get", "describe", "rollout", "edit")
LABEL = re.compile(r"(?P<name>[\w./-]+)==?(?P<value>[\w.-]+)")
NAMED = re.compile(r"(?P<type>[a-z.]+)/(?P<name>[a-z][a-z0-9-]*)")
DEFAULT_PORTS = {"http": "80", "https": "443"}
NEAR = 0.6


def check(document: Document, platform: Platform) -> Iterator[Draft]:
    """All drafts of the family."""
    release = platform.release.name
    services = [one for one in document.services if is_told(one.name)]
    if not services and not document.objects:
        return
    pods = [box for box in boxes(document) if box.workload is not None and box.workload.kind == "kubernetes"]
    for box in pods:
        for name, word in box.settings.items():
            yield from _address(name, word, box, services, pods, release)
        for word in box.words:
            yield from _address("", word, box, services, pods, release)
    for command in document.commands:
        yield from _command(document, command, release)
        yield from _asked(command, services, release)


def _asked(command: ShellCommand, services: Sequence[ClusterService], release: str) -> Iterator[Draft]:
    """``kubectl run c --image=curlimages/curl -- curl http://server:8000``."""
    texts = [word.text for word in command.words]
    if "kubectl" in texts[:2] and "--" in texts and any(text in ("run", "exec") for text in texts):
        for word in command.words[texts.index("--") + 1 :]:
            yield from _service(word, command.file, services, release)


def _address(
    name: str, word: Word, box: Box, services: Sequence[ClusterService], pods: Sequence[Box], release: str
) -> Iterator[Draft]:
    """One variable or argument of a pod."""
    match = ADDRESS.search(word.text)
    if match is None or len(word.text) > 400:
        return
    if match["host"] in ("localhost", "127.0.0.1"):
        yield from _loopback(match, word, box, services, pods, release)
        return
    yield from _service(word, box.file, services, release)
    target = next((one for one in services if one.name == match["host"].partition(".")[0]), None)
    if target is None or not OPENAI_BASE.fullmatch(name) or (match["path"] or "/").rstrip("/"):
        return
    behind = [one for one in pods if _is_behind(target, one) and one.serves is not None]
    if behind and all(one.serves is not None and one.serves.name in SPEAKS_OPENAI for one in behind):
        known: dict[str, Any] = {"name": name, "right": f"{match[0].rstrip('/')}/v1"}
        for draft in drafts(release, "compose-together", word, form="no v1", file=box.file, **known):
            is_client = box.image and (name.startswith("OPENAI") or CLIENTS.search(box.image))
            yield draft if is_client else draft._replace(severity="info")  # somebody's own program, which may add it


def _is_behind(service: ClusterService, box: Box) -> bool:
    selector = set(service.selector)
    return box.workload is not None and bool(selector) and selector <= set(box.workload.labels)


def _loopback(
    match: re.Match[str],
    word: Word,
    box: Box,
    services: Sequence[ClusterService],
    pods: Sequence[Box],
    release: str,
) -> Iterator[Draft]:
    """``http://localhost:8000`` in a pod of one container, where another pod's service has this port."""
    port = match["port"] or ""
    if box.workload is None or not box.workload.alone or not port or box.host_network:
        return
    own = {str(number) for _, number in box.workload.named_ports} | {str(number) for number in box.listens()}
    others = [one for one in services if port in one.ports or any(target.text == port for target in one.targets)]
    others = [one for one in others if not _is_behind(one, box) and any(_is_behind(one, each) for each in pods)]
    if port not in own and len(others) == 1:
        (other,) = others
        right = re.sub(r"//[^/]*", f"//{other.name}:{(other.ports or (port,))[0]}", match[0])
        known: dict[str, Any] = {"address": match[0], "name": other.name, "right": right}
        yield from drafts(release, LINK, word, form="loopback", file=box.file, **known)


def _service(word: Word, file: str, services: Sequence[ClusterService], release: str) -> Iterator[Draft]:
    """A host that no service is called, and a port that it does not have."""
    for match in ADDRESS.finditer(word.text):
        host = IN_CLUSTER.fullmatch(match["host"])
        if host is None or match["host"].endswith((".com", ".io", ".ai", ".org", ".net", ".dev")):
            continue
        named = [one for one in services if one.name == host["name"]]
        port = match["port"] or DEFAULT_PORTS[match["scheme"]]
        known: dict[str, Any] = {"address": match[0], "name": host["name"]}
        if len(named) == 1 and named[0].ports and all(text.isdecimal() for text in named[0].ports):
            if port not in named[0].ports and match["scheme"] == "http" and not named[0].is_headless:
                known |= {"port": port, "ports": ", ".join(named[0].ports), "right": named[0].ports[0]}
                yield from drafts(release, LINK, word, form="address port", file=file, **known)
        elif not named and len(services) == 1 and _are_alike(host["name"], services[0].name):
            known["right"] = services[0].name
            yield from drafts(release, LINK, word, form="address", file=file, **known)


def _are_alike(one: str, other: str) -> bool:
    """True for names of which one begins with the other, or that differ by a letter or two."""
    return one.startswith(f"{other}-") or other.startswith(f"{one}-") or bool(get_close_matches(one, [other], 1, 0.8))


def _label(document: Document, words: Sequence[Word], file: str, release: str) -> Iterator[Draft]:
    """``kubectl wait pod -l app=server`` where the only pods have another label."""
    pods = [one for one in document.objects if one.pods and one.file == file]
    if len(pods) != 1 or not any(word.text.startswith("pod") or word.text == "logs" for word in words):
        return
    labels = dict(pods[0].pods)
    for before, word in pairwise(words):
        inside = word.text.startswith(("-l=", "--selector="))
        told = word.text.partition("=")[2] if inside else word.text if before.text in ("-l", "--selector") else ""
        match = LABEL.fullmatch(told)
        if match is None or labels.get(match["name"], match["value"]) == match["value"]:
            continue
        if (
            is_told(match["value"])
            and is_told(labels[match["name"]])
            and _are_alike(match["value"], labels[match["name"]])
        ):
            known: dict[str, Any] = {"told": told, "right": f"{match['name']}={labels[match['name']]}"}
            yield from drafts(release, LINK, word, form="label", file=file, **known)


def _command(document: Document, command: ShellCommand, release: str) -> Iterator[Draft]:
    """``kubectl logs deployment/server`` of a deployment that has another name."""
    words = list(command.words)
    texts = [word.text for word in words]
    if texts[:1] == ["sudo"]:
        words, texts = words[1:], texts[1:]
    if texts[:1] not in (["kubectl"], ["oc"]) or not any(verb in texts[1:5] for verb in OF_OBJECTS):
        return
    yield from _label(document, words, command.file, release)
    for at, word in enumerate(words[1:], 1):
        if word.text == "--":
            return
        match = NAMED.fullmatch(word.text)
        kind = TYPES.get(match["type"] if match else word.text, "")
        name = match["name"] if match else texts[at + 1] if kind and at + 1 < len(texts) else ""
        if not kind or not is_told(name) or name.startswith("-"):
            continue
        declared = [one.name for one in document.objects if one.kind == kind and one.file == command.file]
        if declared and name not in declared and all(map(is_told, declared)) and not match and "/" in name:
            continue
        if len(declared) == 1 and name not in declared and _are_alike(name, declared[0]):
            known: dict[str, Any] = {"kind": kind, "name": name, "right": declared[0]}
            place = word if match else words[at + 1]
            yield from drafts(release, LINK, place, form="command", file=command.file, **known)
        return
