"""Plots of a compiled network: what each kernel took of the layers that were written."""

from collections.abc import Mapping, Sequence

from playbook.plots.charts import BLUE, GREEN, GREY, ORANGE, empty_figure, show

ROW_INCHES = 0.4


def kernels(columns: Mapping[str, Sequence[Mapping[str, str | int]]], *, title: str) -> None:
    """One panel a network, one bar a kernel in the engine's order; its length is the written layers in it.

    A row has ``kernel`` (what it does), ``writes`` (number formats) and ``written layers in it``. Colours are the
    formats written; they stand as text, too.
    """
    longest = max(len(rows) for rows in columns.values())
    figure, axes = empty_figure(len(columns), height=1.1 + ROW_INCHES * longest, width=11.0)
    widest = max(int(row["written layers in it"]) for rows in columns.values() for row in rows)
    for axis, (name, rows) in zip(axes, columns.items(), strict=True):
        counts = [int(row["written layers in it"]) for row in rows]
        colors = [color_of(str(row["writes"])) for row in rows]
        axis.barh(range(len(rows)), counts, 0.42, color=colors)
        for place, row in enumerate(rows):
            text = f"{row['kernel']}  →  {row['writes']}"
            axis.text(0.1, place - 0.36, text, fontsize=7, va="center")
            axis.text(counts[place] + 0.2, place, str(counts[place]), fontsize=7, va="center")
        axis.set(title=f"{name}: {sum(counts)} layers in {len(rows)} kernels", xlim=(0, widest * 1.35))
        axis.title.set_fontsize(9)
        axis.set_ylim(longest - 0.3, -0.75)
        axis.set_yticks([])
        axis.set_xlabel("written layers in the kernel", fontsize=8)
    figure.suptitle(title, fontsize=10)
    told = "; ".join(
        f"{name}: " + ", ".join(f"{row['kernel']} took {row['written layers in it']}" for row in rows)
        for name, rows in columns.items()
    )
    show(figure, "compiled here", f"{title}: {told}")


def color_of(formats: str) -> str:
    """Green for FP8, blue for 16 bits, orange for both."""
    eight, sixteen = "FP8" in formats, "BF16" in formats
    if eight and sixteen:
        return ORANGE
    return GREEN if eight else BLUE if sixteen else GREY
