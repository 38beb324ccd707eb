"""Makes plain `pytest --nbval notebooks/` judge the course as CI does: a fresh workspace, the same environment.

The kernels of several notebooks are forks of one process (`tests/warm_kernels.py`).
"""

import os
import shutil
import tempfile
from pathlib import Path
from typing import Any

import pytest

NBVAL_DEFAULT_CELL_TIMEOUT_S = 2000
CELL_TIMEOUT_S = 300
STORED_LANE = "embedded"  # whose outputs the notebooks hold
scratch = pytest.StashKey[Path]()
warm = pytest.StashKey[Any]()


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


def pytest_collection_finish(session: pytest.Session) -> None:
    paths = {item.path for item in session.items}
    if scratch not in session.config.stash or session.config.option.collectonly or len(paths) < 2:
        return
    from playbook.course.notebooks import chapters
    from warm_kernels import warm_kernels

    imports = {name for chapter in chapters() if chapter.path in paths for name in chapter.imports}
    session.config.stash[warm] = warm_kernels(sorted(imports))


def pytest_unconfigure(config: pytest.Config) -> None:
    if source := config.stash.get(warm, None):
        source.close()
    if folder := config.stash.get(scratch, None):
        shutil.rmtree(folder)
