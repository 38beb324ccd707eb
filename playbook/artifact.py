"""Artifacts: a folder with the files that a stage wrote, and a ``manifest.json`` that says how.

A stage writes aside and renames, so a folder that exists is complete. Asking again for the same artifact returns
it at once; asking for one that differs is refused with the reason, because making it again may cost hours of GPU.
"""

import errno
import fcntl
import hashlib
import json
import os
import shutil
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from pydantic import BaseModel, ConfigDict, ValidationError

from serving_base.errors import EnvironmentProblem, ForeignArtifact, MissingArtifact, PlaybookError, StaleArtifact
from serving_base.record import Record

MANIFEST = "manifest.json"
ASIDE = ".making"
REHASH_BELOW_BYTES = 64 * 2**20  # larger files are hashed once; after that their size is checked
HASHING_THREADS = min(32, os.cpu_count() or 1)


class FileRecord(BaseModel):
    model_config = ConfigDict(frozen=True)

    bytes: int
    sha256: str


class Origin(Record):
    """What an artifact was made as: two artifacts with the same origin are interchangeable."""

    kind: str
    made_by: str
    release: str
    gpu_arch: str
    world_size: int
    spec: dict[str, Any]
    inputs: dict[str, str]


class Manifest(Record):
    """The content of ``manifest.json``."""

    origin: Origin
    files: dict[str, FileRecord]
    created: str
    seconds: float

    @property
    def digest(self) -> str:
        """Hash of origin and files: what a later stage records as its input."""
        content = {"origin": self.origin.model_dump(), "files": {k: v.sha256 for k, v in self.files.items()}}
        return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


@dataclass(frozen=True)
class Artifact:
    """A complete folder and its manifest. ``up_to_date`` is true when this run found it and made nothing."""

    path: Path
    manifest: Manifest
    up_to_date: bool = False

    @property
    def kind(self) -> str:
        return self.manifest.origin.kind

    @property
    def spec(self) -> dict[str, Any]:
        return self.manifest.origin.spec

    @property
    def total_bytes(self) -> int:
        return sum(record.bytes for record in self.manifest.files.values())

    def __str__(self) -> str:
        state = "up to date" if self.up_to_date else "made"
        size = f"{self.total_bytes / 1e6:.1f} MB" if self.total_bytes >= 1e5 else f"{self.total_bytes / 1e3:.1f} kB"
        return f"{self.path.name}: {state} · {len(self.manifest.files)} files · {size}"


def make(folder: Path, origin: Origin, write: Callable[[Path], object]) -> Artifact:
    """Return the artifact in ``folder``; if there is none, let ``write`` fill an empty folder and move it there.

    Raises :class:`StaleArtifact` or :class:`ForeignArtifact` when the folder holds something else, and
    :class:`EnvironmentProblem` when the disk is full. Nothing that exists is overwritten.
    """
    with _only_one(folder):
        if folder.exists():
            return _accept(folder, origin)
        aside = folder.parent / ASIDE / folder.name
        shutil.rmtree(aside, ignore_errors=True)  # a killed run's leavings: we hold the lock, so nobody writes there
        aside.mkdir(parents=True)
        started = time.monotonic()
        try:
            write(aside)
            manifest = Manifest(
                origin=origin,
                files=_records(aside),
                created=datetime.now(UTC).isoformat(timespec="seconds"),
                seconds=round(time.monotonic() - started, 2),
            )
            (aside / MANIFEST).write_text(manifest.model_dump_json(indent=2) + "\n", encoding="utf-8")
            aside.rename(folder)
        except BaseException as error:
            shutil.rmtree(aside, ignore_errors=True)
            if isinstance(error, OSError) and error.errno == errno.ENOSPC:
                raise _disk_full(folder) from error
            raise
        return Artifact(folder, manifest)


