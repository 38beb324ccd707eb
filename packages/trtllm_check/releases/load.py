"""Reads the releases: each is a view of the data.

``data/releases.yml`` lists them, oldest first, with what is their own; ``data/tools`` (a file a tool) and
``data/topics`` hold what they share, in spans (:mod:`trtllm_check.releases.spans`). A further release is an entry of
the list, the place where each tool was read in it, and a line for each fact that differs from the release before it.
"""

import re
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

from serving_base.errors import PlaybookError, UsageError
from serving_base.yaml_files import read_yaml
from trtllm_check.releases.release import Release, Tool, Tools
from trtllm_check.releases.spans import View

DATA_DIR = Path(__file__).parent / "data"
Raw = dict[str, Any]


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
    return View(release, known_releases(folder), {**said, **entry.get("words", {})})


Checked = TypeVar("Checked", bound=BaseModel)


def checked(kind: type[Checked], facts: Raw, what: str, where: Path) -> Checked:
    """``facts`` as a ``kind``. :class:`PlaybookError` where they are not complete or not known."""
    try:
        return kind.model_validate(facts)
    except ValidationError as error:
        raise PlaybookError(
            f"the facts on {what} are not valid", why=str(error), fix=f"mend what it names in {where}"
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
    facts = view(release, folder).of_file(path) if path.is_file() else {}
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
