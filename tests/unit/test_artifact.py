import errno
import hashlib
import json
import multiprocessing
import os
import signal
import time
from pathlib import Path
from typing import Any

import pytest

from playbook.artifact import ASIDE, MANIFEST, Artifact, Origin, _records, make, require
from serving_base.errors import EnvironmentProblem, ForeignArtifact, MissingArtifact, PlaybookError, StaleArtifact


def origin(**changes: Any) -> Origin:
    values: dict[str, Any] = {
        "kind": "engine",
        "made_by": "embedded.build",
        "release": "0.12.0",
        "gpu_arch": "cpu",
        "world_size": 1,
        "spec": {"max_batch_size": 4},
        "inputs": {"checkpoint": "abc"},
    }
    return Origin(**{**values, **changes})


def write_engine(out: Path) -> None:
    (out / "sub").mkdir()
    (out / "sub" / "engine.bin").write_bytes(b"engine")
    (out / "config.json").write_text("{}")


def find(folder: Path, **changes: Any) -> Artifact:
    wanted: dict[str, Any] = {"kind": "engine", "release": "0.12.0", "gpu_arch": "cpu", "world_size": 1}
    return require(folder, **{**wanted, **changes}, made_in="chapter 03")


def test_make_then_up_to_date(tmp_path: Path) -> None:
    folder = tmp_path / "engine"
    first = make(folder, origin(), write_engine)
    second = make(folder, origin(), lambda out: pytest.fail("made twice"))
    assert (first.up_to_date, second.up_to_date) == (False, True)
    assert set(first.manifest.files) == {"config.json", "sub/engine.bin"}
    assert find(folder).manifest.digest == first.manifest.digest
    assert not list((tmp_path / ASIDE).glob("engine/*"))


@pytest.mark.parametrize(
    ("changes", "error", "words"),
    [
        ({"spec": {"max_batch_size": 8}}, StaleArtifact, "max_batch_size was 4 and is now 8"),
        ({"inputs": {"checkpoint": "xyz"}}, StaleArtifact, "its checkpoint was made anew"),
        ({"release": "1.2.1"}, ForeignArtifact, "its release is 0.12.0, this run's is 1.2.1"),
        ({"gpu_arch": "sm90"}, ForeignArtifact, "its gpu_arch is cpu"),
        ({"world_size": 8}, ForeignArtifact, "its world_size is 1"),
        ({"made_by": "tensorrt_llm.build"}, ForeignArtifact, "its made_by is embedded.build"),
    ],
)
def test_what_does_not_fit_is_refused_and_kept(
    tmp_path: Path, changes: dict[str, Any], error: type[PlaybookError], words: str
) -> None:
    folder = tmp_path / "engine"
    digest = make(folder, origin(), write_engine).manifest.digest
    with pytest.raises(error, match=words) as caught:
        make(folder, origin(**changes), lambda out: pytest.fail("overwrote"))
    assert str(folder) in caught.value.fix
    assert find(folder).manifest.digest == digest


@pytest.mark.parametrize("changes", [{"release": "1.2.1"}, {"gpu_arch": "sm90"}, {"world_size": 2}, {"kind": "model"}])
def test_require_refuses_a_foreign_artifact(tmp_path: Path, changes: dict[str, Any]) -> None:
    make(tmp_path / "engine", origin(), write_engine)
    with pytest.raises(ForeignArtifact, match=next(iter(changes))):
        find(tmp_path / "engine", **changes)


def test_require_names_the_chapter_of_a_missing_artifact(tmp_path: Path) -> None:
    with pytest.raises(MissingArtifact, match="run chapter 03 first"):
        find(tmp_path / "engine")


@pytest.mark.parametrize(
    ("damage", "words"),
    [
        (lambda f: (f / "config.json").unlink(), "config.json is missing"),
        (lambda f: (f / "config.json").write_text("{} "), "has 3 bytes instead of 2"),
        (lambda f: (f / "sub" / "engine.bin").write_bytes(b"enginE"), "has other content"),
    ],
)
def test_changed_files_are_noticed(tmp_path: Path, damage: Any, words: str) -> None:
    make(tmp_path / "engine", origin(), write_engine)
    damage(tmp_path / "engine")
    with pytest.raises(StaleArtifact, match=words):
        find(tmp_path / "engine")


def test_a_folder_without_or_with_a_wrong_manifest_is_foreign(tmp_path: Path) -> None:
    folder = tmp_path / "engine"
    folder.mkdir()
    with pytest.raises(ForeignArtifact, match="was not made by the playbook"):
        make(folder, origin(), write_engine)
    (folder / MANIFEST).write_text(json.dumps({"kind": "engine"}))
    with pytest.raises(ForeignArtifact, match="not a manifest of this playbook"):
        find(folder)


def test_a_failed_write_leaves_nothing(tmp_path: Path) -> None:
    def fail(out: Path) -> None:
        write_engine(out)
        raise ValueError("boom")

    with pytest.raises(ValueError, match="boom"):
        make(tmp_path / "engine", origin(), fail)
    assert not (tmp_path / "engine").exists() and not (tmp_path / ASIDE / "engine").exists()


def test_a_full_disk_is_named(tmp_path: Path) -> None:
    def full(out: Path) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with pytest.raises(EnvironmentProblem, match="the disk is full") as caught:
        make(tmp_path / "engine", origin(), full)
    assert caught.value.exit_code == 3


def _slow_writer(folder: Path, started: Path) -> None:
    def write(out: Path) -> None:
        (out / "half").write_text("half")
        started.touch()
        time.sleep(60)

    make(folder, origin(), write)


def test_sigkill_in_mid_write_looks_unfinished_and_the_next_run_goes_on(tmp_path: Path) -> None:
    folder, started = tmp_path / "engine", tmp_path / "started"
    writer = multiprocessing.get_context("spawn").Process(target=_slow_writer, args=(folder, started))
    writer.start()
    deadline = time.monotonic() + 30
    while not started.exists() and time.monotonic() < deadline:
        time.sleep(0.02)
    with pytest.raises(PlaybookError, match="another run is making"):
        make(folder, origin(), write_engine)
    assert writer.pid
    os.kill(writer.pid, signal.SIGKILL)
    writer.join(10)
    assert not folder.exists()
    assert set(make(folder, origin(), write_engine).manifest.files) == {"config.json", "sub/engine.bin"}


def test_a_large_file_is_hashed_whole_and_a_sparse_one_by_its_data(tmp_path: Path) -> None:
    """One byte in the middle of a large file changes its digest; a hole of a hundred gigabytes takes no time."""
    size = 65 * 2**20
    whole, other, sparse, moved, empty = (tmp_path / name for name in ("whole", "other", "sparse", "moved", "empty"))
    whole.write_bytes(b"a" * size)
    other.write_bytes(b"a" * (size // 2) + b"b" + b"a" * (size - size // 2 - 1))
    for path, place in ((sparse, 2**30), (moved, 2**31), (empty, None)):
        with path.open("wb") as file:
            file.truncate(100 * 2**30)
            if place is not None:
                file.seek(place)
                file.write(b"weights")
    records = _records(tmp_path)
    assert records["whole"].sha256 == hashlib.sha256(b"a" * size).hexdigest()
    assert len({record.sha256 for record in records.values()}) == 5
