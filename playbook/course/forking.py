"""Pay for an import once: the kernels of one run are forked from a process that has what its chapters share.

A forked kernel is as fresh as any other, but for modules that are loaded already; tests/course/test_forked_kernels.py
compares the two. See :mod:`playbook.course.fork_server` for how.
"""

import ast
import json
import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from playbook.course import fork_server, forked_kernel
from playbook.course.execute import KERNEL_NAME
from playbook.course.notebooks import Chapter, read
from serving_base.processes import start_guarded

COSTLY = frozenset({"torch", "transformers"})
"""Seconds each. Where no two chapters share one of them, forking saves nothing."""
BEHIND_PLAYBOOK = ("import ipykernel.kernelapp", "import pandas", "import matplotlib.figure", "import playbook.chapter")
"""What most chapters load without naming it. Not pyplot: it chooses its backend when it is imported."""


def shared_imports(chapters: Sequence[Chapter]) -> list[str]:
    """The import statements of costly modules that two chapters have in common, one name a statement."""
    counted = Counter(statement for chapter in chapters for statement in set(_imports(chapter)))
    return sorted(statement for statement, count in counted.items() if count > 1)


def _imports(chapter: Chapter) -> Iterator[str]:
    for cell in read(chapter.path).cells:
        if cell.cell_type == "code":
            yield from _costly(cell.source)


def _costly(source: str) -> Iterator[str]:
    try:
        nodes = list(ast.walk(ast.parse(source)))
    except SyntaxError:  # the cell will say so when it runs
        return
    for node in nodes:
        if isinstance(node, ast.ImportFrom) and not node.level and str(node.module).partition(".")[0] in COSTLY:
            yield from (f"from {node.module} import {alias.name}" for alias in node.names)
        elif isinstance(node, ast.Import):
            yield from (f"import {alias.name}" for alias in node.names if alias.name.partition(".")[0] in COSTLY)


@contextmanager
def forked_kernels(
    chapters: Sequence[Chapter], environment: Mapping[str, str], scratch: Path
) -> Iterator[dict[str, str]]:
    """The environment that lets Jupyter start forked kernels; ``environment`` itself where nothing would be saved.

    The server gets ready while the first chapters run: until then they get ordinary kernels.
    """
    statements = shared_imports(chapters)
    if not statements:
        yield dict(environment)
        return
    kernels = scratch / "kernels"
    write_kernel_spec(kernels)
    address = str(scratch / "fork-server")
    ours = {**environment, "JUPYTER_PATH": str(kernels), forked_kernel.DOOR: address}
    argv = [sys.executable, str(fork_server.__file__), address, *statements, *BEHIND_PLAYBOOK]
    with start_guarded(argv, env=ours, cwd=scratch, log_path=scratch / "fork-server.log", name="fork server"):
        yield ours


def write_kernel_spec(folder: Path) -> None:
    """Under the name that the notebooks ask for."""
    spec = {
        "argv": [sys.executable, "-I", "-S", str(forked_kernel.__file__), "-f", "{connection_file}"],
        "display_name": "Python 3 (forked)",
        "language": "python",
    }
    path = folder / "kernels" / KERNEL_NAME / "kernel.json"
    path.parent.mkdir(parents=True)
    path.write_text(json.dumps(spec), encoding="utf-8")
