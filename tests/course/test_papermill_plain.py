"""The notebooks are ordinary papermill notebooks: they run without the playbook's own runner."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from checkout import PYTHON_PATH, ROOT
from playbook.course.notebooks import Chapter, chapter, chapters, parameters, read

COURSE = chapters(ROOT / "notebooks")


def papermill(*words: str) -> "subprocess.CompletedProcess[str]":
    env = {key: value for key, value in os.environ.items() if key != "PLAYBOOK_WORKSPACE"}
    return subprocess.run(
        [sys.executable, "-m", "papermill", *words],
        cwd=ROOT / "notebooks",
        env=env | {"PYTHONPATH": PYTHON_PATH, "CI": "true"},
        capture_output=True,
        text=True,
        check=False,
    )


def test_a_chapter_runs_with_plain_papermill_and_its_parameters(tmp_path: Path) -> None:
    item = chapter("00", COURSE)
    workspace = tmp_path / "workspace"
    output = tmp_path / item.path.name
    done = papermill(item.path.name, str(output), "-p", "profile", "local", "-p", "workspace", str(workspace))
    assert done.returncode == 0, done.stderr[-3000:]
    executed = read(output)
    injected = [cell for cell in executed.cells if "injected-parameters" in cell.metadata.get("tags", [])]
    assert len(injected) == 1
    assert all(cell.execution_count for cell in executed.cells if cell.cell_type == "code")
    shown = str([cell.get("outputs") for cell in executed.cells])
    assert str(workspace) in shown


@pytest.mark.parametrize("item", COURSE, ids=lambda item: item.name)
def test_papermill_reads_the_same_typed_parameters(item: Chapter) -> None:
    from papermill import inspect_notebook

    found = inspect_notebook(item.path)
    assert list(found) == [parameter.name for parameter in parameters(read(item.path))]
    for parameter in parameters(read(item.path)):
        assert found[parameter.name]["inferred_type_name"] == parameter.type
        assert found[parameter.name]["help"] == parameter.help
