"""What a chapter says of an artifact that does not fit, tried on a copy."""

from pathlib import Path
from typing import Any

import pytest

from playbook.artifact import REHASH_BELOW_BYTES, Artifact, FileRecord, Origin, make, refusal
from serving_base.errors import ForeignArtifact, MissingArtifact, StaleArtifact


@pytest.fixture
def artifact(tmp_path: Path) -> Artifact:
    def write(folder: Path) -> None:
        (folder / "tokenizer").mkdir()
        (folder / "tokenizer" / "tokenizer.json").write_text("{}")
        (folder / "config.json").write_text("theta 500000")

    origin = Origin(kind="model", made_by="test", release="0.12.0", gpu_arch="sm90", world_size=1, spec={}, inputs={})
    return make(tmp_path / "model", origin, write)


def test_an_artifact_as_it_was_made_opens(artifact: Artifact) -> None:
    assert refusal(artifact) is None


def test_another_run_is_told_what_differs_and_what_to_do(artifact: Artifact) -> None:
    others: dict[str, Any] = {"release": "1.2.1", "gpu_arch": "sm89", "world_size": 8}
    for name, value in others.items():
        error = refusal(artifact, **{name: value})
        assert isinstance(error, ForeignArtifact)
        assert error.what.startswith(f"model does not fit: its {name} is ")
        assert f"{name}=" in error.fix


def test_a_change_of_the_same_length_is_seen_and_the_artifact_itself_is_left_alone(artifact: Artifact) -> None:
    error = refusal(artifact, lambda folder: (folder / "config.json").write_text("theta 100000"))
    assert isinstance(error, StaleArtifact)
    assert error.why == "config.json has other content"
    assert "/" not in str(error.what)
    assert (artifact.path / "config.json").read_text() == "theta 500000"


def test_a_folder_that_is_gone_is_missing(artifact: Artifact) -> None:
    error = refusal(artifact, lambda folder: folder.rename(folder.with_name("elsewhere")))
    assert isinstance(error, MissingArtifact)


def test_large_files_are_not_copied(artifact: Artifact) -> None:
    """A 70B model has 141 GB: its files are not there to be copied, and the rest still opens."""
    large = {"model.safetensors": FileRecord(bytes=REHASH_BELOW_BYTES, sha256="")}
    files = {**artifact.manifest.files, **large}
    assert refusal(Artifact(artifact.path, artifact.manifest.model_copy(update={"files": files}))) is None
