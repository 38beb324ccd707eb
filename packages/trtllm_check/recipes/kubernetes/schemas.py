"""Manifests against Kubernetes' own schemas, and against what no schema knows: whether the parts fit together.

``schemas/leaderworkerset.json``: ``openAPIV3Schema`` of the CustomResourceDefinition of kubernetes-sigs/lws v0.9.0,
commit f056f611, which has the whole PodSpec in it. ``schemas/core.json``: Service, ServiceAccount, Role and RoleBinding
of Kubernetes 1.37.0 and the definitions that they use, from kubernetes-validate 1.37.0 (PyPI). Both are Apache-2.0, and
without descriptions. A real API server also has admission and what else a cluster installs: no schema has those.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent / "schemas"
GROUP_KIND = "LeaderWorkerSet"
GPU = "nvidia.com/gpu"


def manifest_problems(manifests: Iterable[Mapping[str, Any]]) -> list[str]:
    """What is wrong, in a line each; an empty list if nothing is. ``manifests``: parsed YAML documents."""
    documents = list(manifests)
    found = [problem for document in documents for problem in _schema_problems(document)]
    return found or _do_not_fit(documents)


def _schema_problems(document: Mapping[str, Any]) -> list[str]:
    from jsonschema import Draft202012Validator

    kind = document.get("kind")
    schema = _schemas().get(str(kind))
    if schema is None:
        return [f"kind {kind!r} is none of {', '.join(_schemas())}"]
    errors = sorted(Draft202012Validator(schema).iter_errors(document), key=lambda error: list(map(str, error.path)))
    return [f"{kind}: {'.'.join(map(str, error.absolute_path)) or 'top'}: {error.message[:160]}" for error in errors]


@cache
def _schemas() -> dict[str, dict[str, Any]]:
    core = json.loads((HERE / "core.json").read_text(encoding="utf-8"))
    group = json.loads((HERE / "leaderworkerset.json").read_text(encoding="utf-8"))
    strict = _strict(group["openAPIV3Schema"])
    strict["properties"]["apiVersion"] = {"enum": [group["apiVersion"]]}
    strict["required"] = ["apiVersion", "kind", "metadata", "spec"]
    found = {GROUP_KIND: strict}
    for kind, schema in core["kinds"].items():
        found[kind] = {**schema, "$defs": core["$defs"], "required": ["apiVersion", "kind", "metadata"]}
    return found


def _strict(schema: Any) -> Any:
    """A CRD's schema as kubectl checks it: an unknown field is an error, and a quantity may be a number or a text."""
    if isinstance(schema, list):
        return [_strict(entry) for entry in schema]
    if not isinstance(schema, dict):
        return schema
    read = {key: _strict(value) for key, value in schema.items()}
    if read.get("x-kubernetes-int-or-string") is True:
        read.pop("anyOf", None)
        read["type"] = ["integer", "string"]
    closed = isinstance(read.get("properties"), dict) and read.get("type") == "object"
    if closed and not read.get("x-kubernetes-preserve-unknown-fields"):
        read.setdefault("additionalProperties", False)
    return read


def _do_not_fit(documents: list[Mapping[str, Any]]) -> list[str]:
    """What a schema cannot see. Only for documents that are valid alone."""
    groups = [document for document in documents if document["kind"] == GROUP_KIND]
    services = [document for document in documents if document["kind"] == "Service"]
    found = [] if groups else [f"there is no {GROUP_KIND}"]
    for group in groups:
        template = group["spec"]["leaderWorkerTemplate"]
        pods = {role: template.get(f"{role}Template", template["workerTemplate"]) for role in ("leader", "worker")}
        found += _wrong_number(pods, template.get("size", 1))
        labels = pods["leader"].get("metadata", {}).get("labels", {})
        own = {"leaderworkerset.sigs.k8s.io/name": group["metadata"]["name"], **labels}
        listed = [port for one in pods["leader"]["spec"]["containers"] for port in one.get("ports", [])]
        ports = {port[key] for port in listed for key in ("containerPort", "name") if key in port}
        for service in services:
            found += _not_reached(service["spec"], own, ports)
    return found


def _not_reached(service: Mapping[str, Any], labels: Mapping[str, str], ports: set[int | str]) -> list[str]:
    wrong = [f"{key}={value}" for key, value in service.get("selector", {}).items() if labels.get(key) != value]
    found = [f"the Service selects {', '.join(wrong)}, which the leader does not have"] if wrong else []
    if not wrong and "role" not in service.get("selector", {}):
        found.append("the Service also selects workers, which answer no requests")
    for port in service["ports"]:
        target = port.get("targetPort", port["port"])
        if target not in ports:
            known = ", ".join(sorted(map(str, ports)))
            found.append(f"the Service sends to port {target}, the leader listens on {known}")
    return found


def _wrong_number(pods: Mapping[str, Any], size: int) -> list[str]:
    """Ranks that the leader's command asks for against the GPUs of the group."""
    command = " ".join(pods["leader"]["spec"]["containers"][0].get("command", []))
    words = command.replace("$(LWS_GROUP_SIZE)", str(size)).replace("=", " ").split()
    asked = {
        "tp": _after(words, "--tensor-parallel-size", "--tp"),
        "pp": _after(words, "--pipeline-parallel-size", "--pp"),
    }
    ranks = asked["tp"] * asked["pp"]
    gpus = {role: _gpus(pod) for role, pod in pods.items()}
    there = gpus["leader"] + (size - 1) * gpus["worker"]
    if ranks == there:
        return []
    return [f"tp {asked['tp']} x pp {asked['pp']} is {ranks} ranks, and {size} pods have {there} GPUs"]


def _after(words: list[str], *flags: str) -> int:
    values = (words[at + 1] for at, word in enumerate(words[:-1]) if word in flags)
    return next((int(value) for value in values if value.isdigit()), 1)


def _gpus(pod: Mapping[str, Any]) -> int:
    limits = pod["spec"]["containers"][0].get("resources", {}).get("limits", {})
    return int(limits.get(GPU, 0))
