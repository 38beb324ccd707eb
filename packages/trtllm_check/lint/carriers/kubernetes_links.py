"""Fields of one manifest that have to fit together: labels, volumes, amounts, tolerations, ports and names."""

import base64
import binascii
import re
from collections.abc import Iterator
from typing import Any

from serving_base.facts.gpus import instances
from trtllm_check.lint.carriers.faults import FormFault
from trtllm_check.lint.carriers.settings import Setting

LABELLED = ("Deployment", "StatefulSet", "DaemonSet", "ReplicaSet")
RESTARTS = {**dict.fromkeys(LABELLED, ("Always",)), "Job": ("OnFailure", "Never")}
NAME = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
PORT_NAME = re.compile(r"(?=.*[a-z])[a-z0-9]([-a-z0-9]{0,13}[a-z0-9])?")
PLACEHOLDER = re.compile(
    r"[<>{}$()\[\]]|^(?-i:[A-Z_]+)$|(?-i:(?<![A-Za-z0-9])[A-Z_]{3,}(?![A-Za-z0-9]))|\.\.\.|your|x{3,}|base64|token|encoded|replace",
    re.IGNORECASE,
)
GPUS = ("nvidia.com/gpu", "amd.com/gpu")
AMOUNT = re.compile(r"(?P<number>\d+(?:\.\d+)?)(?P<unit>[KMGTPE]i|[mkMGTPE])?")
UNITS = {"": 1.0, "m": 1e-3, "k": 1e3, **{unit: 1e3 ** (i + 2) for i, unit in enumerate("MGTPE")}}
UNITS |= {f"{unit}i": 1024.0 ** (i + 1) for i, unit in enumerate("KMGTPE")}
LEAST_MEMORY = 1024.0**2
NODE_PORTS = range(30000, 32768)
SHARED = "/dev/shm"
INSTANCE_TYPE = "node.kubernetes.io/instance-type"
REPLICAS = {
    "HorizontalPodAutoscaler": ("minReplicas", "maxReplicas"),
    "ScaledObject": ("minReplicaCount", "maxReplicaCount"),
    "InferenceService": ("predictor", "minReplicas", "maxReplicas"),
}
PROBES = ("livenessProbe", "startupProbe", "readinessProbe")


def faults(top: Setting, kind: str, *, is_excerpt: bool = False) -> Iterator[FormFault]:
    """The faults of one manifest that is no patch of another and no template."""
    yield from _names(top, kind)
    spec = top.at("spec")
    if kind == "Service" and spec is not None:
        yield from _service(spec)
    if kind == "Secret":
        yield from _secret(top)
    if kind == "HorizontalPodAutoscaler":
        metrics = _list(spec, "metrics")
        for metric in metrics if len(metrics) == 1 else ():  # with a second one it scales by that
            name = metric.at("resource", "name")
            if name is not None and name.kind == "text" and name.text not in ("cpu", "memory"):
                yield _fault("metric", name, rule="manifest-unlikely", name=name.text)
    if kind == "InferenceService" and (predictor := top.at("spec", "predictor")) is not None:
        yield from _beside_model(predictor)
    if kind in REPLICAS and spec is not None:
        *inside, least, most = REPLICAS[kind]
        part = spec.at(*inside) if inside else spec
        yield from _replicas(part, least, most) if part is not None else ()
    pod = spec if kind == "Pod" else spec.at("template", "spec") if spec is not None else None
    if pod is None or not _is_whole(pod):
        for table in top.tables():
            yield from _amounts(table)
        return
    if kind in LABELLED and spec is not None:
        yield from () if is_excerpt and spec.at("selector") is None else _selector(top, spec, kind)
    yield from _restart(pod, kind)
    for toleration in _list(pod, "tolerations"):
        yield from _toleration(toleration)
    claims = {_text(one.at("metadata", "name")) for one in _list(spec, "volumeClaimTemplates")}
    volumes = {_text(one.at("name")): one for one in _list(pod, "volumes")}
    yield from _machine(pod)
    yield from _twice(pod)
    for container in (*_list(pod, "containers"), *_list(pod, "initContainers")):
        yield from _volumes(container, volumes, claims)
        yield from _amounts(container)
        if container.at("ports") is not None or kind not in LABELLED or spec is None or spec.at("selector") is not None:
            yield from _probes(container)  # else of a patch, whose base has the ports
        yield from _program(container)


def _fault(form: str, at: Setting, rule: str = "manifest-together", **known: Any) -> FormFault:
    return FormFault(rule, at.place, form, tuple((name, str(value)) for name, value in known.items()))


def _is_whole(pod: Setting) -> bool:
    """False for a patch, whose containers name no image."""
    containers = _list(pod, "containers")
    return bool(containers) and all(one.at("image") is not None for one in containers)


