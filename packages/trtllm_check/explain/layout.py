"""How an explanation is set: titles, rows with labels, and lines that fit a terminal."""

import textwrap

WIDTH = 100
Rows = list[tuple[str, str]]


def part(title: str, rows: Rows) -> str:
    """A title and its rows: labels on the left, each once, and text wrapped beside them."""
    column = 4 + max(len(label) for label, _ in rows)
    lines, label_before = [title], ""
    for label, text in rows:
        lines += wrapped(text, ("" if label == label_before else f"  {label}").ljust(column), " " * column)
        label_before = label
    return "\n".join(lines)


def wrapped(text: str, first: str, indent: str) -> list[str]:
    return textwrap.wrap(
        text, WIDTH, initial_indent=first, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False
    )