def require(folder: Path, *, kind: str, release: str, gpu_arch: str, world_size: int | None, made_in: str) -> Artifact:
    """Return the finished artifact in ``folder``, or say what is wrong with it; ``made_in`` names what makes it.

    ``world_size`` None accepts any.
    """
    if not folder.exists():
        raise MissingArtifact(f"there is no {kind} in {folder}", fix=f"run {made_in} first")
    artifact = read(folder)
    found = artifact.manifest.origin
    expected = {"kind": kind, "release": release, "gpu_arch": gpu_arch, "world_size": world_size}
    for name, value in expected.items():
        if value is not None and getattr(found, name) != value:
            raise _foreign(folder, name, getattr(found, name), value)
    _check_files(artifact)
    return artifact


def remove(folder: Path) -> Artifact:
    """Remove the finished artifact in ``folder`` and return what it was. A killed removal leaves no half of it.

    Raises :class:`ForeignArtifact` for what the playbook did not make and for a link, and :class:`PlaybookError`
    while another run is making it.
    """
    if folder.is_symlink():
        raise ForeignArtifact(f"{folder} is a link", why="what it points to may be another's", fix="remove it by hand")
    with _only_one(folder):
        artifact = read(folder)
        aside = folder.parent / ASIDE / folder.name
        shutil.rmtree(aside, ignore_errors=True)
        folder.rename(aside)
        shutil.rmtree(aside)
    return artifact


def _accept(folder: Path, origin: Origin) -> Artifact:
    artifact = read(folder)
    found = artifact.manifest.origin
    for name in ("kind", "made_by", "release", "gpu_arch", "world_size"):
        if getattr(found, name) != getattr(origin, name):
            raise _foreign(folder, name, getattr(found, name), getattr(origin, name))
    changed = [
        f"{key} was {found.spec.get(key)!r} and is now {origin.spec.get(key)!r}"
        for key in {**found.spec, **origin.spec}
        if found.spec.get(key) != origin.spec.get(key)
    ]
    changed += [f"its {name} was made anew" for name in origin.inputs if found.inputs.get(name) != origin.inputs[name]]
    if changed:
        raise StaleArtifact(
            f"the {found.kind} in {folder} is stale",
            why="; ".join(changed),
            fix=f"remove {folder} to make it again, or use another workspace to keep both",
        )
    _check_files(artifact)
    return Artifact(folder, artifact.manifest, up_to_date=True)


def read(folder: Path) -> Artifact:
    """The artifact in ``folder`` by its manifest, its files unchecked; :class:`ForeignArtifact` if it has none."""
    path = folder / MANIFEST
    if not path.is_file():
        raise ForeignArtifact(
            f"{folder} was not made by the playbook",
            why=f"it has no {MANIFEST}",
            fix="move it away or choose another workspace; the playbook does not overwrite it",
        )
    try:
        return Artifact(folder, Manifest.model_validate_json(path.read_text(encoding="utf-8")))
    except ValidationError as error:
        raise ForeignArtifact(
            f"{path} is not a manifest of this playbook",
            why=f"{error.error_count()} fields differ; it may come from another version",
            fix=f"remove {folder} and run its chapter again",
        ) from error


def _check_files(artifact: Artifact) -> None:
    for name, record in artifact.manifest.files.items():
        path = artifact.path / name
        if not path.is_file():
            problem = "is missing"
        elif path.stat().st_size != record.bytes:
            problem = f"has {path.stat().st_size} bytes instead of {record.bytes}"
        elif record.bytes < REHASH_BELOW_BYTES and _sha256(path) != record.sha256:
            problem = "has other content"
        else:
            continue
        raise StaleArtifact(
            f"the {artifact.kind} in {artifact.path} was changed after it was made",
            why=f"{name} {problem}",
            fix=f"remove {artifact.path} and run its chapter again",
        )


def _foreign(folder: Path, name: str, found: object, wanted: object) -> PlaybookError:
    return ForeignArtifact(
        f"{folder} does not fit: its {name} is {found}, this run's is {wanted}",
        why="engines and checkpoints are tied to the release, the GPU architecture and the number of ranks",
        fix=f"go on with {name}={found}, or use another workspace, or remove {folder} and run its chapter again",
    )