def _list(setting: Setting | None, name: str) -> tuple[Setting, ...]:
    found = setting.at(name) if setting is not None else None
    return tuple(one for one in found.parts if one.kind == "table") if found is not None else ()


def _text(setting: Setting | None) -> str:
    return setting.text if setting is not None and setting.kind in ("text", "number") else ""


def _table(setting: Setting | None) -> dict[str, str]:
    return {value.written: _text(value) for _, value in setting.items} if setting is not None else {}


def _beside_model(predictor: Setting) -> Iterator[FormFault]:
    """``resources`` with GPUs as a neighbour of ``model``, whose container has none."""
    beside, model = predictor.at("resources"), predictor.at("model")
    if beside is None or model is None or model.kind != "table" or model.at("resources") is not None:
        return
    gpus = next((one for part in ("limits", "requests") for name in GPUS if (one := beside.at(part, name))), None)
    if gpus is not None:
        yield _fault("predictor", beside, rule="manifest-incomplete", gpus=_text(gpus) or "the")


def _selector(top: Setting, spec: Setting, kind: str) -> Iterator[FormFault]:
    """The labels that a workload looks for, and those that its pods have."""
    selector, labels = spec.at("selector"), spec.at("template", "metadata", "labels")
    is_merged = any(value.written == "<<" for one in (top, spec) for _, value in one.items)
    if selector is None and not is_merged and _says_what_runs(spec):
        has = "" if labels is not None else ", and the template has no labels"
        yield _fault("no selector", spec, rule="manifest-incomplete", kind=kind, has=has)
    wanted = _table(selector.at("matchLabels") if selector is not None else None)
    have = _table(labels)
    unlike = [name for name, value in wanted.items() if have.get(name) != value and value]
    if unlike and selector is not None and not any(one.kind == "open" for _, one in (labels.items if labels else ())):
        name = unlike[0]
        known = {"wanted": f"{name}: {wanted[name]}", "has": f"{name}: {have[name]}" if name in have else f"no {name}"}
        yield _fault("labels", selector if labels is not None else spec.at("template") or selector, **known)


def _says_what_runs(spec: Setting) -> bool:
    """False for what is merged into a whole workload: its containers have no command and no port."""
    containers = _list(spec.at("template", "spec"), "containers")
    return all(any(one.at(name) is not None for name in ("args", "command", "ports")) for one in containers)


def _restart(pod: Setting, kind: str) -> Iterator[FormFault]:
    allowed = RESTARTS.get(kind, ())
    given = pod.at("restartPolicy")
    if not allowed or (given is not None and given.kind == "open"):
        return
    text = _text(given) or "Always"
    if text not in allowed:
        yield _fault("restart", given or pod, kind=kind, value=text, right=" or ".join(allowed))


def _toleration(one: Setting) -> Iterator[FormFault]:
    operator, value = _text(one.at("operator")) or "Equal", one.at("value")
    if operator == "Exists" and value is not None and _text(value):
        yield _fault("exists", value, value=value.text)
    elif operator == "Equal" and value is None and one.at("key") is not None:
        yield _fault("equal", one, rule="manifest-unlikely", key=_text(one.at("key")))


def _twice(pod: Setting) -> Iterator[FormFault]:
    """Volumes and containers of one name; pieces of a template may stand for one another."""
    for part in ("volumes", "containers", "initContainers"):
        seen: set[str] = set()
        for one in _list(pod, part):
            name = one.at("name")
            if name is None or name.kind != "text":
                continue
            if name.text in seen:
                yield _fault("twice", name, part=part, name=name.text)
            seen.add(name.text)


def _volumes(container: Setting, volumes: dict[str, Setting], claims: set[str]) -> Iterator[FormFault]:
    for mount in _list(container, "volumeMounts"):
        name = mount.at("name")
        if name is None or name.kind != "text":
            continue
        if name.text not in volumes and name.text not in claims:
            yield _fault("volume", name, name=name.text, names=", ".join(sorted(filter(None, volumes))) or "none")
        volume = volumes.get(name.text)
        empty = volume.at("emptyDir") if volume is not None else None
        is_shared = _text(mount.at("mountPath")).rstrip("/") == SHARED
        if is_shared and empty is not None and empty.kind == "table" and empty.at("medium") is None:
            yield _fault("disk", empty, rule="manifest-unlikely", name=name.text)


def _machine(pod: Setting) -> Iterator[FormFault]:
    """More GPUs than the machine has that the pod asks for by name."""
    selector = pod.at("nodeSelector", INSTANCE_TYPE)
    machine = instances().get(_text(selector))
    for container in _list(pod, "containers") if machine is not None else ():
        gpus = container.at("resources", "limits", GPUS[0])
        asked = _number(_text(gpus))
        if gpus is not None and machine is not None and asked is not None and asked > machine.gpus:
            yield _fault("machine", gpus, asked=gpus.text, instance=_text(selector), gpus=machine.gpus)


