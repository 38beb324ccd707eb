"""Plots of numbers, whoever they come from: bars, lines, and what engines, servers and endpoints did over time.

Each figure is shown with its numbers' origin. Colours are the Okabe-Ito palette (readable with colour-blindness); no
information is carried by colour alone.
"""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np

    from load_testing.results import StreamTimeline, Summary
    from model_server.protocol import StepRecord

BLUE, ORANGE, GREEN, GREY = "#0072B2", "#E69F00", "#009E73", "#999999"
COLORS = (BLUE, ORANGE, GREEN, GREY)
PAPER, QUIET = "white", "#595959"
"""Behind every figure, so that a stored one reads on a dark page too; and the colour of a text that steps back."""
MANY_COLORS = (BLUE, ORANGE, GREEN, "#CC79A7", "#56B4E9", "#D55E00", "#F0E442", GREY, "#444444", "black")
HATCHES = ("", "//", "..", "xx")
DASHES = ("-", "--", ":", "-.")
MARKERS = "os^D"
STATE_COLORS = {"Creating": ORANGE, "InService": GREEN, "Updating": BLUE}
MAX_DOTS = 200_000
SHORT_ORIGIN, ORIGIN_LINE_INCHES = 40, 0.14
LABELS_APART_POINTS = 13


def empty_figure(columns: int = 1, *, height: float = 3.2, width: float = 8.0) -> tuple[Any, Any]:
    """A figure and its axes side by side; inches."""
    import matplotlib.pyplot as plt

    size: dict[str, Any] = {"figsize": (width, height), "layout": "constrained"}
    figure, axes = plt.subplots(1, columns, facecolor=PAPER, squeeze=False, **size)
    for axis in axes[0]:
        axis.set_facecolor(PAPER)
        axis.spines[["top", "right"]].set_visible(False)
    return figure, axes[0]


def show(figure: Any, origin: str, alt: str) -> None:
    """Display ``figure`` with the origin of its numbers in a corner and ``alt`` for those who cannot see it."""
    import matplotlib.pyplot as plt
    from IPython.display import display

    if len(origin) > SHORT_ORIGIN:  # it would run into the label of an axis: a line of its own
        line = ORIGIN_LINE_INCHES / figure.get_figheight()
        figure.get_layout_engine().set(rect=(0, line, 1, 1 - line))
    figure.text(0.995, 0.005, origin, ha="right", va="bottom", fontsize=7, color=QUIET)
    display(figure, metadata={"image/png": {"alt": alt}})  # type: ignore[no-untyped-call]
    plt.close(figure)


def label_points(
    axis: Any, x: Sequence[float], y: Sequence[float], labels: Sequence[object], *, shift: tuple[int, int]
) -> None:
    """Write each label ``shift`` typographic points beside its point (x, y), one for neighbours that are too close.

    The limits of ``axis`` are set before.
    """
    where = axis.transData.transform(list(zip(x, y, strict=True))) * 72 / axis.figure.dpi  # [points, 2]
    groups: list[list[int]] = []
    for index, place in enumerate(where):
        if groups and max(abs(place - where[groups[-1][-1]])) < LABELS_APART_POINTS:
            groups[-1].append(index)
        else:
            groups.append([index])
    for group in groups:
        text, last = ", ".join(str(labels[index]) for index in group), group[-1]
        axis.annotate(text, (x[last], y[last]), shift, textcoords="offset points", fontsize=8)


def _told(series: Mapping[str, Mapping[str, float]], number: str) -> str:
    """The bars in words: each value as it stands at its bar; a part that is zero is left out."""
    told = {name: [f"{part} = {number.format(v)}" for part, v in bar.items() if v] for name, bar in series.items()}
    return "; ".join(f"{name}: {', '.join(values)}" for name, values in told.items())


def _ends(at: Sequence[float], values: Sequence[float]) -> str:
    """A line in words: where it begins and where it ends."""
    first, last = ([f"{v:,.0f}" if abs(v) >= 1000 else f"{v:.3g}" for v in (values[i], at[i])] for i in (0, -1))
    return f"from {first[0]} at {first[1]} to {last[0]} at {last[1]}"


