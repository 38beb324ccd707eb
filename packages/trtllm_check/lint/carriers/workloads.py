"""Containers of docker compose, Kubernetes and ECS: what each gets of GPUs and memory, and when it is restarted."""

import re
import shlex
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Literal, NamedTuple

from trtllm_check.lint.carriers.yaml_entries import entries_of
from trtllm_check.lint.shell.words import Word

ACCELERATOR = re.compile(r"gpu|tpu|neuron|gaudi|mig-|npu|dcu|xpu|accelerator", re.IGNORECASE)
COUNTED = ("nvidia.com/gpu", "amd.com/gpu")
SHARED = "/dev/shm"
DRIVE = re.compile(r"^[A-Za-z]:(?=[\\/])")
OWN_ADDRESS = re.compile(r"(?:localhost|127\.0\.0\.1|0\.0\.0\.0):(?P<port>\d{2,5})(?P<path>/[\w./-]*)?")
POD_KINDS = ("Deployment", "StatefulSet", "Pod", "DaemonSet", "ReplicaSet", "LeaderWorkerSet")
# Kinds of others that hold whole containers: what is told of GPUs elsewhere is not known.
GROUP = "LeaderWorkerSet"
WHOLE = ("Job", "InferenceService")  # whose one pod has what stands there, if anything does
OTHER_KINDS = ("Job", "LLMInferenceService", "ServingRuntime", "ClusterServingRuntime", "InferenceService")
MERGES = ("extends",)
Place = Callable[[Any], Word]
Node = Mapping[str, Any]


class Probe(NamedTuple):
    """A probe of Kubernetes: it acts after ``seconds`` without an answer. ``port``: 0 where it is none or a name."""

    name: str
    seconds: int
    place: Word
    port: int = 0
    path: str = ""
    scheme: str = ""
    has_key: bool = False  # it sends a header Authorization


class Device(NamedTuple):
    """One reservation of devices of docker compose, with the keys that it has."""

    keys: tuple[str, ...]
    place: Word


class ServedContainer(NamedTuple):
    """One container, on the lines ``first`` to ``last`` of its text.

    ``gpus``: how many it gets, None where that is not told; ``shared_memory``: True also where it is not told.
    ``requests_only``: Kubernetes' GPUs stand among the requests and not among the limits; ``ports``: compose's, of the
    host (0 where the reader fills it in) and inside. ``words``: what the image's entry point gets, or the command
    where it is ``replaced``; ``settings``: variables with their values; ``is_open``: more of them come from elsewhere;
    ``mounts``: folders inside; ``labels`` and ``named_ports`` (at ``port_places``): of the pod; ``alone``: no other
    container in it; ``owner``: the name of the object or service that holds it;
    ``pod``: the line where the containers of its pod begin; ``holder``: the kind of the object.
    """

    kind: Literal["compose", "kubernetes", "ecs"]
    image: str
    place: Word
    first: int
    last: int
    gpus: int | None
    shared_memory: bool
    gpus_place: Word
    requests_only: bool = False
    probes: tuple[Probe, ...] = ()
    devices: tuple[Device, ...] = ()
    service_links: bool = True
    variables: tuple[str, ...] = ()
    ports: tuple[tuple[int, int], ...] = ()
    host_network: bool = False
    network: str = ""
    file: str = ""
    words: tuple[Word, ...] = ()
    replaced: bool = False
    settings: tuple[tuple[str, Word], ...] = ()
    is_open: bool = False
    mounts: tuple[str, ...] = ()
    labels: tuple[tuple[str, str], ...] = ()
    named_ports: tuple[tuple[str, int], ...] = ()
    port_places: tuple[Word, ...] = ()
    alone: bool = True
    owner: str = ""
    pod: int = 0
    holder: str = ""

    def holds(self, line: int) -> bool:
        return self.first <= line <= self.last


class ClusterService(NamedTuple):
    """A Kubernetes service, whose name becomes variables of every later pod."""

    name: str
    place: Word
    file: str = ""
    selector: tuple[tuple[str, str], ...] = ()
    targets: tuple[Word, ...] = ()
    ports: tuple[str, ...] = ()
    is_headless: bool = False


