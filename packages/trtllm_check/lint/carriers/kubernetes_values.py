"""Values of manifests that Kubernetes takes as they are: names of resources, $(VARIABLES), annotations, rules."""

import re
from base64 import b64decode
from collections.abc import Iterator
from difflib import SequenceMatcher, get_close_matches
from functools import cache
from typing import Any

from serving_base.yaml_files import read_yaml
from trtllm_check.lint.carriers.faults import FormFault
from trtllm_check.lint.carriers.schema import HERE
from trtllm_check.lint.carriers.workloads import Place, fields_of, items_of

FILE = "kubernetes_values.yml"
AMOUNTS = ("limits", "requests")
HUGE = re.compile(r"hugepages-\w+|requests\..*|limits\..*|count/.*")
REFERENCE = re.compile(r"(?<!\$)\$\((?P<name>[A-Za-z]\w*)\)")
SET_IN_SCRIPT = r"(?:^|[\s;&({{])(?:export\s+|local\s+)?{name}="
NVIDIA = ("nvidia.com", "nvidia", "nvidia.io")
ROLES = ("Role", "ClusterRole")
NEAR = 0.8
DEEPEST = 40
LEAST = 5
MASKED = re.compile(r"x{5,}|\{\{|[<>$]")
SHELLS = re.compile(r"(?:\S*/)?(?:ba|da|z)?sh")
SHELL_OPTION = re.compile(r"-[a-z]*c")
ONE_WORD = re.compile(r"[\w./-]+")
TO_BE_ENCODED = re.compile(r"base64|b64|encoded", re.IGNORECASE)
TO_BE_FILLED = re.compile(r"(?i:replace|insert|change|your|enter)[\w-]*(?i:token|key|secret)[\w-]*")


def faults(node: Any, place: Place) -> Iterator[FormFault]:
    """Those of one document."""
    top = fields_of(node)
    if "kind" not in top or "apiVersion" not in top:
        return
    yield from _annotations(fields_of(fields_of(top.get("metadata")).get("annotations")), place)
    if str(top["kind"].value) in ROLES:
        yield from _rules(top.get("rules"), place)
    if str(top["kind"].value) == "Secret":
        yield from _secrets(top, place)
    group = str(top["apiVersion"].value).rpartition("/")[0]
    yield from _below(node, place, 0, is_known=group in ("", *_facts()["groups"]))


@cache
def _facts() -> dict[str, Any]:
    content: dict[str, Any] = read_yaml(HERE / FILE)
    return content


def _below(node: Any, place: Place, depth: int, *, is_known: bool) -> Iterator[FormFault]:
    """``is_known``: of a kind whose resources are Kubernetes' own also where no container stands beside them."""
    if node is None or node.id == "scalar" or depth > DEEPEST:
        return
    if node.id == "sequence":
        for one in node.value:
            yield from _below(one, place, depth + 1, is_known=is_known)
        return
    entries = fields_of(node)
    if "image" in entries and ("name" in entries or "args" in entries or "command" in entries):
        yield from _references(node, place)
        yield from _one_word(entries, place)
    yield from _labels(entries, place)
    for part in AMOUNTS if is_known or "image" in entries else ():
        yield from _amounts(fields_of(entries.get("resources")).get(part), place)
    for one in entries.values():
        yield from _below(one, place, depth + 1, is_known=is_known)


def _amounts(node: Any, place: Place) -> Iterator[FormFault]:
    """``nvidia.com.gpu``: a name without a slash is one of Kubernetes' own, or none."""
    if node is None or node.id != "mapping":
        return
    facts = _facts()
    for key, _ in node.value:
        name = str(key.value) if key.id == "scalar" else ""
        if not name or name in (*facts["standard"], *facts["extended"], "<<") or MASKED.search(name):
            continue
        close = get_close_matches(name, facts["extended"], 1, NEAR)
        known = (("name", name), ("right", close[0] if close else "nvidia.com/gpu"))
        if "/" not in name and not HUGE.fullmatch(name):
            wide = get_close_matches(name, facts["standard"], 1, NEAR)
            known = (("name", name), ("right", wide[0] if wide else known[1][1]))
            yield FormFault("resource-name", place(key), "", known)
        elif close and name.partition("/")[0] in NVIDIA and "/" in name and not name.startswith("nvidia.com/mig-"):
            yield FormFault("resource-name", place(key), "near", known)


