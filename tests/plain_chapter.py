"""A chapter's process without papermill and kernel, for tests of what runs it: `python plain_chapter.py JOB.json`.

It reads the same job, waits for its turn, writes the same events and leaves an executed notebook; cells run here, in
this process, which imports nothing unless one fails. What the real process does with a notebook is tested on
`playbook.course.execute`, and on a kernel in tests/course/test_runner.py.
"""

import json
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pytest

    from serving_base.processes import GuardedProcess


def run_without_kernels(patch: "pytest.MonkeyPatch") -> None:
    """Let the runner start this file in place of its own program; guard, events and records stay its own."""
    from playbook.course import runner
    from serving_base.processes import start_guarded

    def start(argv: Sequence[str], **options: Any) -> "GuardedProcess":
        return start_guarded([argv[0], __file__, argv[-1]], **options)

    patch.setattr(runner, "start_guarded", start)


def run_cells(job: dict[str, Any], events: Path) -> dict[str, Any] | None:
    """None, or the failure of the cell that ended the notebook."""
    notebook = json.loads(Path(job["notebook"]).read_text(encoding="utf-8"))
    code = [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]
    variables: dict[str, Any] = {}
    try:
        for number, cell in enumerate(code, start=1):
            source = "".join(cell["source"])
            tell(events, {"cell": number, "of": len(code), "id": cell["id"], "text": source.splitlines()[-1]})
            exec(source, variables)
            variables.update(job["parameters"] if number == 1 else {})
            cell["execution_count"] = number
    except Exception as error:
        return failure_of(error, number)
    finally:
        Path(job["output"]).write_text(json.dumps(notebook), encoding="utf-8")
    tell(events, {"passed": True})
    return None


def failure_of(error: Exception, cell: int) -> dict[str, Any]:
    from dataclasses import asdict

    sys.modules["rfc3987_syntax"] = None  # type: ignore[assignment]  # nbformat does without, 2 s faster
    from playbook.course.failures import classify

    return asdict(classify(type(error).__name__, str(error), cell=cell))


def tell(events: Path, event: dict[str, Any]) -> None:
    with events.open("a", encoding="utf-8") as file:
        file.write(json.dumps(event) + "\n")


def main() -> None:
    job = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))
    events = Path(job["events"])
    tell(events, {"ready": True})
    while not Path(job["turn"]).exists():
        time.sleep(0.05)
    tell(events, {"failure": run_cells(job, events)})


if __name__ == "__main__":
    main()
