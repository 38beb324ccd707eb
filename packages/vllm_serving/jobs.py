"""Work in vLLM's own Python, which has CUDA's PyTorch where the course's has a CPU build: a module, a job, a result."""

import json
import tempfile
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from serving_base.processes import stream_command, users_environment

CARRIED = ("ptq", "serving_base", "vllm_serving")
"""Our packages that a job may import there: these alone, as the course's whole environment would bring its torch."""


SAID = "job: "
"""Before a line that a job says to its reader."""


def run_job(python: Path, module: str, job: Mapping[str, Any], *, log_path: Path, **env: str | None) -> Any:
    """``python -m module JOB.json RESULT.json``, its output shown and kept in ``log_path``; returns the result.

    ``env``: additions to its environment. Raises :class:`CommandFailed` with the end of the output.
    """
    log_path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="playbook-job-") as name:
        asked, answered, packages = (Path(name) / part for part in ("job.json", "result.json", "packages"))
        asked.write_text(json.dumps(job), encoding="utf-8")
        link_packages(packages)
        argv = [str(python), "-m", module, str(asked), str(answered)]
        added = {"PYTHONPATH": str(packages), "PYTHONDONTWRITEBYTECODE": None, **env}
        stream_command(argv, env=added, base=users_environment(), log_path=log_path, echo=show)
        print(f"log in {log_path}")
        return json.loads(answered.read_text(encoding="utf-8"))


def show(line: str) -> None:
    """Print the command and what the job itself says; all else, which is much of vLLM's, is for the log."""
    if line.startswith(("$ ", SAID)):
        print(line.removeprefix(SAID))


def link_packages(folder: Path) -> None:
    """Fill ``folder`` with links to our packages."""
    folder.mkdir()
    for package in CARRIED:
        spec = find_spec(package)
        assert spec is not None and spec.origin is not None
        (folder / package).symlink_to(Path(spec.origin).parent)
