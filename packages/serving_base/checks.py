"""One line of a preflight table, and the functions that ask a machine what it has."""

import os
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from subprocess import PIPE, STDOUT
from typing import Literal

from serving_base.processes import users_environment

Verdict = Literal["ok", "missing", "note"]
GIB = 2**30


@dataclass(frozen=True)
class Check:
    """One line of the preflight table. ``missing`` stops the chapter, ``note`` does not."""

    name: str
    found: str
    needed: str
    verdict: Verdict
    fix: str = ""


def verdict(holds: bool) -> Verdict:
    return "ok" if holds else "missing"


def asked(argv: Sequence[str], limit_s: float) -> tuple[int, str]:
    """Exit status and output of a program that only reads; one that hangs or is not there has failed."""
    try:
        done = subprocess.run(
            argv, stdout=PIPE, stderr=STDOUT, text=True, timeout=limit_s, check=False, env=users_environment()
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return 1, str(error)
    return done.returncode, done.stdout


def last_line(output: str) -> str:
    return next((line.strip() for line in reversed(output.splitlines()) if line.strip()), "no output")


def usable_cores() -> int:
    """Cores that this process may use: fewer than the machine has in a container."""
    return len(os.sched_getaffinity(0))


def existing(path: Path) -> Path:
    return next(folder for folder in (path, *path.parents) if folder.exists())