def _disk_full(folder: Path) -> PlaybookError:
    free_gb = shutil.disk_usage(folder.parent).free / 1e9
    return EnvironmentProblem(
        f"the disk is full: {folder} was not written",
        why=f"{free_gb:.1f} GB are free under {folder.parent}",
        fix="free space or set another workspace; what was half written has been removed",
    )


def _records(folder: Path) -> dict[str, FileRecord]:
    """Size and hash of every file; several at a time, because a 70B model has 140 GB in dozens of files."""
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    with ThreadPoolExecutor(HASHING_THREADS) as pool:
        digests = list(pool.map(_sha256, files))
    return {
        path.relative_to(folder).as_posix(): FileRecord(bytes=path.stat().st_size, sha256=digest)
        for path, digest in zip(files, digests, strict=True)
    }


def _sha256(path: Path) -> str:
    """SHA-256 of the content; of a large sparse file, of its data and where it lies, so that holes cost no time."""
    status = path.stat()
    with path.open("rb") as file:
        if status.st_size < REHASH_BELOW_BYTES or status.st_blocks * 512 >= status.st_size:
            return hashlib.file_digest(file, "sha256").hexdigest()
        digest = hashlib.sha256(str(status.st_size).encode())
        for start, end in _extents(file.fileno(), status.st_size):
            digest.update(f" {start}-{end} ".encode())
            file.seek(start)
            while file.tell() < end:
                digest.update(file.read(min(2**20, end - file.tell())))
        return digest.hexdigest()


def _extents(descriptor: int, size: int) -> Iterator[tuple[int, int]]:
    """Where a sparse file holds data."""
    end = 0
    while end < size:
        try:
            start = os.lseek(descriptor, end, os.SEEK_DATA)
        except OSError:  # nothing but a hole up to the end
            return
        end = os.lseek(descriptor, start, os.SEEK_HOLE)
        yield start, end


@contextmanager
def _only_one(folder: Path) -> Iterator[None]:
    """Hold the lock of ``folder``; the kernel drops it when the process dies, however it dies."""
    (folder.parent / ASIDE).mkdir(parents=True, exist_ok=True)
    handle = os.open(folder.parent / ASIDE / f"{folder.name}.lock", os.O_CREAT | os.O_RDWR)
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise PlaybookError(
                f"another run is making {folder} right now",
                fix="wait for it to end, or use another workspace",
            ) from error
        yield
    finally:
        os.close(handle)


def input_digests(inputs: Mapping[str, Artifact]) -> dict[str, str]:
    """What a stage records of the artifacts that it read."""
    return {name: artifact.manifest.digest for name, artifact in inputs.items()}


Change = Callable[[Path], object]


def refusal(artifact: Artifact, change: Change | None = None, **run: Any) -> PlaybookError | None:
    """The error of a chapter that opens ``artifact`` after ``change(folder)``, tried on a copy; None when it opens.

    ``run`` is what the chapter's run has otherwise than the artifact: ``release``, ``gpu_arch``, ``world_size``. The
    copy has the artifact's origin and its files below 64 MiB. Its folder is named without the place.
    """
    origin = artifact.manifest.origin
    asked = {name: getattr(origin, name) for name in ("kind", "release", "gpu_arch", "world_size")} | run
    with TemporaryDirectory() as place:
        copy = make(Path(place) / artifact.path.name, origin, lambda folder: _copy_small_files(artifact, folder))
        if change is not None:
            change(copy.path)
        try:
            require(copy.path, **asked, made_in=f"the chapter that makes the {origin.kind}")
        except PlaybookError as error:
            what, why, fix = (text.replace(f"{place}/", "") for text in (error.what, error.why, error.fix))
            return type(error)(what, why=why, fix=fix)
    return None


def _copy_small_files(artifact: Artifact, folder: Path) -> None:
    for name, record in artifact.manifest.files.items():
        if record.bytes < REHASH_BELOW_BYTES:
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(artifact.path / name, folder / name)