def bars(
    series: Mapping[str, Mapping[str, float]],
    *,
    title: str,
    unit: str,
    origin: str = "measured here",
    log: bool = False,
    number: str = "{:.3g}",
    guess: float | None = None,
) -> None:
    """Grouped horizontal bars: ``series[legend][group] = value``, each value written at its bar.

    ``guess``: what somebody expected of a bar, in the plot's unit: a dotted line.
    """
    groups = list(dict.fromkeys(group for values in series.values() for group in values))
    figure, (axis,) = empty_figure(height=0.9 + 0.32 * len(groups) * len(series))
    thickness = 0.8 / len(series)
    for index, (name, values) in enumerate(series.items()):
        at = [groups.index(group) + (index - (len(series) - 1) / 2) * thickness for group in values]
        color, hatch = COLORS[index % 4], HATCHES[index % 4]
        drawn = axis.barh(at, list(values.values()), thickness * 0.92, label=name, color=color, hatch=hatch)
        axis.bar_label(drawn, [number.format(value) for value in values.values()], padding=3, fontsize=8)
    if guess is not None:
        axis.axvline(guess, color="black", linestyle=":", linewidth=1, label="guess")
    axis.set_yticks(range(len(groups)), groups)
    axis.invert_yaxis()
    axis.margins(x=0.15)
    axis.set(title=title, xlabel=unit, xscale="log" if log else "linear")
    if len(series) > 1:
        axis.legend(frameon=False, fontsize=8, loc="upper left", bbox_to_anchor=(1.0, 1.0))
    guessed = "" if guess is None else f"; guess {number.format(guess)}"
    show(figure, origin, f"{title}: {_told(series, number)}{guessed}")