# What services of compose have and values of charts or jobs of CI have not: a page may show one of them by itself.
OF_COMPOSE = frozenset(
    {"container_name", "depends_on", "network_mode", "shm_size", "ipc", "deploy", "runtime", "networks", "env_file"}
)
OF_CI = frozenset({"script", "stage", "steps", "services", "repository", "replicaCount", "needs"})


def workloads(node: Any, place: Place) -> Iterator[ServedContainer | ClusterService]:
    """The containers and services of one document of YAML."""
    top = fields_of(node)
    if "services" in top:
        for owner, service in fields_of(top["services"]).items():
            if service.id == "mapping" and {"image", "build"} & set(entries_of(service)):
                yield _compose(service, place)._replace(owner=owner)
    elif not {"apiVersion", "kind", "image"} & set(top):
        for owner, service in top.items():
            if "image" in (entries := fields_of(service)) and OF_COMPOSE & set(entries) and not OF_CI & set(entries):
                one = _compose(service, place)._replace(owner=owner, shared_memory=True)
                yield one._replace(gpus=one.gpus or None)  # the page may leave out the rest of it
    kind = _text(top.get("kind"))
    if kind == "Service" and (name := fields_of(top.get("metadata")).get("name")) is not None:
        spec = fields_of(top.get("spec"))
        targets = (one.get("targetPort") or one.get("port") for one in map(fields_of, items_of(spec.get("ports"))))
        words = tuple(place(one) for one in targets if one is not None and one.id == "scalar")
        ports = tuple(_text(fields_of(one).get("port")) for one in items_of(spec.get("ports")))
        is_headless = _text(spec.get("clusterIP")) == "None"
        yield ClusterService(_text(name), place(name), "", _pairs(spec.get("selector")), words, ports, is_headless)
    if kind in (*POD_KINDS, *OTHER_KINDS):
        labels = _pairs(fields_of(top.get("metadata")).get("labels")) if kind == "Pod" else ()
        for pod, its_labels in _pods(top.get("spec"), labels, 0):
            containers = items_of(pod.get("containers"))
            for container in containers:
                if "image" in fields_of(container):
                    whole = kind in WHOLE and "workerSpec" not in pod
                    one = _kubernetes(container, pod, place, not whole and (kind not in POD_KINDS or kind == GROUP))
                    one = one._replace(gpus=one.gpus or None) if whole else one
                    owner = _text(fields_of(top.get("metadata")).get("name"))
                    line = place(pod["containers"]).line
                    one = one._replace(
                        labels=its_labels, alone=len(containers) == 1, owner=owner, pod=line, holder=kind
                    )
                    if kind == "Deployment" and not one.words and "selector" not in fields_of(top.get("spec")):
                        one = one._replace(gpus=one.gpus or None)  # a part that is merged into another
                    # KServe's controller merges its own template under this one, with a volume at /dev/shm.
                    yield one._replace(shared_memory=True) if kind == "LLMInferenceService" else one


def open_workload(one: ServedContainer | ClusterService) -> ServedContainer | ClusterService:
    """The same where the text leaves parts out."""
    if isinstance(one, ClusterService):
        return one
    return one._replace(gpus=one.gpus or None, shared_memory=True, is_open=True)


def _compose(service: Any, place: Place) -> ServedContainer:
    entries = entries_of(service)
    open_ = any(name in entries for name in MERGES)
    resources = fields_of(fields_of(entries.get("deploy")).get("resources"))
    devices = [
        one
        for part in ("reservations", "limits")
        for one in items_of(fields_of(resources.get(part)).get("devices"))
        if one.id == "mapping"
    ]
    gpus: int | None = 0
    where = image = entries["image"] if "image" in entries else entries["build"]  # which has no name, or its own
    for one in devices:
        keys = fields_of(one)
        where = keys.get("count") or keys.get("device_ids") or one
        ids = keys.get("device_ids")
        named = [_text(item) for item in items_of(ids)]
        gpus = (None if "all" in named else len(named)) if ids is not None else _number(keys.get("count"))
    others = ("gpus", "runtime", "devices", "device_requests", "privileged", "cdi")
    variables = _names(entries.get("environment"))
    told_elsewhere = any(name in entries for name in others) or "NVIDIA_VISIBLE_DEVICES" in variables
    if open_ or (not devices and told_elsewhere) or "env_file" in entries:
        gpus = _number(entries["gpus"]) if "gpus" in entries and not open_ else None
    return ServedContainer(
        "compose",
        _text(entries.get("image")),
        place(image),
        *_lines(service, place),
        gpus,
        open_ or "shm_size" in entries or "ipc" in entries or _mounts_shared(entries),
        place(where),
        devices=tuple(Device(tuple(fields_of(one)), place(one)) for one in devices),
        variables=variables,
        ports=tuple(_published(entries)),
        host_network="network_mode" in entries or open_,
        network=_text(entries.get("network_mode")),
        words=_words(entries.get("command"), place),
        replaced="entrypoint" in entries or open_,
        settings=tuple(_settings(entries.get("environment"), place)),
        is_open=open_ or "env_file" in entries,
        mounts=tuple(_targets(entries.get("volumes"))),
    )


