"""Facts that hold for a range of releases, and the view that one release has of them.

In a file of facts a value stands for every release, or is a list of *spans*, oldest first::

    --max_output_len:
      - {until: 0.10.0, type: int, default: 1024}
      - {until: 0.11.0, type: int}
    python:
      - {until: 0.15.0, is: 3.10.12}
      - {until: 1.2.1, is: 3.12.3}
      - '3.12'

``since`` and ``until`` name releases and are included. A span without ``since`` begins where the one before it ended;
one without ``until`` holds for every later release. ``is`` holds what is not a mapping. A value that does not hold for
a release is absent there. The entries of the lists in ``ENTRIES`` come and go one by one, by a range of their own.
A word in braces (``{commit}``) stands for what the release's own entry in ``releases.yml`` says.
"""

import re
from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path
from typing import Any

from serving_base.errors import PlaybookError
from serving_base.yaml_files import read_yaml

ENTRIES = frozenset({"inputs", "outputs", "steps", "notes", "environment"})
RANGE = frozenset({"since", "until"})
WORD = re.compile(r"(?<!\$)\{(\w+)\}")  # ${...} is a variable of Triton's templates
NESTED = (str, dict, list)  # what may hold a word or a span
ABSENT: Any = object()


class View:
    """What holds for one release. ``order``: all releases, oldest first; ``words``: what ``{word}`` stands for."""

    def __init__(self, release: str, order: Iterable[str], words: Mapping[str, str]) -> None:
        self.release = release
        self.positions = {name: position for position, name in enumerate(order)}
        self.position = self.positions[release]
        self.words = words

    def of_file(self, path: Path) -> Any:
        """The file's facts for this release. :class:`PlaybookError` for a release or a word that is not known."""
        try:
            return self.of(_content(path))
        except KeyError as error:
            raise PlaybookError(
                f"{path} names {error}, which is not known for release {self.release}",
                why="since and until name releases, {words} what the release's own entry says: both in releases.yml",
                fix="mend it, or add it there",
            ) from error

    def of(self, node: Any, key: str = "") -> Any:
        """``node`` as it is for this release, ``ABSENT`` where it does not hold. ``key``: what it is the value of."""
        if isinstance(node, str):
            return self._filled(node) if "{" in node else node
        if isinstance(node, dict):
            return self._of_mapping(node)
        return self._of_list(node, key) if isinstance(node, list) else node

    def _of_mapping(self, node: dict[str, Any]) -> Any:
        if not self._holds(node):
            return ABSENT
        if "is" in node:
            return self.of(node["is"])
        return {
            key: found
            for key, value in node.items()
            if key not in RANGE and (found := self.of(value, key) if isinstance(value, NESTED) else value) is not ABSENT
        }

    def _of_list(self, node: list[Any], key: str) -> Any:
        if key not in ENTRIES and _is_ranged(node):
            return self.of(next((span for span in node if not self._has_ended(span)), ABSENT))
        return [found for entry in node if (found := self.of(entry)) is not ABSENT]

    def _holds(self, node: dict[str, Any]) -> bool:
        begun = "since" not in node or self.positions[node["since"]] <= self.position
        return begun and not self._has_ended(node)

    def _has_ended(self, node: Any) -> bool:
        return isinstance(node, dict) and "until" in node and self.positions[node["until"]] < self.position

    def _filled(self, text: str) -> str:
        return WORD.sub(lambda found: self.words[found[1]], text)


def _is_ranged(node: list[Any]) -> bool:
    """True for a list of spans: its first one has a range."""
    return bool(node) and isinstance(node[0], dict) and not RANGE.isdisjoint(node[0])


@cache
def _content(path: Path) -> Any:
    return read_yaml(path)
