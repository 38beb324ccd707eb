"""Plots of what the planner says: a user's speed against a GPU's output, and steps under the roofs of their GPU."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from playbook.plots.charts import DASHES, GREY, MANY_COLORS, MARKERS, empty_figure, label_points, show

if TYPE_CHECKING:
    from serving_planner.frontier import FrontierPoint
    from serving_planner.roofline import Roofline, StepPoint

ROOF_DASHES = {"fp8": "-", "bf16": "--"}


def frontier(points: Sequence["FrontierPoint"], *, title: str, promise_ms: float | None = None) -> None:
    """Output tokens/s per GPU against tokens/s per user, a line for each way with rising load.

    Ways with a point on the front have a colour, and the requests in flight stand at those points; the others are
    thin and grey, one style for each precision. ``promise_ms``: time per token that was promised, as a line.
    """
    ways: dict[str, list[FrontierPoint]] = {}
    for point in points:
        ways.setdefault(point.way, []).append(point)
    front = sorted((point for point in points if point.on_front), key=lambda point: point.tokens_per_s_per_user)
    figure, (axis,) = empty_figure(height=4.4, width=9.0)
    axis.plot(*_both(front), color="black", alpha=0.15, linewidth=9, solid_capstyle="round", label="the front")
    best = [name for name, own in ways.items() if any(point.on_front for point in own)]
    for index, name in enumerate(best):
        style = {"color": MANY_COLORS[index % 10], "marker": MARKERS[index % 4], "linestyle": DASHES[index % 4]}
        axis.plot(*_both(ways[name]), label=name, markersize=5, **style)
    _others(axis, [own for name, own in ways.items() if name not in best])
    if promise_ms is not None:
        axis.axvline(1e3 / promise_ms, color="black", linestyle=":", linewidth=1)
        axis.annotate(
            f" {promise_ms:g} ms per token", (1e3 / promise_ms, 0.97), xycoords=("data", "axes fraction"), fontsize=8
        )
    axis.set(title=f"{title} (numbers at the front: requests in flight)")
    axis.set(xlabel="output tokens/s per user", ylabel="output tokens/s per GPU", xlim=(0, None), ylim=(0, None))
    label_points(axis, *_both(front), [point.concurrency for point in front], shift=(6, 5))
    axis.grid(alpha=0.2)
    axis.legend(frameon=False, fontsize=8)
    show(figure, "planned", f"{title}: of {len(ways)} ways the front has " + _ends(front))


def _others(axis: Any, ways: Sequence[Sequence["FrontierPoint"]]) -> None:
    """Ways that never lead: one entry in the legend for each precision."""
    precisions = list(dict.fromkeys(own[0].weights for own in ways))
    for index, weights in enumerate(precisions):
        label = f"other ways, {weights}"
        for own in ways:
            if own[0].weights == weights:
                axis.plot(*_both(own), color=GREY, linestyle=DASHES[index % 4], linewidth=0.7, label=label, zorder=1)
                label = "_"


def _both(points: Sequence["FrontierPoint"]) -> tuple[list[float], list[float]]:
    return [each.tokens_per_s_per_user for each in points], [each.output_tokens_per_s_per_gpu for each in points]


def _ends(front: Sequence["FrontierPoint"]) -> str:
    ends = dict.fromkeys((front[0], front[-1]))
    return " to ".join(
        f"{end.way} with {end.concurrency} in flight: {end.tokens_per_s_per_user:,.1f} tokens/s per user, "
        f"{end.output_tokens_per_s_per_gpu:,.0f} per GPU"
        for end in ends
    )


def roofline(found: "Roofline", *, title: str) -> None:
    """Steps of an engine as points under the roofs of its GPU: FLOP/s against FLOP per byte, both logarithmic."""
    figure, (axis,) = empty_figure(height=4.2, width=8.5)
    _roofs(axis, found)
    for index, kind in enumerate(dict.fromkeys(point.kind for point in found.points)):
        own = [point for point in found.points if point.kind == kind]
        rates = [point.flops_per_s_per_gpu / 1e12 for point in own]
        style = {"color": MANY_COLORS[index], "marker": MARKERS[index], "linestyle": DASHES[index]}
        axis.plot([point.flops_per_byte for point in own], rates, **style)
        for point, rate in zip(own, rates, strict=True):
            side, shift = ("left", 7) if kind == "decode" else ("right", -7)
            text, at = f"{point.name}: {point.step_ms:.3g} ms", (point.flops_per_byte, rate)
            axis.annotate(text, at, (shift, -11), textcoords="offset points", fontsize=8, ha=side)
    axis.set(title=title, xlabel="FLOP per byte", ylabel="TFLOP/s per GPU")
    axis.set_ylim(min(point.flops_per_s_per_gpu for point in found.points) / 2e12)
    axis.grid(alpha=0.15)
    show(figure, "planned", f"{title}: " + "; ".join(map(_step, found.points)))


def _roofs(axis: Any, found: "Roofline") -> None:
    """The slope of the bandwidth up to each peak, on axes that hold the points and every ridge."""
    at = [point.flops_per_byte for point in found.points]
    ridges = {name: found.ridge_flops_per_byte(name) for name in found.peaks_flops_per_s}
    start, end = min(at) / 2, 4 * max(*at, *ridges.values())
    axis.set(xscale="log", yscale="log", xlim=(start, end))
    for peak in dict.fromkeys(found.peaks_flops_per_s.values()):
        names = [name for name, value in found.peaks_flops_per_s.items() if value == peak]
        first, ridge = found.roof_flops_per_s(start, names[0]), ridges[names[0]]
        roof = (first / 1e12, peak / 1e12, peak / 1e12)
        style = {"color": "black", "linestyle": ROOF_DASHES.get(names[0], ":"), "linewidth": 1.2}
        axis.plot((start, ridge, end), roof, **style)
        text = f"{' and '.join(names).upper()} peak: {peak / 1e12:,.0f} TFLOP/s, from {ridge:,.0f} FLOP per byte"
        axis.annotate(text, (end, peak / 1e12), (0, -3), textcoords="offset points", ha="right", va="top", fontsize=8)
    middle = (start * min(ridges.values())) ** 0.5
    text = f"memory: {found.bandwidth_bytes_per_s / 1e12:.3g} TB/s"
    roof_there = middle * found.bandwidth_bytes_per_s / 1e12
    axis.annotate(text, (middle, roof_there), (-8, 2), textcoords="offset points", ha="right", fontsize=8)


def _step(point: "StepPoint") -> str:
    rate = point.flops_per_s_per_gpu / 1e12
    return f"{point.name} at {point.flops_per_byte:.3g} FLOP/byte and {rate:.3g} TFLOP/s"