def _kubernetes(container: Any, pod: Node, place: Place, several_nodes: bool) -> ServedContainer:
    entries = fields_of(container)
    resources = fields_of(entries.get("resources"))
    limits, requests = (fields_of(resources.get(part)) for part in ("limits", "requests"))
    named = [name for name in (*limits, *requests) if ACCELERATOR.search(name)]
    elsewhere = "claims" in resources or "resourceClaims" in pod or "runtimeClassName" in pod
    counted = next((name for name in named if name in COUNTED), "")
    where = limits.get(counted) or requests.get(counted)
    gpus = _number(where) if counted else None if named or elsewhere or "<<" in (*entries, *resources) else 0
    mounts = [_text(fields_of(one).get("mountPath")).rstrip("/") for one in items_of(entries.get("volumeMounts"))]
    return ServedContainer(
        "kubernetes",
        _text(entries["image"]),
        place(entries["image"]),
        *_lines(container, place),
        None if several_nodes else gpus,
        SHARED in mounts or _text(pod.get("hostIPC")).lower() == "true" or _is_template(entries.get("volumeMounts")),
        place(where or entries["image"]),
        requests_only=bool(counted) and counted not in limits,
        probes=tuple(_probes(entries, place)),
        service_links=_text(pod.get("enableServiceLinks")).lower() != "false",
        variables=_names(entries.get("env")),
        host_network=_text(pod.get("hostNetwork")).lower() == "true",
        words=(*_words(entries.get("command"), place), *_words(entries.get("args"), place)),
        replaced="command" in entries,
        settings=tuple(_settings(entries.get("env"), place)),
        is_open="envFrom" in entries or _is_template(entries.get("env")),
        mounts=tuple(mounts),
        named_ports=tuple(_container_ports(entries.get("ports"))),
        port_places=tuple(_port_places(entries.get("ports"), place)),
    )


def _published(entries: Node) -> Iterator[tuple[int, int]]:
    """``host:inside`` of each port of compose."""
    for one in items_of(entries.get("ports")):
        long = fields_of(one)
        if (target := _number(long.get("target"))) is not None:
            yield _number(long.get("published")) or 0, target
        text = _text(one).partition("/")[0]
        host, _, inside = text.rpartition(":")
        host = host.rpartition(":")[2] or inside
        if inside.isdecimal() and len(inside) < 6:
            yield int(host) if host.isdecimal() and len(host) < 6 else 0, int(inside)


def _probes(entries: Node, place: Place) -> Iterator[Probe]:
    for name in ("livenessProbe", "startupProbe", "readinessProbe"):
        probe = fields_of(entries.get(name))
        if not probe:
            continue
        delay, period, most = (
            _number(probe[key]) if key in probe else default
            for key, default in (("initialDelaySeconds", 0), ("periodSeconds", 10), ("failureThreshold", 3))
        )
        if delay is not None and period is not None and most is not None:
            asked = fields_of(probe.get("httpGet") or probe.get("tcpSocket"))
            about = _number(asked.get("port")) or 0, _text(asked.get("path")), _text(asked.get("scheme"))
            if "exec" in probe:
                about = _asked_by(fields_of(probe["exec"]).get("command"))
            headers = [fields_of(one) for one in items_of(asked.get("httpHeaders"))]
            has_key = any(_text(one.get("name")).lower() == "authorization" for one in headers)
            yield Probe(name, delay + period * max(most - 1, 0), place(entries[name]), *about, has_key=has_key)


