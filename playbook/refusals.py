"""What the course says when an artifact does not fit: tried on a small copy, so that nothing of a run is touched."""

import shutil
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from playbook.artifact import REHASH_BELOW_BYTES, Artifact, make, require
from serving_base.errors import PlaybookError

Change = Callable[[Path], object]


def refusal(artifact: Artifact, change: Change | None = None, **run: Any) -> PlaybookError | None:
    """The error of a chapter that opens ``artifact`` after ``change(folder)``; None when it opens.

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
