"""The checker as a shell sees it: ``playbook check`` run in a folder, with its exit status and what it wrote."""

import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from course_exercises.checking import COLLEAGUE
from serving_base.processes import merged_environment, shell_line
from trtllm_check.releases import known_releases

__all__ = ["COLLEAGUE", "CheckAnswer", "ask", "known_releases"]

SECONDS = 120


@dataclass(frozen=True)
class CheckAnswer:
    """``command`` as one would type it; ``said`` is standard output, ``remarks`` standard error."""

    command: str
    status: int
    said: str
    remarks: str

    @property
    def last_line(self) -> str:
        """The line that counts the findings and names the release."""
        return next(iter(reversed(self.said.strip().splitlines())), "")


def ask(folder: Path, *words: str) -> CheckAnswer:
    """Run ``playbook check`` with ``words`` in ``folder``, as a process of its own; statuses are not judged here."""
    argv = [sys.executable, "-m", "playbook", "check", *words]
    env = merged_environment({"NO_COLOR": "1", "COLUMNS": "120", "PYTHONPATH": _import_path()})
    done = subprocess.run(argv, cwd=folder, env=env, capture_output=True, text=True, timeout=SECONDS, check=False)
    return CheckAnswer(shell_line(["playbook", "check", *words]), done.returncode, done.stdout, done.stderr)


def _import_path() -> str:
    """Where this process imports from: the other one starts in another folder."""
    return os.pathsep.join(path for path in sys.path if path)