def _references(node: Any, place: Place) -> Iterator[FormFault]:
    """``$(NAME)`` in a command of a container that has no such variable."""
    entries = fields_of(node)
    if "envFrom" in entries or "<<" in entries:
        return
    variables = items_of(entries.get("env"))
    names = [str(fields_of(one)["name"].value) for one in variables if "name" in fields_of(one)]
    if entries.get("env") is not None and entries["env"].id == "scalar":
        return
    words = [one for part in ("command", "args") for one in items_of(entries.get(part)) if one.id == "scalar"]
    script = "\n".join(str(one.value) for one in words)
    for one in words:
        for match in REFERENCE.finditer(str(one.value)):
            name = match["name"]
            if name in names or name in _facts()["injected"] or not _is_a_variable(name):
                continue
            if re.search(SET_IN_SCRIPT.format(name=name), script):
                continue
            close = get_close_matches(name, names, 1, NEAR)
            right = f"write $({close[0]})" if close else f"add {name} to env"
            known = (("name", name), ("right", right), ("has", ", ".join(names) or "none"))
            yield FormFault("variable-reference", place(one), "", known)
            return


def _one_word(entries: dict[str, Any], place: Place) -> Iterator[FormFault]:
    """``[sh, -c, vllm, serve]``: the shell takes the one word behind -c."""
    words = [one for part in ("command", "args") for one in items_of(entries.get(part)) if str(one.value) != "--"]
    if len(words) < len(("sh", "-c", "vllm", "serve")) or any(one.id != "scalar" for one in words):
        return
    shell, option, script = (str(one.value).strip() for one in words[:3])
    if SHELLS.fullmatch(shell) and SHELL_OPTION.fullmatch(option) and ONE_WORD.fullmatch(script):
        whole = " ".join(str(one.value).strip() for one in words[2:])
        known = (("shell", shell), ("first", script), ("whole", whole))
        yield FormFault("only-one-word", place(words[3]), "", known)


def _secrets(top: dict[str, Any], place: Place) -> Iterator[FormFault]:
    """Values below ``data`` of a Secret that a person is to fill in as they are, and variables."""
    data = top.get("data")
    for key, node in data.value if data is not None and data.id == "mapping" else ():
        value = str(node.value) if node.id == "scalar" else ""
        known = (("name", str(key.value)), ("value", value))
        if REFERENCE.fullmatch(value) is not None:
            yield FormFault("secret-data", place(node), "reference", known)
        elif TO_BE_FILLED.fullmatch(value) and not TO_BE_ENCODED.search(value) and not _is_base64(value):
            yield FormFault("secret-data", place(node), "", known)


def _is_base64(value: str) -> bool:
    try:
        b64decode(value, validate=True)
    except ValueError:
        return False
    return True


def _is_a_variable(name: str) -> bool:
    """False for what a shell may run: $(date), $(nproc)."""
    return len(name) >= LEAST and "_" in name and any(letter.isupper() for letter in name)


def _labels(entries: dict[str, Any], place: Place) -> Iterator[FormFault]:
    """Labels of nodes with a value that no node has, in a selector or in an expression."""
    facts = _facts()
    for name, values in facts["labels"].items():
        found = [entries[name]] if name in entries else []
        if str(getattr(entries.get("key"), "value", "")) == name:
            found += items_of(entries.get("values"))
        for node in found:
            value = str(node.value) if node.id == "scalar" else ""
            if value and value not in values and re.search(facts["slips"], value) and not MASKED.search(value):
                right = max(values, key=lambda one: SequenceMatcher(None, one.lower(), value.lower()).ratio())
                known = (("name", name), ("value", value), ("right", right))
                yield FormFault("annotation-value", place(node), "label", known)


def _annotations(entries: dict[str, Any], place: Place) -> Iterator[FormFault]:
    for name, values in _facts()["annotations"].items():
        node = entries.get(name)
        value = str(node.value) if node is not None and node.id == "scalar" else ""
        if value and value not in values and not MASKED.search(value):
            close = [one for one in values if one.lower() == value.lower()] or get_close_matches(value, values, 1, 0.5)
            right = close[0] if close else " or ".join(values)
            yield FormFault("annotation-value", place(node), "", (("name", name), ("value", value), ("right", right)))


def _rules(node: Any, place: Place) -> Iterator[FormFault]:
    """``resources: ["one, two"]``: one name with a comma in it, which matches nothing."""
    for rule in items_of(node):
        for field in ("apiGroups", "resources", "verbs"):
            for one in items_of(fields_of(rule).get(field)):
                text = str(one.value) if one.id == "scalar" else ""
                if "," in text and not MASKED.search(text):
                    parts = ", ".join(f'"{part.strip()}"' for part in text.split(","))
                    yield FormFault("rule-of-a-role", place(one), "", (("value", text), ("right", parts)))
