"""`playbook book`: the course as static pages, with the outputs that are committed."""

import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from serving_base.command_line import reporting

if TYPE_CHECKING:
    from playbook.bootstrap import Environment

FRONT = "docs/book/index.html"
REDIRECT = f'<!doctype html><meta charset="utf-8"><meta http-equiv="refresh" content="0; url={FRONT}">\n'


@reporting
def book_command(
    out: Annotated[Path, typer.Option(help="Folder of the pages; its old pages are replaced.")] = Path("build/book"),
) -> None:
    """Write the course as static pages with its committed outputs: readable from a file, without a network.

    Makes its environment, .envs/book, when that is not there or not up to date.
    """
    from playbook.course.notebooks import project_root
    from serving_base.errors import EnvironmentProblem

    root, python = project_root(), made_environment().python
    target = root / out
    argv = [str(python), "-m", "sphinx", "-q", "-W", "--keep-going", "-b", "html", "-d", str(target / ".doctrees")]
    done = subprocess.run([*argv, "-c", str(root / "docs" / "book"), str(root), str(target)], check=False)
    if done.returncode:
        raise EnvironmentProblem(
            f"the book was not built: Sphinx ended with {done.returncode}",
            why="its lines above name page and place",
            fix="mend the page, and build again",
        )
    (target / "index.html").write_text(REDIRECT, encoding="utf-8")
    typer.echo(f"book: {target / 'index.html'}")


def made_environment() -> "Environment":
    """The environment .envs/book, made or brought up to date; :class:`EnvironmentProblem` where that fails."""
    from playbook import bootstrap
    from serving_base.errors import EnvironmentProblem

    if subprocess.run([sys.executable, bootstrap.__file__, "--envs", "book"], check=False).returncode:
        raise EnvironmentProblem(
            "the book's environment could not be made",
            why="the lines above name the reason",
            fix="mend it, then run: python3 playbook/bootstrap.py --envs book",
        )
    return bootstrap.environments()["book"]
