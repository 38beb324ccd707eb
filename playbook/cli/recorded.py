"""`playbook recorded`: editions of the course from other machines, made of runs and kept true."""

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from serving_base.command_line import reporting

if TYPE_CHECKING:
    from course_runs.drift import ChapterDrift

FOLDER = "recorded"
PAGE = "README.md"
Hide = Annotated[
    list[str] | None,
    typer.Option(metavar="WORD", help="Take out this word too, such as a host's name; may come often."),
]

recorded_app = typer.Typer(no_args_is_help=True, rich_markup_mode=None)


@recorded_app.callback()
def recorded() -> None:
    """Editions of the course from other machines, such as a rented GPU: make one of runs, and keep it true."""


@recorded_app.command("make")
@reporting
def make_command(
    runs: Annotated[list[Path], typer.Argument(help="Folders of runs, one for each profile.")],
    name: Annotated[str, typer.Option(help="Of the edition; the GPU and the day by default: h200-20261124.")] = "",
    force: Annotated[bool, typer.Option("--force", help="Replace the edition of this name.")] = False,
    hide: Hide = None,
) -> None:
    """Make an edition in recorded/: executed notebooks with smaller pictures, without paths, secrets and addresses."""
    from course_runs.edition import folder_bytes, make_edition

    folder = _folder()
    folder.mkdir(exist_ok=True)
    made = make_edition(runs, folder, name=name, force=force, hide=hide or ())
    for run in made.runs:
        ended = [each.status for each in run.chapters]
        counts = ", ".join(f"{ended.count(status)} {status}" for status in dict.fromkeys(ended))
        typer.echo(f"{run.folder}: {counts}")
    typer.echo(f"edition: {folder / made.name}, {folder_bytes(folder / made.name) / 1e6:.1f} MB; read it, then commit")
    _write_page()


@recorded_app.command("verify")
@reporting
def verify_command(
    names: Annotated[list[str] | None, typer.Argument(metavar="[NAME]...", help="Editions; all by default.")] = None,
    write_readme: Annotated[bool, typer.Option("--write-readme", help=f"Write {FOLDER}/{PAGE} again.")] = False,
) -> None:
    """Compare the code of recorded chapters with today's; fails on a change that changes.yml does not explain."""
    from course_runs.drift import CHANGES_FILE, drift, entries_to_write, out_of_date, read_changes, todays_chapters
    from course_runs.edition import editions
    from playbook.course.notebooks import project_root

    today = todays_chapters(project_root() / "notebooks")
    found = editions(_folder(), names or ())
    if not found:
        typer.echo(f"no editions in {FOLDER}/; make one of a run: playbook recorded make RUN")
    open_ones = False
    for edition in found:
        explained = read_changes(_folder() / edition.name)
        drifts = drift(edition, today, explained)
        _show(edition.name, drifts)
        for chapter, cell, sha256 in out_of_date(explained, drifts):
            typer.echo(f"note: {CHANGES_FILE} explains {chapter} {cell} {sha256[:12]}, which is not today's source")
        if entries := entries_to_write(drifts):
            open_ones = True
            typer.echo(
                f"{edition.name}: code has changed since it was recorded.\n"
                f"  why: its outputs may not be what this code prints\n"
                f"  fix: record it again, or say in {FOLDER}/{edition.name}/{CHANGES_FILE} why they still stand:\n\n"
                f"{entries}",
                err=True,
            )
    if write_readme:
        _write_page()
    if open_ones:
        sys.exit(1)


def _folder() -> Path:
    from playbook.course.notebooks import project_root

    return project_root() / FOLDER


def _write_page() -> None:
    from course_runs.edition import editions
    from course_runs.edition_page import readme

    page = _folder() / PAGE
    page.parent.mkdir(exist_ok=True)
    page.write_text(readme(editions(_folder())), encoding="utf-8")
    typer.echo(f"wrote {FOLDER}/{PAGE}")


def _show(name: str, drifts: Sequence["ChapterDrift"]) -> None:
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    table = Table("run", "chapter", "since then", title=name, box=None, title_justify="left")
    for each in drifts:
        table.add_row(escape(each.run), escape(each.chapter), escape(each.state))
    Console().print(table)
