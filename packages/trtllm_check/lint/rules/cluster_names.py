"""Names that objects of one text share: secrets, maps, claims, accounts, services behind a gateway, what is scaled.

A name that nothing declares is told where the text declares exactly one object of the kind that nothing refers to:
then both are meant to be one.
"""

import re
from collections.abc import Iterator, Sequence
from difflib import get_close_matches
from typing import Any

from trtllm_check.lint.carriers.cluster_objects import ClusterObject, ObjectReference
from trtllm_check.lint.document import Document
from trtllm_check.lint.finding import Draft, Platform, drafts
from trtllm_check.lint.lookups import once
from trtllm_check.lint.rules.names import is_open
from trtllm_check.lint.shell.words import ShellCommand

LINK = "cluster-link"
MASKED = re.compile(r"x{5,}|^(?:your|my)[-_]", re.IGNORECASE)
GIVEN = ("default", "kube-root-ca.crt")  # that every namespace has
MADE = {
    ("secret", "generic"): "Secret",
    ("secret", "docker-registry"): "Secret",
    ("secret", "tls"): "Secret",
    ("configmap",): "ConfigMap",
    ("cm",): "ConfigMap",
    ("serviceaccount",): "ServiceAccount",
    ("sa",): "ServiceAccount",
    ("deployment",): "Deployment",
}
MAKERS = (
    "SealedSecret",
    "ExternalSecret",
    "SecretProviderClass",
    "Certificate",
    "VaultStaticSecret",
    "OnePasswordItem",
)
SCALED = ("Deployment", "StatefulSet")
BOUND = ("Secret", "ConfigMap", "PersistentVolumeClaim", "ServiceAccount")  # a pod sees those of its namespace alone
NEAR = 0.6
COMMON = frozenset(
    {"vllm", "hpa", "autoscaler", "amd", "gpu", "server", "serving", "deployment", "svc", "service", "llm"}
)


def check(document: Document, platform: Platform) -> Iterator[Draft]:
    """All drafts of the family."""
    release = platform.release.name
    for file in dict.fromkeys(one.file for one in document.objects):
        here = [one for one in document.objects if one.file == file]
        every = [*here, *(one for one in made(document) if one.file == file)]
        text = dict(document.texts).get(file, "")
        for kind in (*BOUND, "Service", "ServingRuntime"):
            yield from _missing(kind, here, every, text, release)
        yield from _scaled(here, file, release)
        for one in here:
            for reference in one.refers:
                yield from _inside(one, reference, here, file, release)
            yield from _monitor(one, here, file, release)
        yield from _apart(document, here, file, release)


@once
def made(document: Document) -> Iterator[ClusterObject]:
    """The objects that commands of kubectl make."""
    for command in document.commands:
        found = _made(command)
        if found is not None:
            yield found


def _made(command: ShellCommand) -> ClusterObject | None:
    texts = [word.text for word in command.words]
    start = 1 if texts[:1] == ["sudo"] else 0
    if texts[start : start + 1] not in (["kubectl"], ["oc"]) or "create" not in texts:
        return None
    at = texts.index("create") + 1
    plain = [word for word in command.words[at:] if not word.text.startswith("-")]
    for words, kind in MADE.items():
        name = plain[len(words)] if len(plain) > len(words) else None
        if name is not None and tuple(one.text for one in plain[: len(words)]) == words:
            return ClusterObject(kind, name.text, name, file=command.file)
    return None


def is_told(name: str) -> bool:
    """False for a name that the reader, or a template, fills in."""
    return bool(name) and not is_open(name) and MASKED.search(name) is None


def _missing(
    kind: str, here: Sequence[ClusterObject], every: Sequence[ClusterObject], text: str, release: str
) -> Iterator[Draft]:
    """A name that nothing declares, beside the one object of its kind that nothing refers to."""
    declared = {one.name for one in every if one.kind == kind}
    if not declared or (kind == "Secret" and any(one.kind in MAKERS for one in every)):
        return
    wanted = [reference for one in here for reference in one.refers if reference.kind == kind]
    names = {reference.name.text for reference in wanted}
    orphans = sorted(name for name in declared - names if is_told(name) and not _is_used(name, every, text))
    absent = {name for name in names - declared if is_told(name) and name not in GIVEN}
    if len(orphans) != 1 or not absent or any(not is_told(name) for name in declared | names):
        return
    meant = get_close_matches(orphans[0], absent, 1, NEAR) if len(absent) > 1 else list(absent)
    for reference in wanted:
        if reference.name.text in meant:
            known: dict[str, Any] = {"kind": kind, "name": reference.name.text, "right": orphans[0]}
            known["field"] = reference.field
            form = "backend" if kind == "Service" else "absent"
            yield from drafts(release, LINK, reference.name, form=form, file=here[0].file, **known)
            return


