"""Tables of sentences and links, which pandas would cut off, as Markdown."""

from collections.abc import Iterable, Mapping

from playbook.choices.leftovers import Leftover


def show(rows: Iterable[Mapping[str, object]]) -> None:
    """Show rows, dictionaries with the same keys, as one table; their texts may hold Markdown."""
    from IPython.display import Markdown, display

    display(Markdown(markdown_table(rows)))  # type: ignore[no-untyped-call]


def show_commands(entries: Iterable[Leftover]) -> None:
    """Show how to see and how to end each kind of resource, ready to paste into a shell."""
    from IPython.display import Markdown, display

    display(Markdown(f"```bash\n{commands(entries)}\n```"))  # type: ignore[no-untyped-call]


def markdown_table(rows: Iterable[Mapping[str, object]]) -> str:
    """Rows as a Markdown table, the first row's keys as its head."""
    entries = list(rows)
    head = list(entries[0]) if entries else []
    lines = [head, ["---"] * len(head), *([_cell(row[key]) for key in head] for row in entries)]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines if line)


def commands(entries: Iterable[Leftover]) -> str:
    """A shell text: for each resource a comment, the command that lists it, and those that end it."""
    blocks = []
    for entry in entries:
        ends = [
            entry.end or "# nothing ends it before its time",
            *([f"# or: {entry.instead}"] if entry.instead else []),
        ]
        blocks.append("\n".join([f"# {entry.resource}", entry.see, *ends]))
    return "\n\n".join(blocks)


def _cell(value: object) -> str:
    return str(value).replace("|", "\\|").replace("\n", " ")
