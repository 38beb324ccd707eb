"""What the page is made of: archives that npm and pip fetch once, in exact versions whose sums are in archives.yml."""

from __future__ import annotations

import shutil
import subprocess
import sys
import tarfile
from collections.abc import Sequence
from functools import cache
from hashlib import sha256
from importlib import metadata
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Literal

from serving_base.errors import EnvironmentProblem
from serving_base.record import Record
from serving_base.yaml_files import read_yaml

LIST = Path(__file__).with_name("archives.yml")
SECONDS = 300
ERRORS = ("npm err", "error")
"""How a line begins in which npm or pip says what went wrong."""
PACKAGE = "package/"
"""Where npm's archives have their files."""


class NotFetched(EnvironmentProblem):
    """An archive that is not there, and that cannot be fetched now."""


class Archive(Record):
    """One archive. ``members``: the files of it that the page carries; none: the archive itself."""

    name: str
    version: str
    registry: Literal["npm", "pypi"]
    file: str
    sha256: str
    licence: str
    source: str
    members: tuple[str, ...]


class Python(Record):
    """What pip calls the Python of the page."""

    version: str
    abi: str
    platform: str


class Archives(Record):
    """All of archives.yml. ``lock_info``: what Pyodide is told of itself."""

    python: Python
    lock_info: dict[str, str]
    archives: tuple[Archive, ...]


@cache
def listed() -> Archives:
    """What the page is made of."""
    content: Any = read_yaml(LIST)
    return Archives.model_validate(content)


def carried(folder: Path, known: Archives) -> dict[str, bytes]:
    """The files of the archives that the page carries, by name; ``folder`` keeps what was fetched.

    :class:`NotFetched`, or :class:`EnvironmentProblem` for an archive that is not what it was or not of our pydantic.
    """
    files: dict[str, bytes] = {}
    for archive in known.archives:
        _refuse_another_version(archive)
        path = folder / archive.file
        if not path.is_file():
            _fetch(archive, known.python, folder)
        _refuse_other_content(archive, path)
        files |= _members(archive, path)
    return files


def fetch_command(archive: Archive, python: Python, folder: Path) -> list[str]:
    """What fetches ``archive`` into ``folder``, by the registry's own client."""
    if archive.registry == "npm":
        options = ["--loglevel", "error", "--fetch-retries", "1", "--pack-destination", str(folder)]
        return ["npm", "pack", f"{archive.name}@{archive.version}", *options]
    where = ["--python-version", python.version, "--abi", python.abi, "--platform", python.platform]
    options = ["--only-binary", ":all:", "--no-deps", "--quiet", "--disable-pip-version-check", *where]
    return [sys.executable, "-m", "pip", "download", *options, "-d", str(folder), f"{archive.name}=={archive.version}"]


def _fetch(archive: Archive, python: Python, folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory(dir=folder) as half:  # what is interrupted leaves nothing under the archive's name
        argv = fetch_command(archive, python, Path(half))
        refusal = _refusal(argv)
        got = Path(half, archive.file)
        if refusal or not got.is_file():
            raise NotFetched(
                f"{archive.file} was not fetched",
                why=refusal or f"{argv[0]} wrote another file",
                fix=f"with Node.js and a network, run the command again, or put the file into {folder} yourself",
            )
        got.rename(folder / archive.file)


def _refusal(argv: Sequence[str]) -> str:
    """Run a registry's client; why it does not do as told, "" if it does."""
    if shutil.which(argv[0]) is None:
        return f"{argv[0]} is not installed"
    try:
        done = subprocess.run(argv, capture_output=True, text=True, check=False, timeout=SECONDS)
    except subprocess.TimeoutExpired:
        return f"{argv[0]} had no answer for {SECONDS} s"
    if not done.returncode:
        return ""
    said = [line.strip() for line in (done.stderr or done.stdout).splitlines() if line.strip()]
    return next((line for line in said if line.lower().startswith(ERRORS)), f"{argv[0]} ended with {done.returncode}")


def _refuse_other_content(archive: Archive, path: Path) -> None:
    got = sha256(path.read_bytes()).hexdigest()
    if got != archive.sha256:
        raise EnvironmentProblem(
            f"{path} is not the {archive.name} {archive.version} that the page was tested with",
            why=f"its SHA-256 is {got}, and {LIST.name} says {archive.sha256}",
            fix=f"remove the file and run the command again; for a new version change {LIST.name}",
        )


def _refuse_another_version(archive: Archive) -> None:
    """A compiled half has to be that of the Python half, which is this environment's."""
    if archive.registry == "npm":
        return
    installed = metadata.version(archive.name)
    if installed != archive.version:
        raise EnvironmentProblem(
            f"this environment has {archive.name} {installed}, and the page {archive.version}",
            why="both halves of pydantic have to be of one version",
            fix=f"make setup, or change {LIST.name} to {installed}",
        )


def _members(archive: Archive, path: Path) -> dict[str, bytes]:
    if not archive.members:
        return {path.name: path.read_bytes()}
    with tarfile.open(path) as package:
        return {name: package.extractfile(f"{PACKAGE}{name}").read() for name in archive.members}  # type: ignore[union-attr]
