"""Values with their places, alike from Python, YAML and Terraform: what calls of AWS and manifests are made of."""

from collections.abc import Callable, Iterator
from typing import Any, Literal, NamedTuple

from trtllm_check.lint.shell.words import Word

Kind = Literal["text", "number", "switch", "table", "list", "open"]
Place = Callable[[Any], Word]
TEMPLATES = ("${", "{{", "{%", "<%", "xxxxx")  # the last: as the reader of YAML masks them


class Setting(NamedTuple):
    """One value. ``items``: of a table; keys as :func:`key` writes them. ``parts``: of a list.

    ``written``: its own key as it stands in the text; ``open``: from elsewhere, nothing is known of it.
    """

    kind: Kind
    text: str
    place: Word
    items: tuple[tuple[str, "Setting"], ...] = ()
    parts: tuple["Setting", ...] = ()
    written: str = ""

    def get(self, *names: str) -> "Setting | None":
        return next((value for name, value in self.items if name in names), None)

    def at(self, *names: str) -> "Setting | None":
        """The value below these keys, each as it is written."""
        found: Setting | None = self
        for name in names:
            found = next((value for _, value in found.items if value.written == name), None) if found else None
        return found

    def tables(self) -> Iterator["Setting"]:
        """This table and every table in it."""
        if self.kind == "table":
            yield self
        for one in (*(value for _, value in self.items), *self.parts):
            yield from one.tables()


def key(name: str) -> str:
    """``VolumeSizeInGB``, ``volume_size_in_gb`` and ``volumeSizeInGb`` alike."""
    return name.replace("_", "").lower()


def from_yaml(node: Any, place: Place, deepest: int, written: str = "") -> Setting:
    """A node of YAML; what CloudFormation's functions and templates make is open."""
    at = place(node)
    if deepest < 0 or (str(node.tag).startswith("!") and not str(node.tag).startswith("tag:yaml.org")):
        return Setting("open", "", at, written=written)
    if node.id == "mapping":
        entries = {str(name.value): value for name, value in node.value if name.id == "scalar"}
        if any(name == "Ref" or name.startswith("Fn::") for name in entries):
            return Setting("open", "", at, written=written)
        items = tuple((key(name), from_yaml(value, place, deepest - 1, name)) for name, value in entries.items())
        return Setting("table", "", at, items, written=written)
    if node.id == "sequence":
        parts = tuple(from_yaml(one, place, deepest - 1, written) for one in node.value)
        return Setting("list", "", at, parts=parts, written=written)
    return Setting(_kind(node, at), str(node.value), at, written=written)


def _kind(node: Any, at: Word) -> Kind:
    tag = str(node.tag)
    if tag.endswith(":null") or any(mark in text for mark in TEMPLATES for text in (at.text, str(node.value))):
        return "open"
    if tag.endswith((":int", ":float")):
        return "number"
    return "switch" if tag.endswith(":bool") else "text"
