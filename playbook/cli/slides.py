"""`playbook slides`: the chapters as slides with speaker notes, made from the notebooks."""

from pathlib import Path
from typing import Annotated

import typer

from serving_base.command_line import reporting


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
    from playbook.cli.book import made_environment
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
