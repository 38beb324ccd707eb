"""Manifests against the fields that Kubernetes has, and the names in them against each other."""

import re
from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any

from trtllm_check.lint.carriers import kubernetes_links
from trtllm_check.lint.carriers.faults import FormFault
from trtllm_check.lint.carriers.manifests import NUMBERS
from trtllm_check.lint.carriers.schema import Misfit, Schema, Type, read_table, read_types
from trtllm_check.lint.carriers.settings import Place, Setting, from_yaml

FILE = "kubernetes.yml"
CUSTOM = "custom_resources.yml"
DEEPEST = 24
ENCRYPTED = "sops"  # what sops adds to a file that it encrypts, and takes out before anything is applied
COMMON = {"apiVersion": "text", "kind": "text", "metadata": "Metadata", "status": "any"}
UNKNOWN = ("unknown", "near", "above", "below")
UNTOLD = ("lacking", "unknown", "above", "below")  # of templates, which fill in the rest
RULES = {"kind": "manifest-value", "choice": "manifest-value", "amount": "manifest-value"}


def faults(node: Any, place: Place, *, is_template: bool, is_excerpt: bool = False) -> Iterator[FormFault]:
    """The faults of one document; ``is_excerpt``: the text says that it leaves some of it out."""
    top = from_yaml(node, place, DEEPEST)
    kind, version = (_text(top.at(name)) for name in ("kind", "apiVersion"))
    data = _kinds()
    if _is_patch(top) or _is_reference(top):
        return
    if version in data["gone"] and not is_template and kind in data["kinds"]:
        known = (("kind", kind), ("version", version), ("right", data["kinds"][kind]["versions"][-1]))
        yield FormFault("manifest-version", top.at("apiVersion").place, "", known)  # type: ignore[union-attr]
        return
    table = read_table(CUSTOM)["kinds"].get(kind, {}).get(version, "")
    if not table and (kind not in data["kinds"] or not version):
        return
    if not table and version not in data["kinds"][kind]["versions"]:
        yield from () if is_template else _other_version(top, kind, version)
        return
    found = list(_schema(kind, version, table).problems(top, f"Object {kind}"))
    untold = (UNTOLD if table else ("lacking",)) if is_template else ()
    if table and not any(problem.form in UNKNOWN for problem in found):
        untold = (*untold, "lacking")  # a patch or an excerpt
    source = read_table(f"custom_resources/{table}.yml")["source"] if table else ""
    for problem in found:
        if problem.setting.written == ENCRYPTED:
            continue
        if not _is_said_elsewhere(problem) and problem.form not in untold:
            rule = RULES.get(problem.form, "manifest-field")
            yield FormFault(rule, problem.setting.place, problem.form, problem.known, source=source)
    if not is_template:
        yield from kubernetes_links.faults(top, kind, is_excerpt=is_excerpt)


def _is_patch(top: Setting) -> bool:
    """True for a patch of kustomize, which is no manifest by itself."""
    return any(value.written.startswith("$") for table in top.tables() for _, value in table.items)


def _is_reference(top: Setting) -> bool:
    """True for words that name an object, or a list of them: what a call of a tool asks for, no manifest."""
    return all(value.kind not in ("table", "list", "open") for _, value in top.items)


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


def _kinds() -> Mapping[str, Any]:
    return read_table(FILE)


@cache
def _schema(kind: str, version: str, table: str) -> Schema:
    """``table``: the one of custom resources that has it, "" for Kubernetes's own."""
    if table:
        file = f"custom_resources/{table}.yml"
        fields, types = read_table(file)["kinds"][kind][version], read_types(file, FILE)
    else:
        entry = _kinds()["kinds"][kind]
        fields = {**({entry["spec"]: "spec"} if "spec" in entry else {}), **entry.get("others", {})}
        types = read_types(FILE)
    own = {field: one for one, names in fields.items() for field in names.split()}
    return Schema({**types, f"Object {kind}": Type({**COMMON, **own}, (), {})})


def _text(setting: Setting | None) -> str:
    return setting.text if setting is not None and setting.kind == "text" else ""