def rounding(title: str, exact: "np.ndarray", rounded: Mapping[str, "np.ndarray"]) -> None:
    """For each format, the relative error that rounding made of every weight, against the weight's size.

    Above each stands the share of the weights that it made zero.
    Of more than two hundred thousand weights, every n-th is drawn.
    """
    import numpy as np

    figure, axes = empty_figure(len(rounded), height=2.8)
    thin = slice(None, None, max(1, exact.size // MAX_DOTS))
    shown = exact.ravel()[thin]
    size = np.abs(shown)
    lost = {name: np.mean((values == 0) & (exact != 0)) for name, values in rounded.items()}
    told = {name: f"{name}: {share:.0%} of the weights become zero" for name, share in lost.items()}
    for axis, (name, values) in zip(axes, rounded.items(), strict=True):
        error = np.abs(values.ravel()[thin] - shown) / np.maximum(size, 1e-12)
        keep = size > size.max() * 1e-5
        axis.scatter(size[keep], 100 * error[keep], s=1, alpha=0.15, color=BLUE, rasterized=True)
        axis.axhline(6.25, color=ORANGE, linestyle="--", linewidth=1)
        axis.set(xscale="log", ylim=(0, 105), title=told[name], xlabel="size of the weight")
    axes[0].set_ylabel("relative error, %")
    axes[0].text(size.max(), 8, "6.25 %", ha="right", fontsize=8)
    figure.suptitle(title, fontsize=10)
    show(figure, "measured here", f"{title}: {', '.join(told.values())}; relative rounding error against weight size")


def lines(
    series: Mapping[str, tuple[Sequence[float], Sequence[float]]],
    *,
    title: str,
    x: str,
    y: str,
    origin: str = "measured here",
    log_y: bool = False,
    x_base: int = 0,
    marks: Mapping[str, float] | None = None,
) -> None:
    """Lines with markers: ``series[name] = (x values, y values)``.

    ``x_base`` 2 makes a logarithmic x axis with a tick at every value. Ticks are plain numbers, not powers.
    ``marks``: label -> x of a dotted vertical line.
    """
    from matplotlib.ticker import LogFormatter

    figure, (axis,) = empty_figure()
    for index, (name, (at, values)) in enumerate(series.items()):
        style = {"color": COLORS[index % 4], "marker": MARKERS[index % 4], "linestyle": DASHES[index % 4]}
        axis.plot(at, values, label=name, **style)
    axis.set(title=title, xlabel=x, ylabel=y, yscale="log" if log_y else "linear")
    if x_base:
        at_all = sorted({value for at, _ in series.values() for value in at})
        axis.set_xscale("log", base=x_base)
        axis.set_xticks(at_all, [f"{value:g}" for value in at_all])
    elif all(value == int(value) for at, _ in series.values() for value in at):
        axis.xaxis.get_major_locator().set_params(integer=True)
    if log_y:
        axis.yaxis.set_major_formatter("{x:g}")
        axis.yaxis.set_minor_formatter(LogFormatter())
    for index, (label, at_x) in enumerate((marks or {}).items()):
        axis.axvline(at_x, color="black", linestyle=":", linewidth=1)
        axis.annotate(f" {label}", (at_x, 0.95 - 0.08 * index), xycoords=("data", "axes fraction"), fontsize=8)
    axis.grid(alpha=0.2)
    axis.legend(frameon=False, fontsize=8)
    marked = f"; marked: {', '.join(marks)}" if marks else ""
    told = "; ".join(f"{name} {_ends(*points)}" for name, points in series.items())
    show(figure, origin, f"{title}: {y} against {x}: {told}{marked}")


def batching(
    records: Mapping[str, Sequence["StepRecord"]], *, guess: float | None = None, origin: str = "measured here"
) -> None:
    """One row per request, one column per engine step: reading the prompt, generating, or a slot kept and unused.

    ``guess``: steps that somebody expected of the run with the fewest, a dotted line in its panel.
    """
    import numpy as np
    from matplotlib.colors import ListedColormap
    from matplotlib.patches import Patch

    phases = {"context": BLUE, "generation": GREEN, "padding": ORANGE}
    colors = ListedColormap(["white", *phases.values()])
    figure, axes = empty_figure(len(records), height=3.4)
    longest = max(len(steps) for steps in records.values())
    for axis, (name, steps) in zip(axes, records.items(), strict=True):
        order = list(dict.fromkeys(request for step in steps for request in step.phases))
        grid = np.zeros((len(order), longest), dtype=int)
        for column, step in enumerate(steps):
            for request, phase in step.phases.items():
                grid[order.index(request), column] = 1 + list(phases).index(phase)
        axis.imshow(grid, aspect="auto", cmap=colors, vmin=0, vmax=3, interpolation="nearest")
        rows, columns = np.nonzero(grid == 1)
        axis.scatter(columns, rows, marker="|", color=BLUE, s=45, linewidths=2)  # one step is a pixel wide at most
        axis.axvline(len(steps) - 0.5, color="black", linewidth=1)
        axis.set(title=f"{name}: {len(steps)} steps", xlabel="engine step")
    fewest, most = (choose(records, key=lambda name: len(records[name])) for choose in (min, max))
    if guess is not None:
        panel = axes[list(records).index(fewest)]
        panel.axvline(guess, color="black", linestyle=":", linewidth=1)
        panel.annotate("guess ", (guess, 0.02), xycoords=("data", "axes fraction"), ha="right", fontsize=8)
    finding = f"{fewest}: {len(records[fewest])} steps"
    if fewest != most:
        finding += f", where {most} takes {len(records[most])}"
        figure.suptitle(finding, fontsize=10)
    axes[0].set_ylabel("request")
    labels = {"context": "reads its prompt", "generation": "generates", "padding": "slot kept, unused"}
    figure.legend(
        handles=[Patch(color=color, label=labels[phase]) for phase, color in phases.items()],
        loc="outside lower left", ncols=3, frameon=False, fontsize=8,
    )  # fmt: skip
    show(figure, origin, f"{finding}: requests against engine steps, {', '.join(labels.values())}")


def requests(timelines: Sequence["StreamTimeline"], *, title: str) -> None:
    """One line per request: waiting for its first token, then receiving the others."""
    from matplotlib.patches import Patch

    figure, (axis,) = empty_figure(height=4.2)
    start = min(timeline.sent_s for timeline in timelines)
    rows = sorted(timelines, key=lambda timeline: timeline.sent_s)
    for row, timeline in enumerate(rows):
        sent, first, last = (at - start for at in (timeline.sent_s, timeline.arrived_s[0], timeline.arrived_s[-1]))
        axis.barh(row, first - sent, left=sent, height=0.7, color=GREY)
        axis.barh(row, last - first, left=first, height=0.7, color=BLUE)
    axis.invert_yaxis()
    axis.set(title=title, xlabel="seconds (this machine's)", ylabel="request")
    phases = {"waits for its first token": GREY, "receives tokens": BLUE}
    handles = [Patch(color=color, label=label) for label, color in phases.items()]
    axis.legend(handles=handles, frameon=False, fontsize=8, loc="lower left")
    show(figure, "measured here", f"{title}: time from sending to first and last token of each request")


def stacked(
    series: Mapping[str, Mapping[str, float]],
    *,
    title: str,
    unit: str,
    origin: str,
    number: str = "{:,.0f}",
    limit: tuple[float, str] | None = None,
) -> None:
    """One horizontal bar per name, made of its parts: ``series[name][part] = value``; the sum is written at its end.

    A part keeps its colour when parts before it are zero everywhere, so that plots of one chapter agree. ``limit``: a
    value that no bar can pass, in the plot's unit, and its name: a dashed line.
    """
    parts = list(dict.fromkeys(part for values in series.values() for part in values))
    totals = [sum(values.values()) for values in series.values()]
    figure, (axis,) = empty_figure(height=1.3 + 0.4 * len(series), width=9.0)
    left = [0.0] * len(series)
    for index, part in enumerate(parts):
        widths = [values.get(part, 0.0) for values in series.values()]
        if not any(widths):
            continue
        style = {"color": MANY_COLORS[index % len(MANY_COLORS)], "hatch": HATCHES[index % 4], "edgecolor": "white"}
        drawn = axis.barh(range(len(series)), widths, 0.7, left=left, label=part, linewidth=0.5, **style)
        texts = [number.format(width) if width > 0.06 * max(totals) else "" for width in widths]
        axis.bar_label(drawn, texts, label_type="center", fontsize=7, bbox={"fc": "white", "ec": "none", "pad": 0.8})
        left = [begin + width for begin, width in zip(left, widths, strict=True)]
    for row, total in enumerate(totals):
        axis.text(total, row, f" {number.format(total)}", va="center", fontsize=8)
    if limit is not None:
        axis.axvline(limit[0], color="black", linestyle="--", linewidth=1)
        axis.annotate(limit[1], (limit[0], -0.5), (-4, 2), textcoords="offset points", ha="right", fontsize=8)
    axis.set_yticks(range(len(series)), list(series))
    axis.invert_yaxis()
    axis.margins(x=0.12)
    axis.set(title=title, xlabel=unit)
    figure.legend(loc="outside lower left", ncols=3, frameon=False, fontsize=7)
    at_most = f"; {limit[1]} at {number.format(limit[0])} {unit}" if limit else ""
    show(figure, origin, f"{title}: {_told(series, number)}{at_most}")


def arrivals(
    series: Mapping[str, Sequence[float]],
    back_s: Mapping[str, float],
    *,
    title: str,
    bucket_ms: int = 50,
    guesses: Mapping[str, float] | None = None,
) -> None:
    """Requests per slice of time: ``series[name] = seconds``, one panel each; ``back_s``: when the server was back.

    ``guesses``: requests that somebody expected of a series at most, a dotted line in its panel.
    """
    import numpy as np

    figure, axes = empty_figure(len(series), height=3.0, width=9.0)
    edges = np.arange(0.0, max(max(times) for times in series.values()) + 2e-3 * bucket_ms, 1e-3 * bucket_ms)
    counts = {name: np.histogram(times, edges)[0] for name, times in series.items()}
    highest = max(int(count.max()) for count in counts.values())
    for index, (axis, (name, count)) in enumerate(zip(axes, counts.items(), strict=True)):
        axis.bar(edges[:-1], count, 1e-3 * bucket_ms, align="edge", color=COLORS[index % 4])
        axis.set(title=f"{name}: at most {count.max()} at once", xlabel="seconds", ylim=(0, 1.15 * highest))
        if name in back_s:
            axis.axvline(back_s[name], color=GREY, linestyle="--", linewidth=1)
            axis.text(back_s[name], 1.08 * highest, " the server is back", color="black", fontsize=8)
        if guesses and name in guesses:
            axis.axhline(guesses[name], color="black", linestyle=":", linewidth=1)
    axes[0].set_ylabel(f"requests per {bucket_ms} ms")
    figure.suptitle(title, fontsize=10)
    show(figure, "measured here", f"{title}: " + "; ".join(f"{n} peaks at {c.max()}" for n, c in counts.items()))


def throughput_latency(summaries: Sequence["Summary"], *, title: str) -> None:
    """TTFT and TPOT against output throughput, one point per load: p50 as a line, p90 as a dashed one."""
    figure, axes = empty_figure(2, height=3.4, width=9.0)
    tokens_per_s = [summary.output_tokens_per_s for summary in summaries]
    streams = [summary.load.concurrency for summary in summaries]
    for axis, name in zip(axes, ("ttft_ms", "tpot_ms"), strict=True):
        percentiles = [getattr(summary, name) for summary in summaries]
        axis.plot(tokens_per_s, [each.p50 for each in percentiles], color=BLUE, marker="o", label="p50")
        axis.plot(tokens_per_s, [each.p90 for each in percentiles], "--", color=ORANGE, marker="s", label="p90")
        highest = max(each.p90 for each in percentiles)
        axis.set(xlabel="output tokens/s", ylabel=f"{name.removesuffix('_ms').upper()}, ms")
        axis.set_ylim(-0.1 * highest, 1.05 * highest)  # the lowest labels stand below their points, on no axis
        axis.axhline(0, color=GREY, linewidth=0.8)
        label_points(axis, tokens_per_s, [each.p50 for each in percentiles], streams, shift=(5, -11))
        axis.grid(alpha=0.2)
    axes[0].legend(frameon=False, fontsize=8)
    figure.suptitle(f"{title} (numbers at the points: streams)", fontsize=10)
    show(figure, "measured here", f"{title}: TTFT and TPOT against output tokens/s for {len(summaries)} loads")


def in_flight(runs: Mapping[str, tuple[Sequence[float], Sequence[int]]], *, title: str) -> None:
    """Requests in flight over time: ``runs[name] = (seconds, count from then on)``, one panel each on one scale."""
    figure, axes = empty_figure(len(runs), height=2.8, width=9.0)
    highest = max(max(counts) for _, counts in runs.values())
    for axis, (name, (seconds, counts)) in zip(axes, runs.items(), strict=True):
        axis.fill_between(seconds, counts, step="post", color=BLUE, alpha=0.25, linewidth=0)
        axis.step(seconds, counts, where="post", color=BLUE, linewidth=1)
        axis.set(title=name, xlabel="seconds", ylim=(0, 1.08 * highest))
    axes[0].set_ylabel("requests in flight")
    figure.suptitle(title, fontsize=10)
    show(figure, "measured here", f"{title}: " + "; ".join(f"{n} at most {max(c)}" for n, (_, c) in runs.items()))


def life(states: Sequence[tuple[datetime, str]], end: datetime, *, now: datetime, title: str) -> None:
    """One row per state, in seconds since the first one was seen, and a line where the time to live is over.

    The last state lasts until ``now``, unless it is "gone".
    """
    born = states[0][0]
    rows = list(dict.fromkeys(state for _, state in states if state != "gone"))
    figure, (axis,) = empty_figure(height=1.2 + 0.35 * len(rows))
    for (at, state), (until, _) in zip(states, [*states[1:], (now, "")], strict=True):
        if state in rows:
            start, length = (at - born).total_seconds(), (until - at).total_seconds()
            color = STATE_COLORS.get(state, GREY)
            axis.broken_barh([(start, length)], (rows.index(state) - 0.35, 0.7), color=color)
            axis.annotate(f" {length:.1f} s", (start + length, rows.index(state)), va="center", fontsize=8)
    over = (end - born).total_seconds()
    axis.axvline(over, color="black", linestyle="--", linewidth=1)
    axis.annotate(" its time is over", (over, -0.5), va="bottom", fontsize=8)
    axis.set_yticks(range(len(rows)), rows)
    axis.invert_yaxis()
    axis.set_xlim(0, 1.15 * max((now - born).total_seconds(), over))
    axis.set(title=title, xlabel="seconds since its creation")
    told = ", ".join(f"{state} from {(at - born).total_seconds():.1f} s" for at, state in states)
    show(figure, "measured here", f"{title}: {told}; its time was over at {over:.1f} s")