def _is_used(name: str, every: Sequence[ClusterObject], text: str) -> bool:
    """True for a name that stands in a field that nobody reads here, and for a map that a label makes known."""
    field = rf"(?:secret|claim|config_?map|account)\w*[\"']?:[ \t]*[\"']?{re.escape(name)}(?![\w.-])"
    labelled = any(one.name == name and any("dashboard" in label for label, _ in one.labels) for one in every)
    return labelled or re.search(field, text, re.IGNORECASE) is not None


def _scaled(here: Sequence[ClusterObject], file: str, release: str) -> Iterator[Draft]:
    """An autoscaler of a workload that is not there, beside the only one."""
    workloads = [one for one in here if one.kind in SCALED and is_told(one.name)]
    for one in here:
        for reference in one.refers:
            name = reference.name.text
            if reference.field != "scaleTargetRef" or reference.kind not in SCALED or not is_told(name):
                continue
            known: dict[str, Any] = {"name": name, "kind": reference.kind}
            same = [each for each in workloads if each.name == name]
            if same and all(each.kind != reference.kind for each in same):
                known["right"] = same[0].kind
                yield from drafts(release, LINK, reference.name, form="target kind", file=file, **known)
            elif not same and len(workloads) == 1 and not _is_of_another(one.name, name, workloads[0].name):
                known["right"] = workloads[0].name
                yield from drafts(release, LINK, reference.name, form="target", file=file, **known)


def _is_of_another(scaler: str, target: str, declared: str) -> bool:
    """True where the scaler is called after its target, which stands elsewhere, and not after what is declared here."""
    first, here, there = (set(re.split(r"[-_.]", one)) - COMMON for one in (scaler, declared, target))
    return bool(first & there - here) and not first & here


def _inside(
    one: ClusterObject, reference: ObjectReference, here: Sequence[ClusterObject], file: str, release: str
) -> Iterator[Draft]:
    """A key, a port and a namespace of an object that the text declares."""
    found = [each for each in here if each.kind == reference.kind and each.name == reference.name.text]
    if len(found) != 1:
        return
    (target,) = found
    known: dict[str, Any] = {"kind": target.kind, "name": target.name}
    key, port = reference.key, reference.port
    has_keys = bool(target.keys) and all(map(is_told, target.keys))
    if key is not None and has_keys and key.text not in target.keys and is_told(key.text):
        known |= {"key": key.text, "keys": ", ".join(target.keys)}
        yield from drafts(release, LINK, key, form="key", file=file, **known)
    if port is not None and target.ports and is_told(port.text):
        told = {text for pair in target.ports for text in pair if text}
        if port.text not in told and all(map(is_told, told)):
            numbers = [number for _, number in target.ports]
            known |= {"port": port.text, "ports": ", ".join(numbers), "right": numbers[0]}
            yield from drafts(release, LINK, port, form="backend port", file=file, **known)
    apart = one.namespace and target.namespace and one.namespace != target.namespace
    if apart and target.kind in BOUND and is_told(one.namespace) and is_told(target.namespace):
        known |= {"own": one.namespace, "other": target.namespace, "own_kind": one.kind}
        yield from drafts(release, LINK, reference.name, form="namespace", file=file, **known)


def _apart(document: Document, here: Sequence[ClusterObject], file: str, release: str) -> Iterator[Draft]:
    """A service in another namespace than the only pods that it selects."""
    for service in document.services:
        own = [one for one in here if one.kind == "Service" and one.name == service.name]
        pods = [one for one in here if service.selector and set(service.selector) <= set(one.pods)]
        if len(own) != 1 or not pods or service.file != file or not is_told(own[0].namespace):
            continue
        spaces = {one.namespace for one in pods}
        if all(map(is_told, spaces)) and own[0].namespace not in spaces:
            known: dict[str, Any] = {"name": service.name, "own": own[0].namespace, "other": ", ".join(sorted(spaces))}
            yield from drafts(release, LINK, service.place, form="apart", file=file, **known)


def _monitor(one: ClusterObject, here: Sequence[ClusterObject], file: str, release: str) -> Iterator[Draft]:
    """A monitor that finds no service, or no port of it."""
    services = [each for each in here if each.kind == "Service"]
    if one.kind != "ServiceMonitor" or len(services) != 1 or one.selects_place is None:
        return
    (service,) = services
    labels = dict(service.labels)
    if any(not is_told(text) for pair in (*one.selects, *service.labels) for text in pair):
        return
    unlike = [name for name, value in one.selects if labels.get(name) != value]
    known: dict[str, Any] = {"service": service.name}
    if unlike:
        name = unlike[0]
        has = f"{name}: {labels[name]}" if name in labels else f"no label {name}"
        known |= {"wanted": f"{name}: {dict(one.selects)[name]}", "has": has}
        yield from drafts(release, LINK, one.selects_place, form="monitor", file=file, **known)
        return
    names = {name for name, _ in service.ports}
    for port in one.asked:
        if port.text not in names and is_told(port.text) and all(map(is_told, names - {""})):
            known |= {"port": port.text, "names": ", ".join(sorted(filter(None, names))) or "none"}
            yield from drafts(release, LINK, port, form="monitor port", file=file, **known)