def _asked_by(node: Any) -> tuple[int, str, str]:
    """The port and the path that a command of a probe asks its own container for."""
    whole = " ".join(_text(one) for one in items_of(node))
    match = OWN_ADDRESS.search(whole)
    return (int(match["port"]), match["path"] or "", "") if match else (0, "", "")


def _pods(
    node: Any, labels: tuple[tuple[str, str], ...], depth: int
) -> Iterator[tuple[Node, tuple[tuple[str, str], ...]]]:
    """Every mapping with containers below a workload's ``spec``, and the labels beside it."""
    if node is None or depth > 8:
        return
    entries = fields_of(node)
    if "containers" in entries:
        yield entries, labels
        return
    beside = _pairs(fields_of(entries.get("metadata")).get("labels"))
    for one in entries.values():
        if one.id == "mapping":
            yield from _pods(one, beside or labels, depth + 1)


def _pairs(node: Any) -> tuple[tuple[str, str], ...]:
    return tuple((name, _text(value)) for name, value in fields_of(node).items())


def _words(node: Any, place: Place) -> tuple[Word, ...]:
    """The words of a list, or of a text as a shell splits it."""
    if node is None:
        return ()
    if node.id == "sequence":
        return tuple(place(one) for one in node.value if one.id == "scalar")
    try:
        parts = shlex.split(_text(node))
    except ValueError:
        return ()
    at = place(node)
    return tuple(Word(part, at.line, at.column) for part in parts)


def _settings(node: Any, place: Place) -> Iterator[tuple[str, Word]]:
    """Variables with the place of their values; of a value from elsewhere the text is empty."""
    if node is None or node.id == "scalar":
        return
    if node.id == "mapping":
        for name, value in fields_of(node).items():
            yield name, place(value)
        return
    for one in node.value:
        if one.id == "scalar":
            name, _, value = _text(one).partition("=")
            at = place(one)
            yield name, Word(value, at.line, at.column)
        elif "name" in (entries := fields_of(one)):
            at = place(entries["name"])
            yield _text(entries["name"]), Word(_text(entries.get("value")), at.line, at.column)


def _targets(node: Any) -> Iterator[str]:
    """The folders inside of compose's volumes."""
    for one in items_of(node):
        entries = fields_of(one)
        parts = DRIVE.sub("", _text(one)).split(":")
        inside = _text(entries.get("target")) or (parts[1] if len(parts) > 1 and parts[1].startswith("/") else parts[0])
        yield inside.rstrip("/")


def _container_ports(node: Any) -> Iterator[tuple[str, int]]:
    for one in items_of(node):
        entries = fields_of(one)
        yield _text(entries.get("name")), _number(entries.get("containerPort")) or 0


def _port_places(node: Any, place: Place) -> Iterator[Word]:
    """Where each of them stands."""
    for one in items_of(node):
        port = fields_of(one).get("containerPort")
        yield place(one if port is None else port)


def _mounts_shared(entries: Node) -> bool:
    return any(SHARED in _text(one) for one in (*items_of(entries.get("volumes")), *items_of(entries.get("tmpfs"))))


def _lines(node: Any, place: Place) -> tuple[int, int]:
    first = place(node).line
    return first, first + int(node.end_mark.line) - int(node.start_mark.line)


def fields_of(node: Any) -> dict[str, Any]:
    """The values of a mapping by their keys; of another node none."""
    if node is None or node.id != "mapping":
        return {}
    return {str(key.value): value for key, value in node.value if key.id == "scalar"}


def items_of(node: Any) -> list[Any]:
    """The nodes of a sequence; of another node none."""
    return list(node.value) if node is not None and node.id == "sequence" else []


def _names(node: Any) -> tuple[str, ...]:
    """The variables of a mapping, of a list of NAME=value, or of Kubernetes' list."""
    if node is None or node.id == "scalar":
        return ()
    if node.id == "mapping":
        return tuple(fields_of(node))
    named = [_text(one) if one.id == "scalar" else _text(fields_of(one).get("name")) for one in node.value]
    return tuple(one.partition("=")[0] for one in named)


def _text(node: Any) -> str:
    return str(node.value) if node is not None and node.id == "scalar" else ""


def _is_template(node: Any) -> bool:
    return node is not None and node.id == "scalar"


def _number(node: Any) -> int | None:
    text = _text(node)
    return int(text) if text.isascii() and text.isdecimal() and len(text) < 9 else None
