"""How long a chapter took when its stored outputs were recorded, as data."""

from pathlib import Path
from typing import Any

from serving_base.yaml_files import read_yaml

RECORDED_FILE = Path(__file__).parent / "data" / "recorded.yml"


def recorded_runs(path: Path = RECORDED_FILE) -> dict[str, dict[str, Any]]:
    """Seconds, cores and date of each chapter's recorded run, by lane and the chapter's number."""
    runs: dict[str, dict[str, Any]] = (read_yaml(path) if path.is_file() else None) or {}
    return runs


def recorded_time(lane: str, chapter: str) -> str:
    """The time of a chapter in words; a lane on which nothing was recorded has none, and that is what it says."""
    run = recorded_runs().get(lane, {}).get(chapter)
    if run is None:
        return "not measured yet on this lane"
    return f"{run['seconds']} s when it was recorded ({run['date']}, {run['cores']} cores)"
