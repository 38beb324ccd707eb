"""Plots of what is inside: heads that share keys, weights cut over ranks, stages in step, layers in kernels."""

from collections.abc import Mapping, Sequence
from typing import Any

from playbook.plots.charts import BLUE, GREEN, GREY, MANY_COLORS, ORANGE, empty_figure, show

ROW_INCHES = 0.4
RANKS = (BLUE, ORANGE)
WHOLE = "#dddddd"
UNDER: dict[str, Any] = {"facecolor": "white", "edgecolor": "none", "pad": 0.8}
Cell = tuple[int, int]


def heads(kinds: Mapping[str, tuple[int, int]], *, title: str) -> None:
    """``kinds[name] = (query heads, heads of keys and values)``: one panel each, a line from each query to its keys."""
    figure, axes = empty_figure(len(kinds), height=2.4, width=9.0)
    for axis, (name, (queries, shared)) in zip(axes, kinds.items(), strict=True):
        group = queries // shared
        middle = [group * index + (group - 1) / 2 for index in range(shared)]
        for query in range(queries):
            axis.plot([query, middle[query // group]], [1, 0], color=GREY, linewidth=0.8, zorder=1)
        axis.scatter(range(queries), [1] * queries, marker="o", s=55, color=BLUE, zorder=2)
        axis.scatter(middle, [0] * shared, marker="s", s=75, color=ORANGE, zorder=2)
        axis.set(title=f"{name}: {queries} queries, {shared} KV", xlim=(-1.2, queries + 0.2), ylim=(-0.4, 1.4))
        axis.title.set_fontsize(9)
        axis.set_xticks([])
        axis.set_yticks((0, 1), ("keys, values", "queries") if axis is axes[0] else ("", ""))
        axis.spines[["left", "bottom"]].set_visible(False)
        axis.tick_params(left=False)
    figure.suptitle(title, fontsize=10)
    told = "; ".join(f"{name} {queries} query heads, {shared} KV heads" for name, (queries, shared) in kinds.items())
    show(figure, "drawn from the definitions", f"{title}: {told}")


def cuts(*, title: str) -> None:
    """A column cut and a row cut over two ranks, as x times weight makes y; grey is on both ranks."""
    figure, axes = empty_figure(2, height=2.6, width=9.0)
    for axis, name, result in zip(axes, ("column cut", "row cut"), ("its own columns", "a sum to add up"), strict=True):
        column = name == "column cut"
        _matrix(axis, 0.0, "x", "none" if column else "columns")
        _matrix(axis, 2.4, "weight, transposed", "columns" if column else "rows")
        _matrix(axis, 4.8, "y", "columns" if column else "sum")
        for at, sign in ((2.0, "x"), (4.4, "=")):
            axis.text(at, 0.8, sign, ha="center", va="center", fontsize=13)
        axis.set(title=f"{name}: each rank has {result}", xlim=(-0.2, 6.6), ylim=(-0.5, 1.9))
        axis.title.set_fontsize(9)
        axis.axis("off")
    axes[0].text(-0.2, -0.45, "blue: rank 0, orange and hatched: rank 1, grey: both", fontsize=8)
    figure.suptitle(title, fontsize=10)
    told = (
        "a column cut divides the weight's columns and those of y; a row cut divides x's columns and the weight's rows"
    )
    show(figure, "drawn from the definitions", f"{title}: {told}, and y is the sum of both ranks' products")


def _matrix(axis: Any, left: float, name: str, cut: str) -> None:
    """One square of side 1.6, whole or in two halves; ``sum``: two squares of the whole size, one behind the other."""
    side = 1.6
    places = {
        "none": [(left, 0.0, side, side)],
        "columns": [(left, 0.0, side / 2, side), (left + side / 2, 0.0, side / 2, side)],
        "rows": [(left, side / 2, side, side / 2), (left, 0.0, side, side / 2)],
        "sum": [(left + 0.12, 0.12, side - 0.12, side - 0.12), (left, 0.0, side - 0.12, side - 0.12)],
    }[cut]
    from matplotlib.patches import Rectangle

    for rank, (x, y, width, height) in enumerate(places):
        color = WHOLE if cut == "none" else RANKS[rank]
        hatch = "//" if rank else ""
        axis.add_patch(Rectangle((x, y), width, height, facecolor=color, edgecolor="white", hatch=hatch))
    axis.text(left + side / 2, 1.66, name, ha="center", fontsize=8)


def schedule(runs: Mapping[str, Sequence[Sequence[Cell]]], *, title: str) -> None:
    """``runs[name]``: for each stage its (step, microbatch) pairs, one panel each; an empty cell is an idle step."""
    from matplotlib.patches import Rectangle

    figure, axes = empty_figure(len(runs), height=1.9, width=9.0)
    told = []
    for axis, (name, stages) in zip(axes, runs.items(), strict=True):
        steps = 1 + max(step for stage in stages for step, _ in stage)
        for row, stage in enumerate(stages):
            axis.add_patch(Rectangle((0, row), steps, 1, facecolor="none", edgecolor=GREY, hatch="xx", linewidth=0.5))
            for step, microbatch in stage:
                color = MANY_COLORS[microbatch % len(MANY_COLORS)]
                axis.add_patch(Rectangle((step, row), 1, 1, facecolor=color, edgecolor="white"))
                axis.text(step + 0.5, row + 0.5, str(microbatch), ha="center", va="center", fontsize=8, bbox=UNDER)
        idle = sum(steps - len(stage) for stage in stages)
        axis.set(title=f"{name}: {idle} of {steps * len(stages)} idle", xlabel="step", xlim=(0, steps))
        axis.set(ylim=(len(stages), 0))
        axis.set_xticks(range(steps + 1))
        axis.set_yticks([row + 0.5 for row in range(len(stages))], [f"stage {row}" for row in range(len(stages))])
        axis.title.set_fontsize(9)
        told.append(f"{name}: {steps} steps, {idle} of {steps * len(stages)} idle")
    figure.suptitle(title, fontsize=10)
    show(figure, "counted here", f"{title}: {'; '.join(told)}")


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
