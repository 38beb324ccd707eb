"""Plots of the quantization laboratory: number lines, measured intervals, and channels before and after smoothing."""

from collections.abc import Mapping, Sequence

from playbook.plots.charts import BLUE, COLORS, GREY, MARKERS, ORANGE, empty_figure, show


def number_lines(grids: Mapping[str, Sequence[float]], *, title: str, near: tuple[float, float]) -> None:
    """The positive values of each format: left those in ``near`` on an even axis, right all, by powers of two."""
    figure, (left, right) = empty_figure(2, height=1.2 + 0.6 * len(grids), width=9.0)
    rows = range(len(grids))
    for row, (color, values) in enumerate(zip(COLORS, grids.values(), strict=False)):
        close = [value for value in values if near[0] <= value <= near[1]]
        left.vlines(close, row - 0.3, row + 0.3, color=color)
        step = close[1] - close[0]
        left.annotate(f"step {step:g}", (close[0], row - 0.34), fontsize=8, va="bottom")
        positive = [value for value in values if value > 0]
        right.vlines(positive, row - 0.25, row + 0.25, color=color, linewidth=0.6)
        for value, align in ((positive[0], "left"), (positive[-1], "right")):
            right.annotate(f"{value:.3g}" if value < 1 else f"{value:,.0f}", (value, row - 0.3), ha=align, fontsize=8)
    left.set(xlabel=f"between {near[0]:g} and {near[1]:g}")
    right.set(xscale="log", xlabel="all positive values, each step a factor of two")
    right.set_xscale("log", base=2)
    for axis in (left, right):
        axis.set_yticks(rows, list(grids))
        axis.set_ylim(len(grids) - 0.5, -0.7)
    figure.suptitle(title, fontsize=10)
    told = "; ".join(f"{name} {len(values)} values up to {values[-1]:g}" for name, values in grids.items())
    show(figure, "computed here from all bit patterns of the formats", f"{title}: {told}")


def intervals(
    rows: Mapping[str, tuple[float, float, float]],
    *,
    title: str,
    unit: str,
    log: bool = False,
    number: str = "{:.4f}",
    mark: tuple[float, str] | None = None,
    origin: str = "measured here; bars: 95 % of a bootstrap over windows",
) -> None:
    """One dot per row with its error bar: ``rows[name] = (mean, low, high)``. ``mark``: a value to compare with."""
    figure, (axis,) = empty_figure(height=1.0 + 0.3 * len(rows))
    for row, (mean, low, high) in enumerate(rows.values()):
        axis.plot([low, high], [row, row], color=BLUE, linewidth=2, solid_capstyle="butt")
        axis.plot([mean], [row], color=BLUE, marker="o", markersize=5)
        axis.annotate(number.format(mean), (high, row), (6, -3), textcoords="offset points", fontsize=8)
    if mark is not None:
        axis.axvline(mark[0], color=ORANGE, linestyle="--", linewidth=1)
        axis.annotate(f" {mark[1]}", (mark[0], -0.6), fontsize=8)
    axis.set_yticks(range(len(rows)), list(rows))
    axis.set_ylim(len(rows) - 0.4, -0.9)
    axis.margins(x=0.12)
    axis.set(title=title, xlabel=unit, xscale="log" if log else "linear")
    if log:
        axis.xaxis.set_major_formatter("{x:g}")
    axis.grid(axis="x", alpha=0.2)
    told = "; ".join(f"{name} {mean:.4g} ({low:.4g} to {high:.4g})" for name, (mean, low, high) in rows.items())
    show(figure, origin, f"{title}: {told}")


def channels(before: Mapping[str, Sequence[float]], after: Mapping[str, Sequence[float]], *, title: str) -> None:
    """The largest value of each input channel, before and after: two panels with the same axis, the top one marked."""
    figure, axes = empty_figure(2, height=3.0, width=9.0)
    highest = 0.0
    for axis, heading, series in zip(axes, ("before", "after"), (before, after), strict=True):
        for index, (name, values) in enumerate(series.items()):
            axis.plot(values, color=COLORS[index], marker=MARKERS[index], markersize=1.5, linewidth=0.4, label=name)
            top = max(range(len(values)), key=lambda channel: values[channel])
            axis.annotate(f"{values[top]:.3g}", (top, values[top]), (4, 2), textcoords="offset points", fontsize=8)
            highest = max(highest, *values)
        axis.set(title=heading, xlabel="input channel")
    for axis in axes:
        axis.set_ylim(0, 1.1 * highest)
        axis.axhline(0, color=GREY, linewidth=0.5)
    axes[0].set_ylabel("largest magnitude")
    axes[1].legend(frameon=False, fontsize=8, loc="upper right", markerscale=3)
    figure.suptitle(title, fontsize=10)
    told = "; ".join(f"{name} at most {max(before[name]):.3g}, then {max(after[name]):.3g}" for name in before)
    show(figure, "measured here", f"{title}: {told}")
