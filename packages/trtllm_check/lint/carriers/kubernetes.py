"""Manifests against the fields that Kubernetes has, and the names in them against each other."""

import re
from collections.abc import Iterator
from functools import cache
from typing import Any

from serving_base.yaml_files import read_yaml
from trtllm_check.lint.carriers import kubernetes_links
from trtllm_check.lint.carriers.faults import FormFault
from trtllm_check.lint.carriers.manifests import NUMBERS
from trtllm_check.lint.carriers.schema import HERE, Misfit, Schema, Type, read_types
from trtllm_check.lint.carriers.settings import Place, Setting, from_yaml

FILE = "kubernetes.yml"
DEEPEST = 24
COMMON = {"apiVersion": "text", "kind": "text", "metadata": "Metadata", "status": "any"}
RULES = {"kind": "manifest-value", "choice": "manifest-value", "amount": "manifest-value"}


def faults(node: Any, place: Place, *, is_template: bool) -> Iterator[FormFault]:
    """The faults of one document."""
    top = from_yaml(node, place, DEEPEST)
    kind, version = (_text(top.at(name)) for name in ("kind", "apiVersion"))
    data = _kinds()
    if _is_patch(top):
        return
    if version in data["gone"] and not is_template and kind in data["kinds"]:
        known = (("kind", kind), ("version", version), ("right", data["kinds"][kind]["versions"][-1]))
        yield FormFault("manifest-version", top.at("apiVersion").place, "", known)  # type: ignore[union-attr]
        return
    if kind not in data["kinds"] or not version:
        return
    if version not in data["kinds"][kind]["versions"]:
        yield from () if is_template else _other_version(top, kind, version)
        return
    for problem in _schema(kind).problems(top, f"Object {kind}"):
        if not _is_said_elsewhere(problem) and not (is_template and problem.form == "lacking"):
            yield FormFault(
                RULES.get(problem.form, "manifest-field"), problem.setting.place, problem.form, problem.known
            )
    if not is_template:
        yield from kubernetes_links.faults(top, kind)


def _is_patch(top: Setting) -> bool:
    """True for a patch of kustomize, which is no manifest by itself."""
    return any(value.written.startswith("$") for table in top.tables() for _, value in table.items)


def _other_version(top: Setting, kind: str, version: str) -> Iterator[FormFault]:
    """A version of the core or of apps, batch for a kind that it does not have."""
    right = _kinds()["kinds"][kind]["versions"][-1]
    if re.fullmatch(r"(?:(?:apps|batch)/)?v1(?:beta\d)?", version) and (at := top.at("apiVersion")) is not None:
        yield FormFault("manifest-version", at.place, "", (("kind", kind), ("version", version), ("right", right)))


def _is_said_elsewhere(problem: Misfit) -> bool:
    """What the rules on variables and whole numbers say already."""
    field = problem.setting.written
    if problem.form == "kind":
        return field == "name" or (
            field in NUMBERS and problem.setting.kind == "text" and problem.setting.text.isdecimal()
        )
    return problem.form == "above" and field == "spec"


@cache
def _kinds() -> dict[str, Any]:
    content: dict[str, Any] = read_yaml(HERE / FILE)
    return content


@cache
def _schema(kind: str) -> Schema:
    entry = _kinds()["kinds"][kind]
    own = {field: one for one, names in entry.get("others", {}).items() for field in names.split()}
    spec = {"spec": entry["spec"]} if "spec" in entry else {}
    return Schema({**read_types(FILE), f"Object {kind}": Type({**COMMON, **spec, **own}, (), {})})


def _text(setting: Setting | None) -> str:
    return setting.text if setting is not None and setting.kind == "text" else ""
