"""Plots of the chapters. Each carries its numbers' origin and returns nothing: it shows one figure.

Colours are the Okabe-Ito palette (readable with colour-blindness); no information is carried by colour alone.
"""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np

    from playbook.lanes.embedded.protocol import StepRecord
    from playbook.measure.streams import StreamTimeline

BLUE, ORANGE, GREEN, GREY = "#0072B2", "#E69F00", "#009E73", "#999999"
COLORS = (BLUE, ORANGE, GREEN, GREY)
HATCHES = ("", "//", "..", "xx")
DASHES = ("-", "--", ":", "-.")


def _figure(columns: int = 1, *, height: float = 3.2, width: float = 8.0) -> tuple[Any, Any]:
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(1, columns, figsize=(width, height), layout="constrained", squeeze=False)
    for axis in axes[0]:
        axis.spines[["top", "right"]].set_visible(False)
    return figure, axes[0]


def _show(figure: Any, origin: str, alt: str) -> None:
    import matplotlib.pyplot as plt
    from IPython.display import display

    figure.text(0.995, 0.005, origin, ha="right", va="bottom", fontsize=7, color=GREY)
    display(figure, metadata={"image/png": {"alt": alt}})  # type: ignore[no-untyped-call]
    plt.close(figure)


def bars(
    series: Mapping[str, Mapping[str, float]],
    *,
    title: str,
    unit: str,
    origin: str = "measured here",
    log: bool = False,
    number: str = "{:.3g}",
) -> None:
    """Grouped horizontal bars: ``series[legend][group] = value``, each value written at its bar."""
    groups = list(dict.fromkeys(group for values in series.values() for group in values))
    figure, (axis,) = _figure(height=0.9 + 0.32 * len(groups) * len(series))
    thickness = 0.8 / len(series)
    for index, (name, values) in enumerate(series.items()):
        at = [groups.index(group) + (index - (len(series) - 1) / 2) * thickness for group in values]
        color, hatch = COLORS[index % 4], HATCHES[index % 4]
        drawn = axis.barh(at, list(values.values()), thickness * 0.92, label=name, color=color, hatch=hatch)
        axis.bar_label(drawn, [number.format(value) for value in values.values()], padding=3, fontsize=8)
    axis.set_yticks(range(len(groups)), groups)
    axis.invert_yaxis()
    axis.margins(x=0.15)
    axis.set(title=title, xlabel=unit, xscale="log" if log else "linear")
    if len(series) > 1:
        axis.legend(frameon=False, fontsize=8, loc="upper left", bbox_to_anchor=(1.0, 1.0))
    _show(figure, origin, f"{title}: " + "; ".join(f"{n} {dict(v)}" for n, v in series.items()))


def rounding(title: str, exact: "np.ndarray", rounded: Mapping[str, "np.ndarray"]) -> None:
    """For each format, the relative error that rounding made of every weight, against the weight's size."""
    import numpy as np

    figure, axes = _figure(len(rounded), height=2.8)
    size = np.abs(exact).ravel()
    for axis, (name, values) in zip(axes, rounded.items(), strict=True):
        error = np.abs(values.ravel() - exact.ravel()) / np.maximum(size, 1e-12)
        keep = size > size.max() * 1e-5
        axis.scatter(size[keep], 100 * error[keep], s=1, alpha=0.15, color=BLUE, rasterized=True)
        axis.axhline(6.25, color=ORANGE, linestyle="--", linewidth=1)
        axis.set(xscale="log", ylim=(0, 105), title=f"{title}: {name}", xlabel="size of the weight")
    axes[0].set_ylabel("relative error, %")
    axes[0].text(size.max(), 8, "6.25 %", color=ORANGE, ha="right", fontsize=8)
    _show(figure, "measured here", f"{title}: relative rounding error against weight size for {', '.join(rounded)}")


def lines(
    series: Mapping[str, tuple[Sequence[float], Sequence[float]]],
    *,
    title: str,
    x: str,
    y: str,
    origin: str = "measured here",
    log_y: bool = False,
    x_base: int = 0,
) -> None:
    """Lines with markers: ``series[name] = (x values, y values)``; ``x_base`` 2 makes a logarithmic x axis."""
    figure, (axis,) = _figure()
    for index, (name, (at, values)) in enumerate(series.items()):
        style = {"color": COLORS[index % 4], "marker": "os^D"[index % 4], "linestyle": DASHES[index % 4]}
        axis.plot(at, values, label=name, **style)
    axis.set(title=title, xlabel=x, ylabel=y, yscale="log" if log_y else "linear")
    if x_base:
        axis.set_xscale("log", base=x_base)
    axis.grid(alpha=0.2)
    axis.legend(frameon=False, fontsize=8)
    _show(figure, origin, f"{title}: {y} against {x} for {', '.join(series)}")


def batching(records: Mapping[str, Sequence["StepRecord"]]) -> None:
    """One row per request, one column per engine step: reading the prompt, generating, or a slot kept and unused."""
    import numpy as np
    from matplotlib.colors import ListedColormap
    from matplotlib.patches import Patch

    phases = {"context": BLUE, "generation": GREEN, "padding": ORANGE}
    colors = ListedColormap(["white", *phases.values()])
    figure, axes = _figure(len(records), height=3.4)
    longest = max(len(steps) for steps in records.values())
    for axis, (name, steps) in zip(axes, records.items(), strict=True):
        order = list(dict.fromkeys(request for step in steps for request in step.phases))
        grid = np.zeros((len(order), longest), dtype=int)
        for column, step in enumerate(steps):
            for request, phase in step.phases.items():
                grid[order.index(request), column] = 1 + list(phases).index(phase)
        axis.imshow(grid, aspect="auto", cmap=colors, vmin=0, vmax=3, interpolation="nearest")
        axis.axvline(len(steps) - 0.5, color="black", linewidth=1)
        axis.set(title=f"{name}: {len(steps)} steps", xlabel="engine step")
    axes[0].set_ylabel("request")
    labels = {"context": "reads its prompt", "generation": "generates", "padding": "slot kept, unused"}
    figure.legend(
        handles=[Patch(color=color, label=labels[phase]) for phase, color in phases.items()],
        loc="outside lower left", ncols=3, frameon=False, fontsize=8,
    )  # fmt: skip
    alt = "Requests against engine steps: " + ", ".join(f"{n} takes {len(s)} steps" for n, s in records.items())
    _show(figure, "measured here", alt)


def requests(timelines: Sequence["StreamTimeline"], *, title: str) -> None:
    """One line per request: waiting for its first token, then receiving the others."""
    from matplotlib.patches import Patch

    figure, (axis,) = _figure(height=4.2)
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
    _show(figure, "measured here", f"{title}: time from sending to first and last token of each request")
