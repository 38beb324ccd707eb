"""Objects of Kubernetes by kind and name, and what each of them refers to in others: names, keys and ports."""

from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

from trtllm_check.lint.carriers.workloads import fields_of, items_of
from trtllm_check.lint.shell.words import Word

Place = Callable[[Any], Word]
Pairs = tuple[tuple[str, str], ...]
DEEPEST = 24
OPTIONAL = "optional"
# Key -> the kind that is meant, the key of its name, and the key of a key in it.
NAMED = {
    "secretKeyRef": ("Secret", "name", "key"),
    "secretRef": ("Secret", "name", ""),
    "configMapKeyRef": ("ConfigMap", "name", "key"),
    "configMapRef": ("ConfigMap", "name", ""),
    "persistentVolumeClaim": ("PersistentVolumeClaim", "claimName", ""),
    "secret": ("Secret", "secretName", ""),
    "configMap": ("ConfigMap", "name", ""),
}
MONITORS = ("ServiceMonitor", "PodMonitor")


class ObjectReference(NamedTuple):
    """What one object wants of another. ``key``: of a secret or a map; ``port``: of a service."""

    kind: str
    name: Word
    key: Word | None = None
    port: Word | None = None
    field: str = ""


class ClusterObject(NamedTuple):
    """One object. ``keys``: of a secret or a map; ``ports``: name and number of a service's; ``pods``: their labels.

    ``selects``: the labels that a monitor looks for, at ``selects_place``; ``asked``: the ports that it scrapes.
    """

    kind: str
    name: str
    place: Word
    namespace: str = ""
    labels: Pairs = ()
    keys: tuple[str, ...] = ()
    ports: Pairs = ()
    pods: Pairs = ()
    selects: Pairs = ()
    selects_place: Word | None = None
    asked: tuple[Word, ...] = ()
    refers: tuple[ObjectReference, ...] = ()
    file: str = ""


def objects(node: Any, place: Place) -> Iterator[ClusterObject]:
    """The object of one document of YAML; each of a list."""
    top = fields_of(node)
    kind, named = text_of(top.get("kind")), fields_of(top.get("metadata")).get("name")
    if kind == "List":
        for one in items_of(top.get("items")):
            yield from objects(one, place)
    if "apiVersion" not in top or not kind or named is None or named.id != "scalar":
        refers = tuple(_references(node, place, 0)) if node.id == "mapping" and kind != "List" else ()
        if refers:  # a piece of a manifest, or values of a chart
            yield ClusterObject("", "", place(node), refers=refers)
        return
    about, spec = fields_of(top["metadata"]), fields_of(top.get("spec"))
    template = fields_of(fields_of(spec.get("template")).get("metadata"))
    selector = fields_of(spec.get("selector")).get("matchLabels") if kind in MONITORS else None
    scraped = spec.get("endpoints") or spec.get("podMetricsEndpoints")
    yield ClusterObject(
        kind,
        text_of(named),
        place(named),
        text_of(about.get("namespace")),
        _pairs(about.get("labels")),
        tuple(name for part in ("data", "stringData", "binaryData") for name in fields_of(top.get(part))),
        tuple(_ports(spec)) if kind == "Service" else (),
        _pairs(about.get("labels") if kind == "Pod" else template.get("labels")),
        _pairs(selector),
        place(selector) if selector is not None else None,
        tuple(place(port) for one in items_of(scraped) if (port := fields_of(one).get("port")) is not None),
        tuple(_references(node, place, 0)),
    )


def text_of(node: Any) -> str:
    """What a scalar says; of another node nothing."""
    return str(node.value) if node is not None and node.id == "scalar" else ""


def _pairs(node: Any) -> Pairs:
    return tuple((name, text_of(value)) for name, value in fields_of(node).items())


def _ports(spec: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    for one in map(fields_of, items_of(spec.get("ports"))):
        yield text_of(one.get("name")), text_of(one.get("port"))


def _references(node: Any, place: Place, depth: int) -> Iterator[ObjectReference]:
    """Everything below ``node`` that names another object."""
    if node is None or depth > DEEPEST or node.id == "scalar":
        return
    if node.id == "sequence":
        for one in node.value:
            yield from _references(one, place, depth + 1)
        return
    for name, value in fields_of(node).items():
        yield from _named(name, value, place)
        yield from _references(value, place, depth + 1)


def _named(name: str, value: Any, place: Place) -> Iterator[ObjectReference]:
    """What one field refers to."""
    inside = fields_of(value)
    if name in NAMED and text_of(inside.get(OPTIONAL)).lower() != "true":
        kind, of_name, of_key = NAMED[name]
        yield from _reference(kind, inside.get(of_name), name, place, key=inside.get(of_key))
    elif name == "imagePullSecrets":
        for one in items_of(value):
            yield from _reference("Secret", fields_of(one).get("name"), name, place)
    elif name == "runtime" and value.id == "scalar":
        yield from _reference("ServingRuntime", value, name, place)
    elif name == "serviceAccountName":
        yield from _reference("ServiceAccount", value, name, place)
    elif name == "scaleTargetRef":
        kind = text_of(inside.get("kind")) or "Deployment"
        yield from _reference(kind, inside.get("name"), name, place)
    elif name == "backend":
        service = fields_of(inside.get("service"))
        port = fields_of(service.get("port"))
        asked = port.get("number") or port.get("name") or inside.get("servicePort")
        yield from _reference("Service", service.get("name") or inside.get("serviceName"), name, place, port=asked)
    elif name == "backendRefs":
        for one in map(fields_of, items_of(value)):
            if text_of(one.get("kind")) in ("", "Service") and "namespace" not in one:
                yield from _reference("Service", one.get("name"), name, place, port=one.get("port"))
    elif name == "destination" and "host" in inside and "." not in text_of(inside["host"]):
        number = fields_of(inside.get("port")).get("number")
        yield from _reference("Service", inside["host"], name, place, port=number)


def _reference(
    kind: str, name: Any, field: str, place: Place, *, key: Any = None, port: Any = None
) -> Iterator[ObjectReference]:
    if name is not None and name.id == "scalar" and text_of(name):
        yield ObjectReference(kind, place(name), _word(key, place), _word(port, place), field)


def _word(node: Any, place: Place) -> Word | None:
    return place(node) if node is not None and node.id == "scalar" else None
