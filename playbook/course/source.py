"""A notebook's sources without its outputs, cell by cell in the percent format: what ``git diff`` shows of a chapter.

    git config diff.notebook.textconv "python3 playbook/course/source.py"

Standard library only, so that any python3 runs it, for each file of a diff.
"""

import json
import sys
from pathlib import Path
from typing import Any


def percent(notebook: dict[str, Any]) -> str:
    """The cells of a notebook, each under a line that says its kind and its tags; prose as comments."""
    return "\n\n".join(map(_cell, notebook["cells"])) + "\n"


def _cell(cell: dict[str, Any]) -> str:
    kind = "" if cell["cell_type"] == "code" else f" [{cell['cell_type']}]"
    tags = cell["metadata"].get("tags", [])
    lines = "".join(cell["source"]).split("\n")
    if kind:
        lines = [f"# {line}".rstrip() for line in lines]
    return "\n".join([f"# %%{kind}{f' tags={json.dumps(tags)}' if tags else ''}", *lines])


if __name__ == "__main__":
    print(percent(json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))), end="")
