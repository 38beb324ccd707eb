"""Put the outputs of a fresh run into the committed notebooks, and nothing else of that run."""

import json
import re
from collections.abc import Mapping
from datetime import date
from pathlib import Path
from typing import Any

import nbformat
from nbformat import NotebookNode

from playbook.chapter import RECORDED_FILE, recorded_runs
from playbook.course.notebooks import read, tags
from serving_base.errors import CheckFailed

KERNEL_NOISE = re.compile(r"Kernel is running over TCP without encryption|frozen modules are being used")
CARD_TIME = re.compile(r"^(time {7})\S.*$", re.MULTILINE)
VOLATILE_METADATA = ("papermill", "execution")


def recorded(original: NotebookNode, executed: NotebookNode, *, workspace: Path) -> NotebookNode:
    """The original notebook with the executed one's outputs, execution counts 1..N, and workspace paths shortened.

    Raises CheckFailed if a code cell of the original did not run, or was not in the run.
    """
    ran = {cell.id: cell for cell in executed.cells if "injected-parameters" not in tags(cell)}
    clean: NotebookNode = nbformat.from_dict(original)  # type: ignore[no-untyped-call]
    clean.metadata.pop("papermill", None)
    count = 0
    for cell in clean.cells:
        for key in VOLATILE_METADATA:
            cell.metadata.pop(key, None)
        if cell.cell_type != "code":
            continue
        count += 1
        source = ran.get(cell.id)
        if source is None or source.source != cell.source or not source.get("execution_count"):
            raise CheckFailed(
                f"cell {cell.id} was not run as it stands in the notebook",
                why="outputs are only written beside the code that made them",
                fix="run: playbook record",
            )
        cell.execution_count = count
        cell.outputs = [clean_output(output, count, workspace) for output in merged(source.outputs)]
    return clean


def merged(outputs: list[NotebookNode]) -> list[NotebookNode]:
    """Outputs without the kernel's own noise, and with neighbouring pieces of one stream joined.

    How a stream is cut into messages depends on timing, so the pieces would differ from run to run.
    """
    kept: list[NotebookNode] = []
    for output in outputs:
        if output.output_type == "stream":
            lines = output.text.splitlines(keepends=True)
            output.text = "".join(line for line in lines if not KERNEL_NOISE.search(line))
            if not output.text:
                continue
            if kept and kept[-1].output_type == "stream" and kept[-1].name == output.name:
                kept[-1].text += output.text
                continue
        kept.append(nbformat.from_dict(output))  # type: ignore[no-untyped-call]
    return kept


def clean_output(output: NotebookNode, count: int, workspace: Path) -> NotebookNode:
    if output.output_type == "execute_result":
        output.execution_count = count
    if output.output_type == "stream":
        output.text = shorten(output.text, workspace)
    for kind, value in output.get("data", {}).items():
        if isinstance(value, str) and not kind.startswith("image/"):
            output.data[kind] = shorten(value, workspace)
    return output


def shorten(text: str, workspace: Path) -> str:
    """The workspace as `workspace`, wherever it lay during the run."""
    return text.replace(str(workspace), "workspace")


def record(original: Path, executed: Path, *, workspace: Path, took: str = "") -> None:
    """Write the outputs of `executed` back into `original`, in one step; the card's time becomes `took`, this run's."""
    clean = recorded(read(original), read(executed), workspace=workspace)
    if took:
        write_time(clean, took)
    aside = original.with_suffix(".ipynb.tmp")
    nbformat.write(clean, aside)  # type: ignore[no-untyped-call]
    aside.replace(original)


def write_time(notebook: NotebookNode, took: str) -> None:
    """The card was printed before the chapter's time was known."""
    streams = (output for cell in notebook.cells for output in cell.get("outputs", []) if "text" in output)
    for output in streams:
        output.text = CARD_TIME.sub(lambda match: match[1] + took, output.text)


def record_times(lane: str, seconds: Mapping[str, float], *, cores: int, day: date, path: Path = RECORDED_FILE) -> None:
    """Write what each chapter took, by number, into the file that a chapter's card reads its time from."""
    runs: dict[str, dict[str, Any]] = recorded_runs(path)
    now = {
        chapter: {"seconds": round(took), "cores": cores, "date": day.isoformat()} for chapter, took in seconds.items()
    }
    runs[lane] = dict(sorted((runs.get(lane, {}) | now).items()))
    head = "# What each chapter took when it was recorded, by lane or profile. Written by `playbook record`.\n"
    path.write_text(
        head + json.dumps(runs, indent=2, sort_keys=True) + "\n", encoding="utf-8"
    )  # YAML, every key quoted
