"""What Kubernetes and docker compose refuse of a container's variables before anything starts.

Source: kubernetes/api core/v1 EnvVar, EnvVarSource and SecretKeySelector; the compose specification, environment.
"""

from collections.abc import Callable, Iterator
from difflib import get_close_matches
from typing import Any

from trtllm_check.lint.carriers.faults import FormFault
from trtllm_check.lint.carriers.workloads import fields_of, items_of
from trtllm_check.lint.shell.words import Word

Place = Callable[[Any], Word]
SOURCES = ("secretKeyRef", "configMapKeyRef", "fieldRef", "resourceFieldRef", "fileKeyRef")
KEYED = ("secretKeyRef", "configMapKeyRef")
KNOWN = ("name", "value", "valueFrom")
PLAIN = ("int", "float", "bool", "null")
DEEPEST = 40
REQUIRED = ("apiVersion", "kind", "metadata")
NEAR = 0.85
METRICS_PORT = "prometheus.io/port"
AMOUNTS = ("requests", "limits")
AMOUNT_NAMES = frozenset({"cpu", "memory", "nvidia.com/gpu", "ephemeral-storage"})
CONTAINERS = ("containers", "initContainers")
# Fields of a pod and of compose's services, which no program has as variables.
OF_PODS = frozenset(
    {
        *("enableServiceLinks", "hostIPC", "hostPID", "hostNetwork", "shareProcessNamespace", "runtimeClassName"),
        *("restartPolicy", "terminationGracePeriodSeconds", "dnsPolicy", "nodeSelector", "tolerations", "shmSize"),
        *("serviceAccountName", "imagePullSecrets", "imagePullPolicy", "priorityClassName", "schedulerName"),
    }
)
OF_SERVICES = frozenset(
    {"shm_size", "ipc", "ipc_mode", "network_mode", "privileged", "mem_limit", "ulimits", "gpus", "restart", "runtime"}
)
QUOTES = "\"'"
QUOTED = ("'", '"')
# Fields that are whole numbers of Kubernetes' own types.
NUMBERS = (
    *("containerPort", "hostPort", "replicas", "initialDelaySeconds", "periodSeconds", "timeoutSeconds"),
    *("failureThreshold", "successThreshold", "terminationGracePeriodSeconds", "nodePort"),
)


def faults(node: Any, place: Place, *, is_template: bool) -> Iterator[FormFault]:
    """The faults of one document; of a template's branches each looks as if it were there."""
    top = fields_of(node)
    if not is_template:
        yield from _beside_resources(node, place, 0)
        yield from _misspelt_top(node, place)
    if "apiVersion" in top and "kind" in top:
        if "spec" in (inside := fields_of(top.get("metadata"))):
            yield FormFault("manifest-refused", place(inside["spec"]), "spec", (("kind", str(top["kind"].value)),))
        found = _below(node, place, 0)
        yield from (one for one in found if not is_template or one.form != "both")
    services = fields_of(top["services"]) if "services" in top else {} if "apiVersion" in top else top
    for service in services.values():
        entries = fields_of(service)
        for one in items_of(entries.get("environment")) if "image" in entries or "services" in top else ():
            yield from _quoted(one, place)
        if "image" in entries:
            yield from _of_services(entries.get("environment"), place)


def _of_services(node: Any, place: Place) -> Iterator[FormFault]:
    """``shm_size=16g`` among the variables of a service."""
    listed = ((str(one.value).partition("=")[0], one) for one in items_of(node) if one.id == "scalar")
    for name, one in (*listed, *fields_of(node).items()):
        if name in OF_SERVICES:
            yield FormFault("manifest-unlikely", place(one), "of a service", (("name", name),))


def _misspelt_top(node: Any, place: Place) -> Iterator[FormFault]:
    """``piVersion: apps/v1`` beside kind and metadata."""
    if node is None or node.id != "mapping":
        return
    names = [str(key.value) for key, _ in node.value if key.id == "scalar"]
    missing = [one for one in REQUIRED if one not in names]
    if len(missing) != 1 or not {"spec", "data", "stringData"} & set(names):
        return
    for key, value in node.value:
        name = str(key.value)
        is_text = value.id == "scalar" or missing[0] == "metadata"
        if name not in REQUIRED and is_text and get_close_matches(name.lower(), [missing[0].lower()], 1, NEAR):
            yield FormFault("manifest-refused", place(key), "top", (("name", name), ("lacks", missing[0])))


