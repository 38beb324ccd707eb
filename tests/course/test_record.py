"""Recording puts true outputs beside their code, and nothing else of a run into the notebooks."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import nbformat
import pytest
from nbformat.v4 import new_code_cell, new_output

from checkout import PYTHON_PATH
from notebook_factory import notebook, write_course
from playbook.chapter import RECORDED_FILE
from playbook.course.notebooks import read
from playbook.course.record import merged, record, recorded
from serving_base.errors import CheckFailed

FIXTURES = Path(__file__).parents[1] / "fixtures" / "notebooks"
WORKSPACE = Path("/somewhere/workspace")


def stream(name: str, text: str) -> nbformat.NotebookNode:
    made: nbformat.NotebookNode = new_output("stream", name=name, text=text)  # type: ignore[no-untyped-call]
    return made


def test_outputs_are_taken_by_cell_and_injected_cells_are_not() -> None:
    original = read(FIXTURES / "un_run.ipynb")
    executed = read(FIXTURES / "clean.ipynb")
    executed.cells.insert(2, new_code_cell("count = 3", metadata={"tags": ["injected-parameters"]}))  # type: ignore[no-untyped-call]
    executed.metadata.papermill = {"duration": 1}
    for number, cell in enumerate((cell for cell in executed.cells if cell.cell_type == "code"), start=1):
        cell.execution_count = number
        cell.metadata.papermill = {"status": "completed"}
    assert recorded(original, executed, workspace=WORKSPACE) == read(FIXTURES / "clean.ipynb")


def test_outputs_of_other_code_are_refused() -> None:
    original, executed = read(FIXTURES / "clean.ipynb"), read(FIXTURES / "clean.ipynb")
    executed.cells[3].source += "  "
    with pytest.raises(CheckFailed, match="cell c1 was not run as it stands"):
        recorded(original, executed, workspace=WORKSPACE)


def test_a_cell_that_did_not_run_is_refused() -> None:
    with pytest.raises(CheckFailed, match="cell c1 was not run"):
        recorded(read(FIXTURES / "clean.ipynb"), read(FIXTURES / "un_run.ipynb"), workspace=WORKSPACE)


def test_pieces_of_a_stream_are_joined_and_the_kernels_noise_dropped() -> None:
    noise = "[IPKernelApp] WARNING | Kernel is running over TCP without encryption. All\n"
    outputs = [stream("stdout", "a"), stream("stdout", "b\n"), stream("stderr", noise), stream("stdout", "c\n")]
    assert merged(outputs) == [stream("stdout", "ab\nc\n")]
    assert merged([stream("stderr", noise + "a real warning\n")]) == [stream("stderr", "a real warning\n")]


def test_the_workspace_is_written_without_its_place() -> None:
    original = read(FIXTURES / "clean.ipynb")
    executed = read(FIXTURES / "clean.ipynb")
    executed.cells[3].outputs = [stream("stdout", f"wrote {WORKSPACE}/local/engine\n")]
    clean = recorded(original, executed, workspace=WORKSPACE)
    assert clean.cells[3].outputs[0].text == "wrote workspace/local/engine\n"


def test_a_refused_recording_leaves_the_notebook_as_it_was(tmp_path: Path) -> None:
    original = tmp_path / "01-a.ipynb"
    shutil.copy(FIXTURES / "clean.ipynb", original)
    before = original.read_bytes()
    with pytest.raises(CheckFailed):
        record(original, FIXTURES / "un_run.ipynb", workspace=WORKSPACE)
    assert original.read_bytes() == before
    assert list(tmp_path.iterdir()) == [original]


def test_the_command_records_what_ran_and_keeps_what_failed(tmp_path: Path) -> None:
    path_cell = "import os\nprint(os.environ['PLAYBOOK_WORKSPACE'] + '/x')"
    write_course(tmp_path, c01_good=notebook(path_cell), c02_bad=notebook("1 / 0"))
    before = (tmp_path / "notebooks" / "02-bad.ipynb").read_bytes()
    times = RECORDED_FILE.read_bytes()
    done = subprocess.run(
        [sys.executable, "-m", "playbook", "record"],
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": PYTHON_PATH},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1
    assert "recorded 01-good.ipynb" in done.stdout
    assert "ZeroDivisionError" in done.stderr
    good = read(tmp_path / "notebooks" / "01-good.ipynb")
    assert [cell.get("execution_count") for cell in good.cells if cell.cell_type == "code"] == [1, 2]
    assert good.cells[2].outputs[0].text == "workspace/x\n"
    assert "papermill" not in good.metadata
    assert (tmp_path / "notebooks" / "02-bad.ipynb").read_bytes() == before
    assert RECORDED_FILE.read_bytes() == times  # another course's chapters have other times
