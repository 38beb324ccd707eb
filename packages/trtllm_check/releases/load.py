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
A word in braces (``{commit}``, ``{nvidia-modelopt}`` of the pins) stands for what the release's own entry in
``releases.yml`` says.
"""

import re
from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

from serving_base.errors import PlaybookError, UsageError
from serving_base.yaml_files import read_yaml
from trtllm_check.releases.release import Release, Tool, Tools

FINAL = 1_000_000  # later than every release candidate
LONGEST_TOOL = 100
ENTRIES = frozenset({"inputs", "outputs", "steps", "notes", "environment"})
RANGE = frozenset({"since", "until"})
WORD = re.compile(r"(?<!\$)\{([\w-]+)\}")  # ${...} is a variable of Triton's templates
NESTED = (str, dict, list)  # what may hold a word or a span
ABSENT: Any = object()
Raw = dict[str, Any]
Checked = TypeVar("Checked", bound=BaseModel)


@cache
def in_range(release: str, since: str = "", until: str = "") -> bool:
    """True if the release lies between ``since`` and ``until``; it need not be one that the data has facts on."""
    position = _position(release)
    return (not since or _position(since) <= position) and (not until or position <= _position(until))


def range_in_words(since: str, until: str) -> str:
    """Such as "0.9.0 to 0.11.0", "from 0.19.0" or "all"."""
    if since and until:
        return since if since == until else f"{since} to {until}"
    if since:
        return f"from {since}"
    return f"to {until}" if until else "all"


@cache
def _position(release: str) -> tuple[int, ...]:
    """Where 1.3.0rc22 or 1.3.0 stands among the releases."""
    numbers, _, candidate = release.partition("rc")
    return (*(int(number) for number in numbers.split(".")), int(candidate) if candidate else FINAL)


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
                fix="fix it, or add it there",
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


DATA_DIR = Path(__file__).parent / "data"


@cache
def known_releases(folder: Path = DATA_DIR) -> tuple[str, ...]:
    """Names of the releases that the data has facts on, oldest first."""
    return tuple(_listed(folder)["releases"])


@cache
def load_release(name: str, folder: Path = DATA_DIR) -> Release:
    """The facts on release ``name``, checked; :class:`UsageError` for one without.

    Other spellings of a name (``v0.12.0``, ``0.12``) and builds with the same tools (``0.18.1``) are taken too.
    """
    names = known_releases(folder)
    name = release_name(name, folder)
    if name not in names:
        raise UsageError(
            f"no facts on TensorRT-LLM release {name!r}",
            why="it is not in the list of releases",
            fix=f"use one of: {', '.join(names)}",
        )
    listed = tuple(_listed(folder)["tools"])
    tools = Tools(listed, lambda tool: load_tool(tool, name, folder) if tool in listed else None)
    facts = {**_facts(name, folder), "release": name, "tools": tools}
    return checked(Release, facts, f"release {name}", folder)


@cache
def load_tool(tool: str, release: str, folder: Path = DATA_DIR) -> Tool | None:
    """The facts on ``tool`` in ``release``; None where its file says of no place that it was read at."""
    facts = _tool_facts(tool, release, folder)
    return checked(Tool, facts, f"{tool} in release {release}", folder / "tools") if facts else None


def container_release(image: str, folder: Path = DATA_DIR) -> str:
    """The first release with this Triton container, "" for none."""
    entries: dict[str, Raw] = _listed(folder)["releases"]
    return next((name for name, entry in entries.items() if image in entry["containers"]["triton"]), "")


@cache
def view(release: str, folder: Path = DATA_DIR) -> View:
    """What spans of releases say of ``release``."""
    entry = _listed(folder)["releases"][release]
    source = entry.get("source", {})
    commit, backend = source.get("commit", ""), source.get("backend_commit", "")
    words = {"release": release, "commit": commit[:8], "backend": backend[:8], "backend_commit": backend}
    said = {word: text for word, text in words.items() if text}
    return View(release, known_releases(folder), {**said, **entry.get("pins", {}), **entry.get("words", {})})


def checked(kind: type[Checked], facts: Raw, what: str, where: Path) -> Checked:
    """``facts`` as a ``kind``. :class:`PlaybookError` where they are not complete or not known."""
    try:
        return kind.model_validate(facts)
    except ValidationError as error:
        raise PlaybookError(
            f"the facts on {what} are not valid", why=str(error), fix=f"fix what it names in {where}"
        ) from error


@cache
def release_name(written: str, folder: Path = DATA_DIR) -> str:
    """The release that ``written`` means: itself, without its v, the only one that begins so, or an alias."""
    names, name = known_releases(folder), written.removeprefix("v")
    if name in names or not name:
        return name
    aliases = read_yaml(folder / "aliases.yml") if (folder / "aliases.yml").is_file() else {}
    if name in aliases:
        return str(aliases[name]["same_as"])
    begins = [one for one in names if one.startswith(f"{name}.")] if re.fullmatch(r"\d+\.\d+", name) else []
    return begins[-1] if begins else name


def _tool_facts(tool: str, release: str, folder: Path) -> Raw:
    """What the tool's file says of the release; nothing where it says of no place that it was read at."""
    path = folder / "tools" / f"{tool}.yml"
    is_there = len(tool) < LONGEST_TOOL and path.is_file()  # what a text calls one may be longer than a file's name
    facts = view(release, folder).of_file(path) if is_there else {}
    read: Raw = facts.pop("read", {})
    return {**facts, **read} if read else {}


def _facts(name: str, folder: Path) -> Raw:
    """What the topics say of the release, and its own entry."""
    seen = view(name, folder)
    facts = {key: value for key, value in _listed(folder)["releases"][name].items() if key != "words"}
    for path in sorted((folder / "topics").glob("*.yml")):
        facts = _joined(seen.of_file(path), facts)
    return facts


def _joined(shared: Raw, own: Raw) -> Raw:
    """Both; of a table in both its lines, of anything else what is ``own``."""
    tables = {
        key: _joined(shared[key], value) for key, value in own.items() if isinstance(value, dict) and key in shared
    }
    return {**shared, **own, **tables}


@cache
def _listed(folder: Path) -> Raw:
    """``releases.yml``: the names of the tools, in the order of the road, and the releases' own facts."""
    content: Raw = read_yaml(folder / "releases.yml")
    return content