def _number(text: str) -> float | None:
    match = AMOUNT.fullmatch(text)
    return float(match["number"]) * UNITS[match["unit"] or ""] if match else None


def _amounts(container: Setting) -> Iterator[FormFault]:
    limits, requests = container.at("resources", "limits"), container.at("resources", "requests")
    for part in (limits, requests):
        for _, value in part.items if part is not None else ():
            number = _number(_text(value))
            if any(mark in _text(value) for mark in "${"):
                continue
            if (
                value.written in GPUS
                and _text(value)
                and (number is None or number != int(number) or "i" in value.text)
            ):
                yield _fault("whole", value, name=value.written, value=value.text)
            elif value.written == "memory" and number is not None and 0 < number < LEAST_MEMORY:
                yield _fault("memory", value, rule="manifest-unlikely", value=value.text)
    for _, value in requests.items if requests is not None else ():
        limit = limits.at(value.written) if limits is not None else None
        asked, most = _number(_text(value)), _number(_text(limit))
        known = {"name": value.written, "asked": value.text, "most": _text(limit)}
        if asked is not None and most is not None and value.written in GPUS and asked != most:
            yield _fault("equal gpus", value, **known)
        elif asked is not None and most is not None and asked > most:
            yield _fault("more", value, **known)


def _probes(container: Setting) -> Iterator[FormFault]:
    ports = {_text(one.at("name")) for one in _list(container, "ports")}
    for name in PROBES:
        probe = container.at(name)
        for kind in ("httpGet", "tcpSocket"):
            port = probe.at(kind, "port") if probe is not None else None
            if port is not None and port.kind == "text" and not port.text.isdecimal() and port.text not in ports:
                yield _fault("probe", port, probe=name, port=port.text, names=", ".join(filter(None, ports)) or "none")
        success = probe.at("successThreshold") if probe is not None else None
        if name != "readinessProbe" and success is not None and success.kind == "number" and success.text != "1":
            yield _fault("success", success, probe=name)
    for one in _list(container, "ports"):
        port_name = one.at("name")
        if port_name is not None and port_name.kind == "text" and not PORT_NAME.fullmatch(port_name.text):
            yield _fault("port name", port_name, name=port_name.text)


def _program(container: Setting) -> Iterator[FormFault]:
    """``command: ["vllm serve MODEL"]``: a program with blanks in its name."""
    command = container.at("command")
    first = command.parts[0] if command is not None and command.parts else None
    if first is not None and first.kind == "text" and re.fullmatch(r"--[a-z][\w-]*(?:=.*)?", first.text):
        yield _fault("option first", first, first=first.text)
    if first is not None and first.kind == "text" and re.fullmatch(r"[\w./-]+ +[^\n]+", first.text.strip()):
        program, _, rest = first.text.strip().partition(" ")
        if not program.startswith("-") and first.text.isascii():
            yield _fault("program", first, first=first.text, program=program, rest=rest.split()[0])


def _names(top: Setting, kind: str) -> Iterator[FormFault]:
    name = top.at("metadata", "name")
    if name is None or name.kind != "text" or not name.text.isascii() or PLACEHOLDER.search(name.text):
        return
    if name.text and "*" not in name.text and not NAME.fullmatch(name.text):  # "*": kustomize's, for any
        right = re.sub(r"[^a-z0-9.]+", "-", name.text.lower()).strip("-.")
        yield _fault("name", name, kind=kind, name=name.text, right=right)


def _service(spec: Setting) -> Iterator[FormFault]:
    ports = _list(spec, "ports")
    for one in ports:
        if len(ports) > 1 and one.at("name") is None:
            yield _fault("unnamed", one, port=_text(one.at("port")))
            break
    for one in ports:
        node = one.at("nodePort")
        number = int(node.text) if node is not None and node.kind == "number" and node.text.isdecimal() else 0
        if node is not None and number and number not in NODE_PORTS:
            yield _fault("node port", node, port=number)
        elif node is not None and number and _text(spec.at("type")) in ("", "ClusterIP"):
            yield _fault("cluster ip", node, port=number)


def _replicas(spec: Setting, least: str, most: str) -> Iterator[FormFault]:
    """An autoscaler whose least number is above its most."""
    low, high = (_number(_text(spec.at(name))) for name in (least, most))
    at = spec.at(least)
    if at is not None and low is not None and high is not None and low > high:
        yield _fault("replicas", at, least=least, low=at.text, most=most, high=_text(spec.at(most)))


def _secret(top: Setting) -> Iterator[FormFault]:
    data = top.at("data")
    for _, value in data.items if data is not None and data.kind == "table" else ():
        text = re.sub(r"\s", "", value.text)
        if value.kind != "text" or not text or PLACEHOLDER.search(text.replace("hf_", "", 1)):
            continue
        try:
            base64.b64decode(text, validate=True)
        except (binascii.Error, ValueError):
            yield _fault("base64", value, name=value.written)
