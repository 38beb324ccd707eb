"""From what a user asked for to what the runner runs: chapters, profile, parameters and folders, all checked."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from playbook.course.notebooks import Chapter, chapter, chapters, parse_assignments, project_root, values_per_chapter
from playbook.course.runner import Limits, RunSpec
from playbook.lanes.base import lane_of
from playbook.profile import Profile, load_profile
from playbook.stages import workspace_root
from serving_base.checks import usable_cores
from serving_base.errors import UsageError
from trtllm_check.releases import load_release


def choose(names: Sequence[str], start: str = "") -> list[Chapter]:
    """The named chapters, or all, in the course's order and from `start` on. Raises UsageError for a bad name."""
    known = chapters()
    chosen = {chapter(name, known) for name in names} if names else set(known)
    first = chapter(start, known).number if start else ""
    found = [item for item in known if item in chosen and item.number >= first]
    if not found:
        raise UsageError(
            "no chapter is left to run",
            why=f"none of those chosen comes at or after {start}" if start else "notebooks/ holds none",
            fix="see: playbook chapters",
        )
    return found


def given_values(assignments: Sequence[str], *, profile: str, release: str, workspace: Path | None) -> dict[str, str]:
    """`-p` values and the options of the same names as one dictionary. Raises UsageError if both give one."""
    given = parse_assignments(assignments)
    options = {"profile": profile, "release": release, "workspace": str(workspace) if workspace else ""}
    for name, value in options.items():
        if value and name in given:
            raise UsageError(f"{name} is given as --{name} and as -p {name}=", fix="give it once")
        if value:
            given[name] = value
    if given.get("profile", "").endswith((".yml", ".yaml")):
        # Kernels run in another directory.
        given["profile"] = str(Path(given["profile"]).expanduser().absolute())
    return given


def workspace_folder(given: str = "") -> Path:
    """The absolute folder of the artifacts: as given, else $PLAYBOOK_WORKSPACE, else ./workspace of the checkout."""
    return workspace_root(given, project_root())


def output_folder(out: Path) -> Path:
    """The folder that `--out` names, made if need be. Raises UsageError if it holds other things than a run."""
    out = out.expanduser().absolute()
    if out.exists() and not out.is_dir():
        raise UsageError(f"{out} is not a folder", fix="give another --out")
    ours = any((out / name).exists() for name in ("run.json", "results.json"))
    if out.exists() and any(out.iterdir()) and not ours:
        raise UsageError(f"{out} holds other files", why="a run would mix with them", fix="give a new folder to --out")
    out.mkdir(parents=True, exist_ok=True)
    return out


def make_spec(
    chosen: Sequence[Chapter],
    given: dict[str, str],
    *,
    folder: Path,
    keep_going: bool = False,
    cell_timeout_s: int | None = None,
    chapter_timeout_s: int | None = None,
    jobs: int | None = None,
) -> tuple[RunSpec, Profile]:
    """Check everything that can be checked before anything starts; returns what to run and its profile.

    The workspace reaches the kernels through their environment, so that it is not written into the notebooks.
    """
    values: dict[str, dict[str, Any]] = values_per_chapter(chosen, given)
    for chapter_values in values.values():
        chapter_values.pop("workspace", None)
    profile = load_profile(given.get("profile", "local"), given.get("release", ""))
    load_release(profile.release)
    lane = lane_of(profile.lane)
    spec = RunSpec(
        chapters=chosen,
        parameters=values,
        lane=profile.lane,
        workspace=workspace_folder(given.get("workspace", "")),
        folder=folder.absolute(),
        limits=Limits(cell_timeout_s or lane.CELL_LIMIT_S, chapter_timeout_s or lane.CHAPTER_LIMIT_S),
        keep_going=keep_going,
        jobs=side_by_side(jobs, profile),
    )
    return spec, profile


def side_by_side(wanted: int | None, profile: Profile) -> int:
    """Chapters to run at once: as many as there are cores, and the lane allows; UsageError for more than it allows."""
    allowed = lane_of(profile.lane).AT_ONCE
    if wanted is not None and wanted > allowed:
        raise UsageError(
            f"--jobs {wanted} is too many for profile {profile.name}",
            why=f"at most {allowed} of its chapters fit on one machine side by side",
            fix=f"give --jobs {allowed}, or none",
        )
    return wanted or min(allowed, usable_cores())
