"""What a job in vLLM's interpreter is asked, and how it answers: ``python -m MODULE JOB.json RESULT.json``."""

import json
import os
import sys
from pathlib import Path
from typing import Any, NoReturn


def asked() -> dict[str, Any]:
    """The job of this process."""
    job: dict[str, Any] = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))
    return job


def answer(result: Any) -> NoReturn:
    """Write the job's result and end the process here.

    With an engine open, Python's own end can abort: "terminate called without an active exception", exit status 134
    (vLLM 0.26.0 on an H200, after the result was there). What the process started is ended by its guard.
    """
    Path(sys.argv[2]).write_text(json.dumps(result), encoding="utf-8")
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)
