"""`playbook build --lang zh`: the course in another language, from the catalogue of its prose."""

import sys
from pathlib import Path
from typing import Annotated

import typer

from serving_base.command_line import reporting


@reporting
def build_command(
    lang: Annotated[str, typer.Option(help="The language, such as zh.")] = "zh",
    out: Annotated[Path | None, typer.Option(help="Folder; by default build/LANG.")] = None,
    check: Annotated[
        bool, typer.Option("--check", help="Write nothing; exit 1 if a cell is missing or stale.")
    ] = False,
) -> None:
    """Write the chapters with their prose in another language; code and outputs are those of notebooks/.

    A cell that is not translated, or was translated from another text, stays English and is told.
    """
    import nbformat

    from playbook.course.notebooks import chapters, project_root, read
    from playbook.course.translation import gaps, languages, prose, read_catalogue, shortened, translated
    from serving_base.errors import UsageError

    root = project_root()
    known = languages(root / "notebooks")
    if lang not in known:
        raise UsageError(f"there is no catalogue for {lang!r}", fix=f"take one of {', '.join(known) or 'none yet'}")
    target = root / (out or Path("build", lang))
    steps = len(target.relative_to(root).parts) - 1 if target.is_relative_to(root) else 0
    left = 0
    for chapter in chapters(root / "notebooks"):
        notebook = read(chapter.path)
        catalogue = read_catalogue(root / "notebooks" / lang / f"{chapter.name}.yml")
        found, english = gaps(notebook, catalogue), prose(notebook)
        left += len(found)
        for gap in found if catalogue else ():
            now = f", its source is {shortened(english[gap.cell])} now" if gap.cell in english else ""
            typer.echo(f"{chapter.name}: cell {gap.cell}: {gap.kind}{now}", err=True)
        if found and not catalogue:
            typer.echo(f"{chapter.name}: not translated", err=True)
        if not check:
            target.mkdir(parents=True, exist_ok=True)
            nbformat.write(translated(notebook, catalogue, steps=steps), target / chapter.path.name)  # type: ignore[no-untyped-call]
    typer.echo(f"{left} cells are not up to date" if left else "every cell is up to date")
    if not check:
        typer.echo(f"written: {target}")
    elif left:
        sys.exit(1)