def _metrics(entries: dict[str, Any], place: Place) -> Iterator[FormFault]:
    """The port of Prometheus' annotation that no container of the pod has."""
    above = fields_of(entries.get("metadata")) or entries
    annotation = fields_of(above.get("annotations")).get(METRICS_PORT)
    inside = entries if "containers" in entries else fields_of(entries.get("spec"))
    containers = [fields_of(one) for one in items_of(inside.get("containers"))]
    declared = [fields_of(port).get("containerPort") for one in containers for port in items_of(one.get("ports"))]
    ports = [str(one.value) for one in declared if one is not None]
    served = any("vllm" in str(getattr(one.get("image"), "value", "")) for one in containers)
    if annotation is None or annotation.id != "scalar" or not ports or not served:
        return
    port = str(annotation.value)
    is_open = not port.isdecimal() or not all(one.isdecimal() for one in ports)
    if not is_open and port not in ports and not any(port in _words_of(one) for one in containers):
        known = (("port", port), ("ports", ", ".join(ports)), ("right", ports[0]))
        yield FormFault("metrics-of-another-port", place(annotation), "", known)


def _words_of(container: dict[str, Any]) -> str:
    words = (one for part in ("command", "args") for one in items_of(container.get(part)))
    return " ".join(str(one.value) for one in words if one.id == "scalar")


def _beside_resources(node: Any, place: Place, depth: int) -> Iterator[FormFault]:
    """``resources:`` without anything below it, and what belongs there as its neighbour."""
    if node is None or node.id == "scalar" or depth > DEEPEST:
        return
    entries = fields_of(node)
    empty = entries.get("resources")
    if empty is not None and empty.id == "scalar" and not empty.value:
        beside = [name for name in AMOUNTS if AMOUNT_NAMES & set(fields_of(entries.get(name)))]
        if beside:
            first = next(key for key, _ in node.value if str(key.value) == beside[0])
            yield FormFault("resources-empty", place(first), "", (("names", " and ".join(beside)),))
    for one in entries.values() if node.id == "mapping" else node.value:
        yield from _beside_resources(one, place, depth + 1)


def _below(node: Any, place: Place, depth: int) -> Iterator[FormFault]:
    if node is None or node.id == "scalar" or depth > DEEPEST:
        return
    if node.id == "sequence":
        for one in node.value:
            yield from _below(one, place, depth + 1)
        return
    yield from _metrics(fields_of(node), place)
    for name, value in fields_of(node).items():
        for variable in items_of(value) if name == "env" else ():
            named = fields_of(variable).get("name")
            if named is not None and str(named.value) in OF_PODS:
                yield FormFault("manifest-unlikely", place(named), "misplaced", (("name", str(named.value)),))
        if name in NUMBERS and value.id == "scalar" and value.style in QUOTED and str(value.value).isdecimal():
            yield FormFault("manifest-refused", place(value), "number", (("field", name), ("value", str(value.value))))
        for container in items_of(value) if name in CONTAINERS else ():
            for variable in items_of(fields_of(container).get("env")):
                yield from _variable(variable, place)
        yield from _below(value, place, depth + 1)


def _variable(node: Any, place: Place) -> Iterator[FormFault]:
    """One entry of ``env``."""
    entries = fields_of(node)
    if "name" not in entries:
        return
    named = ("name", str(entries["name"].value))
    value = entries.get("value")
    kind = str(value.tag).rpartition(":")[2] if value is not None and value.id == "scalar" else ""
    if value is not None and value.id == "scalar" and kind in PLAIN and kind != "null":
        yield FormFault("env-value-not-text", place(value), "", (named, ("value", str(value.value)), ("kind", kind)))
    for key, other in entries.items():
        if key in SOURCES:
            yield FormFault("env-source-misplaced", place(other), "beside", (named, ("key", key)))
        elif key not in KNOWN and key != "<<":
            yield FormFault("env-source-misplaced", place(other), "unknown", (named, ("key", key)))
    source = entries.get("valueFrom")
    if source is not None and value is not None and value.id == "scalar" and value.value:
        yield FormFault("env-source-misplaced", place(source), "both", (named, ("key", "valueFrom")))
    inside = fields_of(source)
    for key, other in inside.items():
        if key not in SOURCES:
            yield FormFault("env-source-misplaced", place(other), "without kind", (named, ("key", key)))
        elif key in KEYED:
            missing = [part for part in ("name", "key") if part not in fields_of(other)]
            if missing and other.id == "mapping" and "<<" not in fields_of(other):
                known = (named, ("key", key), ("missing", " and ".join(missing)))
                yield FormFault("env-source-misplaced", place(other), "incomplete", known)


def _quoted(node: Any, place: Place) -> Iterator[FormFault]:
    """``- NAME="value"`` in a list: the quotes belong to the value."""
    if node.id != "scalar" or node.style:
        return
    name, sign, value = str(node.value).partition("=")
    if sign and len(value) > 1 and value[0] in QUOTES and value[-1] == value[0]:
        yield FormFault("quotes-in-value", place(node), "", (("name", name), ("value", value), ("bare", value[1:-1])))
