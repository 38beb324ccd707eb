"""Plots of attention: which query heads share keys and values, and how requests get their tokens."""

from collections.abc import Mapping

from playbook.plots.charts import BLUE, GREY, ORANGE, empty_figure, show


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
