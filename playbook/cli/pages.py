"""Pages for readers: `playbook book`, `slides`, `build --lang` of the notebooks, and `check-page` of the checker."""

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
    recorded: Annotated[str, typer.Option(help="Only this one of the recorded editions; by default all.")] = "",
) -> None:
    """Write the course as static pages with its committed outputs: readable from a file, without a network.

    Makes its environment, .envs/book, when that is not there or not up to date.
    """
    from playbook.course.notebooks import project_root
    from serving_base.errors import EnvironmentProblem, UsageError

    root = project_root()
    editions = sorted(path.parent.name for path in root.glob("recorded/*/edition.json"))
    if recorded and recorded not in editions:
        raise UsageError(f"there is no edition {recorded}", why=f"editions: {', '.join(editions)}", fix="name one")
    left_out = ",".join(f"recorded/{name}" for name in editions if recorded and name != recorded)
    python, target = made_environment().python, root / out
    argv = [str(python), "-m", "sphinx", "-q", "-W", "--keep-going", "-b", "html", "-d", str(target / ".doctrees")]
    argv += ["-D", f"exclude_patterns={left_out}", "-c", str(root / "docs" / "book"), str(root), str(target)]
    done = subprocess.run(argv, check=False)
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


@reporting
def slides_command(
    names: Annotated[list[str] | None, typer.Argument(help="Chapters, such as 02 05; all of them by default.")] = None,
    out: Annotated[Path | None, typer.Option(help="Folder; by default build/slides, or build/slides-LANG.")] = None,
    lang: Annotated[str, typer.Option(help="Prose in another language, such as zh.")] = "",
) -> None:
    """Write the chapters as slides with their committed outputs; the whole prose is for the speaker.

    Readable from a file, without a network. Takes reveal.js and MathJax from .envs/book, which it makes if need be.
    """
    from course_exercises.exercise import exercises
    from course_exercises.page import told
    from course_slides.pages import front, page, take_scripts
    from course_slides.slides import slides
    from playbook.cli.selection import choose
    from playbook.course.notebooks import project_root, read
    from playbook.course.translation import read_catalogue, translated

    root = project_root()
    target = root / (out or Path("build", f"slides-{lang}" if lang else "slides"))
    take_scripts(made_environment().site, target)
    wrong = {number: told(one) for number, one in exercises().items()}
    written = []
    for chapter in choose(names or []):
        notebook = read(chapter.path)
        if lang:
            notebook = translated(notebook, read_catalogue(root / "notebooks" / lang / f"{chapter.name}.yml"))
        found = slides(notebook, wrong)
        written.append((found[0].heading, f"{chapter.name}.html"))
        (target / written[-1][1]).write_text(page(found[0].heading, found, lang or "en"), encoding="utf-8")
    (target / "index.html").write_text(front("Llama-3 FP8 playbook: slides", written), encoding="utf-8")
    typer.echo(f"slides: {target / 'index.html'}")


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


@reporting
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
