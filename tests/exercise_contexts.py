"""What a chapter passes to an exercise where only the course itself can make it: by the exercise's number."""

from collections.abc import Callable, Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from course_exercises.checking import STATUSES
from playbook import choices
from playbook.artifact import Origin, make, refusal
from playbook.case import service_case
from serving_base.errors import PlaybookError


def refused_model(change: Callable[[Path], object]) -> PlaybookError | None:
    """What is said of a model's folder after ``change``: chapter 01 asks it of the model that it prepared."""

    def write(folder: Path) -> None:
        (folder / "config.json").write_text('{"rope_theta": 500000.0}\n', encoding="utf-8")

    origin = Origin(kind="model", made_by="a test", release="0.12.0", gpu_arch="any", world_size=1, spec={}, inputs={})
    with TemporaryDirectory() as place:
        return refusal(make(Path(place) / "model", origin, write), change)


CONTEXTS: Mapping[str, Mapping[str, Any]] = {
    "01-2": {"refused": refused_model},
    "08-1": {"case": service_case()},
    "17-2": {"case": service_case()},
    "18-2": {"statuses": STATUSES},
    "10-1": {"recommend": choices.recommend},
    "10-3": {"endpoint": choices.RunningEndpoint, "account": choices.Account},
}
