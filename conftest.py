"""Makes plain `pytest --nbval notebooks/` judge the course as CI does: a fresh workspace, the same environment."""

import os
import shutil
import tempfile
from pathlib import Path

import pytest

NBVAL_DEFAULT_CELL_TIMEOUT_S = 2000
CELL_TIMEOUT_S = 300
STORED_LANE = "embedded"  # whose outputs the notebooks hold
scratch = pytest.StashKey[Path]()


def pytest_configure(config: pytest.Config) -> None:
    option = config.option
    if not (getattr(option, "nbval", False) or getattr(option, "nbval_lax", False)):
        return
    from playbook.course.kernel_env import kernel_environment
    from playbook.lanes.base import lane_of

    folder = Path(tempfile.mkdtemp(prefix="playbook-nbval-"))
    config.stash[scratch] = folder
    workspace = Path(os.environ.get("PLAYBOOK_WORKSPACE") or folder / "workspace")
    os.environ.update(kernel_environment(workspace=workspace, scratch=folder))
    os.environ.update(lane_of(STORED_LANE).KERNEL_ENVIRONMENT)
    option.nbval_sanitize_with = option.nbval_sanitize_with or str(config.rootpath / "tests" / "nbval_sanitize.cfg")
    option.nbval_current_env = option.nbval_current_env or not option.nbval_kernel_name
    # nbval learns of a dead kernel only by this limit.
    if option.nbval_cell_timeout == NBVAL_DEFAULT_CELL_TIMEOUT_S:
        option.nbval_cell_timeout = CELL_TIMEOUT_S


def pytest_unconfigure(config: pytest.Config) -> None:
    if folder := config.stash.get(scratch, None):
        shutil.rmtree(folder)
