"""The life of an endpoint on one time axis."""

from collections.abc import Sequence
from datetime import datetime

from playbook.plots.canvas import BLUE, GREEN, GREY, ORANGE, empty_figure, show

COLORS = {"Creating": ORANGE, "InService": GREEN, "Updating": BLUE}
States = Sequence[tuple[datetime, str]]


def life(states: States, end: datetime, *, now: datetime, title: str) -> None:
    """One row per state, in seconds since the first one was seen, and a line where the time to live is over.

    The last state lasts until ``now``, unless it is "gone".
    """
    born = states[0][0]
    rows = list(dict.fromkeys(state for _, state in states if state != "gone"))
    figure, (axis,) = empty_figure(height=1.2 + 0.35 * len(rows))
    for (at, state), (until, _) in zip(states, [*states[1:], (now, "")], strict=True):
        if state in rows:
            start, length = (at - born).total_seconds(), (until - at).total_seconds()
            color = COLORS.get(state, GREY)
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
