"""`playbook compare`: two runs side by side, in the terminal and as a page."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from serving_base.command_line import reporting

if TYPE_CHECKING:
    from course_runs.comparison import Comparison

Again = Annotated[
    list[Path] | None, typer.Option(help="Another run under the same conditions, for the spread; may come often.")
]


@reporting
def compare_command(
    run_a: Annotated[Path, typer.Argument(help="A run's folder, such as runs/20261120-101500.")],
    run_b: Annotated[Path, typer.Argument(help="Another one; ratios are of this one over the first.")],
    again_a: Again = None,
    again_b: Again = None,
    html: Annotated[Path | None, typer.Option(help="Write the comparison as a page into this file too.")] = None,
) -> None:
    """Two runs side by side: this laptop and a GPU, BF16 and FP8, two releases.

    Says what differs between them, and gives no ratio of results that were measured under unlike conditions.
    """
    from course_runs.comparison import compare, page
    from course_runs.runs import read_run

    again = [[read_run(folder) for folder in folders or ()] for folders in (again_a, again_b)]
    found = compare(read_run(run_a), read_run(run_b), again_a=again[0], again_b=again[1])
    _show(found)
    if html is not None:
        html.parent.mkdir(parents=True, exist_ok=True)
        html.write_text(page(found), encoding="utf-8")
        typer.echo(f"page: {html}")


def _show(found: "Comparison") -> None:
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    from course_runs.comparison import ratio_words, shown

    console = Console()
    console.print(f"A: {found.a.title}\nB: {found.b.title}", highlight=False, markup=False)
    conditions = Table("", "A", "B", title="What differs", box=None, title_justify="left")
    for each in found.differences:
        conditions.add_row(escape(each.name) + (" (unlike)" if each.unlike else ""), escape(each.a), escape(each.b))
    console.print(conditions if found.differences else "What differs: nothing")
    table = Table("", "result", title="Results", box=None, title_justify="left")
    for name in ("A", "B"):
        table.add_column(name, justify="right")
    for name in ("unit", "B / A", "why no ratio"):
        table.add_column(name)
    for row in found.rows:
        table.add_row(
            row.chapter[:2],
            escape(row.name),
            *(escape(shown(value)) for value in (row.a, row.b)),
            escape(row.unit),
            ratio_words(row.ratio),
            escape(row.why),
        )
    console.print(table)
    times = Table("chapter", title="Chapters", box=None, title_justify="left")
    for name in ("A", "B"):
        times.add_column(name, justify="right")
    for line in found.seconds:
        times.add_row(*map(escape, line))
    console.print(times)
