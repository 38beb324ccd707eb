"""What takes long to make and no test changes: made by the first worker that asks, for all of them."""

import fcntl
import os
import shutil
from collections.abc import Callable
from pathlib import Path

SHARED = "PLAYBOOK_TESTS_SHARED"
"""The environment variable that names this test run's folder; tests/conftest.py sets it before any worker starts."""


def made_once(name: str, make: Callable[[Path], object]) -> Path:
    """The shared folder ``name``, which is whole when it is there. Only to be read: other tests use it, too."""
    folder = Path(os.environ[SHARED], name)
    with folder.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # the other worker waits, and then finds it
        if not folder.exists():
            aside = folder.with_name(f"making-{name}")
            shutil.rmtree(aside, ignore_errors=True)  # what a maker that failed left
            make(aside)
            aside.rename(folder)
    return folder


def copied(name: str, folder: Path, make: Callable[[Path], object]) -> Path:
    """A copy of the shared folder ``name`` as ``folder``, for who may change it."""
    shutil.copytree(made_once(name, make), folder)
    return folder
