"""`playbook progress`: which exercises are solved, and how the guesses went."""

from pathlib import Path
from typing import Annotated

import typer

from serving_base.command_line import reporting


@reporting
def progress_command(
    workspace: Annotated[
        Path | None, typer.Option(help="Artifacts; default $PLAYBOOK_WORKSPACE, else ./workspace.")
    ] = None,
) -> None:
    """Show which exercises are solved, and how the guesses went: what a person did in JupyterLab."""
    from rich.console import Console
    from rich.table import Table

    from course_exercises.exercise import exercises
    from course_exercises.progress import entries, first_guesses, solved
    from playbook.cli.selection import workspace_folder

    tries = entries(workspace_folder(str(workspace or "")))
    done, console = solved(tries), Console()
    table = Table("exercise", "title", "minutes", "solved", box=None)
    for one in exercises().values():
        table.add_row(one.number, one.title, str(one.minutes), "✓" if one.number in done else "")
    console.print(table)
    console.print(f"{len(done & exercises().keys())} of {len(exercises())} solved")
    guesses = first_guesses(tries)
    if guesses:
        table = Table("guess", "yours", "it is", "off by", box=None)
        for guess in guesses:
            off = f"{guess.factor:.2f} x" if guess.factor else ""
            table.add_row(guess.name, f"{guess.guess:,.4g} {guess.unit}", f"{guess.actual:,.4g} {guess.unit}", off)
        console.print(table)
    else:
        console.print("no guess yet: the chapters ask for them in JupyterLab")
