"""What a mapping of YAML holds with what it takes from elsewhere in the text: ``<<: *anchor`` and ConfigMaps."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

MERGE = "<<"
DEEPEST, MOST_DEPTH = 8, 40
REF = "!Ref"
ConfigMaps = Mapping[str, Mapping[str, Any]]
"""The nodes of the values of each ConfigMap."""


def entries_of(node: Any, depth: int = 0) -> dict[str, Any]:
    """The values of a mapping by their keys, those of an anchor that it merges under its own; none of another node."""
    if node is None or node.id != "mapping" or depth > DEEPEST:
        return {}
    merged: dict[str, Any] = {}
    own: dict[str, Any] = {}
    for key, value in node.value:
        if key.id != "scalar":
            continue
        if str(key.value) == MERGE and value.id in ("mapping", "sequence"):
            for one in reversed(value.value) if value.id == "sequence" else [value]:
                merged |= entries_of(one, depth + 1)
        else:
            own[str(key.value)] = value
    return merged | own


def config_maps(documents: Iterable[Any]) -> ConfigMaps:
    """By their names; one that stands twice is none."""
    found: dict[str, dict[str, Any]] = {}
    for node in documents:
        top = entries_of(node)
        if text_of(top.get("kind")) == "ConfigMap" and (name := text_of(entries_of(top.get("metadata")).get("name"))):
            found[name] = {} if name in found else entries_of(top.get("data"))
    return found


def from_maps(maps: ConfigMaps, sources: Any) -> Iterator[tuple[str, Any]]:
    """The variables that ``envFrom`` takes out of the ConfigMaps of the same text."""
    for one in sources.value if maps and sources is not None and sources.id == "sequence" else ():
        entry = entries_of(one)
        prefix = text_of(entry.get("prefix"))
        for name, value in maps.get(text_of(entries_of(entry.get("configMapRef")).get("name")), {}).items():
            yield f"{prefix}{name}", value


def from_key(maps: ConfigMaps, source: Any) -> Any:
    """The value that ``valueFrom`` names of a ConfigMap of the same text; None for any other."""
    wanted = entries_of(entries_of(source).get("configMapKeyRef"))
    return maps.get(text_of(wanted.get("name")), {}).get(text_of(wanted.get("key")))


def fill_parameters(node: Any) -> None:
    """Puts the defaults of CloudFormation's parameters in place of ``!Ref`` to them."""
    top = entries_of(node)
    if "Resources" not in top or "Parameters" not in top:
        return
    parameters = {name: entries_of(one).get("Default") for name, one in entries_of(top["Parameters"]).items()}
    _fill(top["Resources"], {name: one for name, one in parameters.items() if text_of(one)}, 0)


def _fill(node: Any, known: Mapping[str, Any], depth: int) -> None:
    if node.id == "scalar":
        if str(node.tag) == REF and node.value in known:
            node.tag, node.value = known[node.value].tag, known[node.value].value
    elif depth < MOST_DEPTH:
        for one in node.value:
            for inner in one if node.id == "mapping" else (one,):
                _fill(inner, known, depth + 1)


def text_of(node: Any) -> str:
    return str(node.value) if node is not None and node.id == "scalar" else ""


def listed(node: Any) -> list[Any]:
    """The scalars of a list, and one scalar as a list of it."""
    if node is None:
        return []
    if node.id == "sequence":
        return [one for one in node.value if one.id == "scalar"]
    return [node] if node.id == "scalar" else []
