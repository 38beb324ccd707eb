"""A tree of settings against a table of types: fields that nobody reads, values of another kind, fields that lack.

What the tables look like: kubernetes.yml.
"""

import re
from collections.abc import Iterator, Mapping
from difflib import get_close_matches
from functools import cache
from pathlib import Path
from typing import Any, Literal, NamedTuple

from serving_base.yaml_files import read_yaml
from trtllm_check.lint.carriers.settings import Setting

HERE = Path(__file__).parent
PLAIN = ("text", "number", "switch", "amount")
AMOUNT = re.compile(r"[+-]?(?:\d+(?:\.\d*)?|\.\d+)(?:[KMGTPE]i|[mkMGTPEnu]|[eE][+-]?\d+)?")
MASKED = re.compile(r"x{5,}")
TEMPLATE = re.compile(r"\{\{|\$[{(]|^\$[A-Z][A-Z0-9_]*$|^[<(].*[>)]$|^\.\.\.$|^[A-Z]+(?:_[A-Z]+)+$")
NEAR = 0.8
NEARLY = 0.7
WORDS = {"table": "a mapping", "list": "a list", "text": "a text", "number": "a number", "switch": "true or false"}
Form = Literal["unknown", "above", "below", "near", "kind", "list", "choice", "lacking", "amount"]


class Type(NamedTuple):
    """``fields``: kind of the value by name; ``choices``: values by field."""

    fields: Mapping[str, str]
    required: tuple[str, ...]
    choices: Mapping[str, tuple[str, ...]]


class Misfit(NamedTuple):
    """One thing at ``setting``. ``known``: what the words about it want."""

    form: Form
    setting: Setting
    known: tuple[tuple[str, str], ...]


class Schema(NamedTuple):
    """Types by name. ``extension``: what names of fields that are anybody's own look like."""

    types: Mapping[str, Type]
    extension: re.Pattern[str] = re.compile(r"(?!)")

    def problems(self, setting: Setting, kind: str, path: tuple[tuple[str, str], ...] = ()) -> Iterator[Misfit]:
        """Those of one value and of all below it; ``path``: the names and types above, the outermost first."""
        kinds = kind.split(" or ")
        found = [one for one in kinds if self._fits(setting, one)]
        if not found:
            yield from self._unfit(setting, kinds, path)
            return
        one = found[0]
        if setting.kind == "open":
            return
        if one == "amount" and not TEMPLATE.search(setting.text) and not AMOUNT.fullmatch(setting.text):
            yield Misfit("amount", setting, (("field", _path(path)), ("value", setting.text)))
        elif one.endswith("*"):
            for part in setting.parts:
                yield from self.problems(part, one[:-1], path)
        elif one.endswith("{}"):
            for _, value in setting.items:
                yield from self.problems(value, one[:-2], (*path, (value.written, "")))
        elif one in self.types:
            yield from self._table(setting, one, path)

    def _fits(self, setting: Setting, kind: str) -> bool:
        if kind == "any" or setting.kind == "open":
            return True
        if kind.endswith("*"):
            return setting.kind == "list"
        if kind.endswith("{}") or kind in self.types:
            return setting.kind == "table"
        if kind == "amount":
            return setting.kind in ("text", "number")
        return setting.kind == kind or TEMPLATE.search(setting.text) is not None

    def _unfit(self, setting: Setting, kinds: list[str], path: tuple[tuple[str, str], ...]) -> Iterator[Misfit]:
        if setting.kind == "text" and (not setting.text or TEMPLATE.search(setting.place.text)):
            return
        wanted = " or ".join(
            dict.fromkeys(
                WORDS[
                    "list"
                    if one.endswith("*")
                    else "table"
                    if one.endswith("{}") or one in self.types
                    else "text"
                    if one == "amount"
                    else one
                ]
                for one in kinds
            )
        )
        known = (("field", _path(path)), ("value", setting.text or WORDS[setting.kind]), ("wanted", wanted))
        yield Misfit("kind", setting, (*known, ("given", WORDS[setting.kind])))

    def _table(self, table: Setting, name: str, path: tuple[tuple[str, str], ...]) -> Iterator[Misfit]:
        type_ = self.types[name]
        written = {value.written for _, value in table.items}
        for _, value in table.items:
            kind = type_.fields.get(value.written)
            if kind is None:
                yield from self._unknown(value, name, path)
                continue
            choices = type_.choices.get(value.written, ())
            here = (*path, (value.written, name))
            is_other = bool(choices) and value.kind == "text" and value.text not in choices
            if is_other and not _is_filled_in(value.text, choices):
                close = get_close_matches(value.text, choices, 1, 0.5)
                known = (("field", _path(here)), ("value", value.text), ("choices", ", ".join(choices)))
                yield Misfit("choice", value, (*known, ("right", close[0] if close else f"one of {choices}")))
            yield from self.problems(value, kind, here)
        for lacking in type_.required:
            if lacking not in written and table.items and "<<" not in written:
                yield Misfit("lacking", table, (("field", _path(path)), ("name", lacking)))

    def _unknown(self, value: Setting, name: str, path: tuple[tuple[str, str], ...]) -> Iterator[Misfit]:
        field = value.written
        if field == "<<" or MASKED.search(field) or TEMPLATE.search(field) or self.extension.match(field):
            return
        known = (("name", field), ("field", _path((*path, (field, name)))), ("inside", path[-1][0] if path else "it"))
        above = [(one, type_) for one, type_ in reversed(path) if type_ and field in self.types[type_].fields]
        below = [
            one
            for one, kind in self.types[name].fields.items()
            if (inside := self.types.get(kind.removesuffix("*"))) is not None and field in inside.fields
        ]
        close = get_close_matches(field, self.types[name].fields, 1, NEAR)
        if close:
            yield Misfit("near", value, (*known, ("near", close[0])))
        elif above:
            yield Misfit("above", value, (*known, ("beside", above[0][0])))
        elif below:
            yield Misfit("below", value, (*known, ("below", below[0])))
        else:
            yield Misfit("unknown", value, (*known, ("names", ", ".join(sorted(self.types[name].fields)))))


def _is_filled_in(text: str, choices: tuple[str, ...]) -> bool:
    """True for a placeholder; NEARLY_A_CHOICE among choices in capitals is none."""
    capitals = [one for one in choices if TEMPLATE.search(one)]
    return TEMPLATE.search(text) is not None and not get_close_matches(text, capitals, 1, NEARLY)


def _path(path: tuple[tuple[str, str], ...]) -> str:
    return ".".join(name for name, _ in path) or "it"


@cache
def read_table(file: str) -> Mapping[str, Any]:
    """One table as it is written."""
    content: dict[str, Any] = read_yaml(HERE / file)
    return content


@cache
def read_types(file: str, base: str = "") -> Mapping[str, Type]:
    """The types of one table, and of the table ``base`` that it builds on."""
    written: dict[str, Any] = {**(read_table(base)["types"] if base else {}), **read_table(file)["types"]}
    return {name: Type(_all_fields(written, name), *_rest(entry)) for name, entry in written.items()}


def _rest(entry: dict[str, Any]) -> tuple[tuple[str, ...], Mapping[str, tuple[str, ...]]]:
    choices = {name: tuple(str(one) for one in values) for name, values in entry.get("choices", {}).items()}
    return tuple(entry.get("required", ())), choices


def _all_fields(written: dict[str, Any], name: str) -> Mapping[str, str]:
    entry = written[name]
    above = _all_fields(written, entry["like"]) if "like" in entry else {}
    return {**above, **{field: kind for kind, names in entry["fields"].items() for field in str(names).split()}}
