"""Whose work the page carries, under which licence: shown in the page, as those licences ask."""

from __future__ import annotations

import tarfile
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path
from typing import NamedTuple

from check_page.archives import PACKAGE, Archive, Archives
from check_page.python_files import LIBRARIES, SINGLE_FILES

OURS = "llama3-fp8-playbook"
TEXTS = ("license", "licence", "copying", "notice")
"""How the files begin that hold a licence."""


class Notice(NamedTuple):
    """One work. ``text``: its licence, "" where its archive has none and ``source`` leads to it."""

    name: str
    version: str
    licence: str
    source: str
    text: str


def notices(folder: Path, known: Archives) -> list[Notice]:
    """All that the page carries; ``folder`` has the archives."""
    of_npm = [_of_archive(one, folder / one.file) for one in known.archives if one.registry == "npm"]
    wheels = [one.name for one in known.archives if one.registry == "pypi"]
    ours = _installed(OURS)._replace(source="the project that this page was built in")
    return [ours, *map(_installed, (*LIBRARIES, *SINGLE_FILES, *wheels)), *of_npm]


def _installed(name: str) -> Notice:
    found = metadata.distribution(name)
    described = found.metadata.json  # a name that is not there is no error here
    licence = str(described.get("license_expression") or described.get("license") or "")
    return Notice(name, found.version, licence, f"https://pypi.org/project/{name}/", "\n\n".join(_texts(found)))


def _texts(found: metadata.Distribution) -> Iterator[str]:
    for file in found.files or ():
        if file.name.lower().startswith(TEXTS):
            yield Path(str(file.locate())).read_text(encoding="utf-8").strip()


def _of_archive(archive: Archive, path: Path) -> Notice:
    with tarfile.open(path) as package:
        names = [name for name in package.getnames() if name.removeprefix(PACKAGE).lower().startswith(TEXTS)]
        texts = [file.read().decode().strip() for name in names if (file := package.extractfile(name))]
    return Notice(archive.name, archive.version, archive.licence, archive.source, "\n\n".join(texts))
