"""``playbook check-page``: the checker as a page in the browser."""

from pathlib import Path
from typing import Annotated

import typer


def check_page_command(
    out: Annotated[Path, typer.Option(help="Folder of the page, and of what was fetched for it.")] = Path(
        "build/checker"
    ),
) -> None:
    """Write the checker as one HTML file that runs in the browser, opened from the file and without a network.

    Fetches Pyodide and three more archives once, by npm and pip, in versions whose SHA-256 the project keeps.
    """
    from check_page.build import build

    built = build(out)
    typer.echo(f"page: {built.path} ({built.size / 1e6:.1f} MB)")
