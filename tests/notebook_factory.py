"""Small notebooks for tests."""

from pathlib import Path

import nbformat
from nbformat import NotebookNode
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook

PARAMETERS = """\
profile: str = "local"  # name of a profile
workspace: str = ""  # folder of the artifacts
release: str = ""  # release
count: int = 3  # how many
rate: float = 0.5  # how often
quiet: bool = False  # say less
sizes: list[int] = [1, 2]  # which sizes"""

PROSE = "word " * 60


def notebook(*sources: str, parameters: str = PARAMETERS, title: str = "# 01 · A small chapter") -> NotebookNode:
    """A notebook with a title, a parameters cell and code cells, none of them run."""
    cells = [new_markdown_cell(title), new_code_cell(parameters, metadata={"tags": ["parameters"]})]  # type: ignore[no-untyped-call]
    cells += [new_code_cell(source) for source in sources]  # type: ignore[no-untyped-call]
    made: NotebookNode = new_notebook(cells=cells)  # type: ignore[no-untyped-call]
    made.metadata.kernelspec = {"name": "python3", "display_name": "Python 3 (ipykernel)", "language": "python"}
    return made


def write_course(folder: Path, **chapters: NotebookNode) -> Path:
    """Write chapters, `c01_small=notebook(...)` as `notebooks/01-small.ipynb`; returns the course's root."""
    (folder / "notebooks").mkdir(parents=True, exist_ok=True)
    for name, content in chapters.items():
        nbformat.write(content, folder / "notebooks" / f"{name.removeprefix('c').replace('_', '-')}.ipynb")  # type: ignore[no-untyped-call]
    return folder
