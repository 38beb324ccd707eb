"""What the stages share: a profile's release and folders, and running its commands with what they need in place."""

import shutil
from pathlib import Path

from playbook.lanes.tensorrt_llm.execute import Execution, execute_all
from playbook.profile import Profile
from trtllm_check.recipes import Command, Paths
from trtllm_check.recipes.install import clone
from trtllm_check.releases import Release, load_release


def setting(profile: Profile, root: Path) -> tuple[Release, Paths]:
    """The workspace keeps its path in the container, so what is written there fits outside, too."""
    return load_release(profile.release), Paths.under(str(root), profile.name)


def logs(profile: Profile, root: Path) -> Path:
    return root / profile.name / "logs"


def run(profile: Profile, release: Release, todo: list[Command], paths: Paths, *, writes: Path) -> list[Execution]:
    make_available(profile, release, paths)
    return execute_all(todo, paths, logs(profile, Path(paths.root)), writes=writes)


def make_available(profile: Profile, release: Release, paths: Paths) -> None:
    """Clone what the container lacks, unless an earlier stage did; half a clone is removed first."""
    for command in clone(profile, release, paths):
        folder = Path(command.argv[-1])
        if (folder / ".git" / "index").is_file():  # git writes it last
            continue
        shutil.rmtree(folder, ignore_errors=True)
        execute_all([command], paths, logs(profile, Path(paths.root)), writes=folder)
