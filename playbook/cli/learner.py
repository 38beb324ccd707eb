"""`playbook progress` and `playbook reset`: what a learner did, and a chapter begun anew."""

from pathlib import Path
from typing import Annotated

import typer

from serving_base.command_line import reporting

WorkspaceOption = Annotated[Path | None, typer.Option(help="Artifacts; default $PLAYBOOK_WORKSPACE, else ./workspace.")]


@reporting
def progress_command(
    workspace: WorkspaceOption = None,
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


@reporting
def reset_command(
    name: Annotated[str, typer.Argument(metavar="CHAPTER", help="Such as 03.")],
    profile: Annotated[str, typer.Option(help="Whose artifacts.")] = "local",
    workspace: WorkspaceOption = None,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
) -> None:
    """Remove what a chapter made, and what was made from that; the chapter makes it again.

    The notebook stays as you changed it: `git restore notebooks/NAME.ipynb` brings the shipped one back.
    """
    from playbook.choices.cleanup import artifacts, remove, with_what_was_made_from
    from playbook.cli.selection import workspace_folder
    from playbook.course.notebooks import chapter
    from playbook.profile import load_profile
    from playbook.stages import Workspace, made_by_chapter

    item = chapter(name)
    space = Workspace(workspace_folder(str(workspace or "")), load_profile(profile, ""))
    rows = [row for row in artifacts(space) if row.removable]
    chosen = with_what_was_made_from([row.name for row in rows if made_by_chapter(row.kind) == item.number], rows)
    if not chosen:
        typer.echo(f"{item.number} {item.title} has nothing in {space.folder('')}")
        return
    typer.echo(f"in {space.folder('')}:")
    for row in rows:
        if row.name in chosen:
            typer.echo(f"  {row.name:20} {row.megabytes:10,.1f} MB  {row.made_by}")
    if not yes:
        typer.confirm("remove them?", abort=True)
    gone = remove(space, chosen)
    typer.echo(f"removed {len(gone)}; make them again: playbook run --from {item.number} --profile {profile}")
