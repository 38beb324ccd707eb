"""Reads ``data/lmi/keys.yml``: the keys and handlers of LMI's front end by version."""

from functools import cache
from pathlib import Path
from typing import NamedTuple

from serving_base.record import Record
from serving_base.yaml_files import read_yaml

TABLE = Path(__file__).parent / "data" / "lmi" / "keys.yml"


class ImageSpan(NamedTuple):
    """From one version to another; ``last`` is empty where the newest has it."""

    first: str
    last: str


class LmiKeys(Record):
    source: str
    versions: str
    keys: dict[str, str]
    handlers: dict[str, str]

    def place(self, version: str) -> int:
        """Of a version among those that were read; -1 for another one."""
        known = self.versions.split()
        return known.index(version) if version in known else -1

    def key(self, name: str) -> ImageSpan | None:
        return _span(self.keys.get(name))

    def handler(self, name: str) -> ImageSpan | None:
        return _span(self.handlers.get(name))

    def is_over(self, span: ImageSpan, version: str) -> bool:
        """True for a version behind the span."""
        return bool(span.last) and self.place(version) > self.place(span.last)

    def is_ahead(self, span: ImageSpan, version: str) -> bool:
        """True for a version in front of the span."""
        return -1 < self.place(version) < self.place(span.first)


def _span(written: str | None) -> ImageSpan | None:
    if written is None:
        return None
    first, _, last = written.partition("..")
    return ImageSpan(first, last)


@cache
def lmi_keys() -> LmiKeys:
    return LmiKeys.model_validate(read_yaml(TABLE))
