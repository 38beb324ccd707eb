"""Where a step's GPU time goes: one tidy table of kernels by class, from any of the profilers' files.

Columns of a table: step, phase, kernel, class, precision, precision_from, fused, calls, total_us, us_per_step, share,
source, origin.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from gpu_measurements.sources import UNCLASSIFIED, Flow, classify, patterns, read_capture
from serving_base.errors import UsageError

if TYPE_CHECKING:
    import pandas as pd


Phase = Literal["", "prefill", "decode"]
PHASE_CLASS = {"prefill": "context_attention", "decode": "decode_attention", "": "attention"}
KEYS = ["kernel", "class", "precision", "precision_from", "fused"]


def kernel_table(
    capture: "pd.DataFrame | Path",
    *,
    step: str = "",
    phase: Phase = "",
    steps: int = 1,
    gemm_precision: str = "",
    flow: Flow = "cuda",
    source: str = "",
    origin: str = "measured here",
) -> "pd.DataFrame":
    """The table of one capture of ``steps`` engine steps, longest first.

    What names do not tell comes from context, and ``precision_from`` says so: ``phase`` decides which attention
    FlashAttention is; ``gemm_precision`` is the type of GEMMs whose name has none. A GEMM that is called once a step
    while others are called once a layer is lm_head, unless its name says FP8 (quantization leaves lm_head alone).
    """
    if steps < 1:
        raise UsageError(f"steps is {steps}", fix="say how many engine steps the capture holds, 1 or more")
    if phase not in PHASE_CLASS:
        raise UsageError(f"unknown phase {phase!r}", fix="use 'prefill', 'decode' or ''")
    frame = read_capture(capture) if isinstance(capture, Path) else capture
    source = source or (capture.name if isinstance(capture, Path) else "")
    rows = _summed(_named(frame, flow, phase, gemm_precision))
    if flow == "cuda":
        rows = _with_lm_head(rows, steps)
    rows["us_per_step"] = rows["total_us"] / steps
    rows["share"] = rows["total_us"] / rows["total_us"].sum()
    table = rows.assign(step=step, phase=phase, source=source, origin=origin)
    first = ["step", "phase", *KEYS]
    ordered = table[[*first, *(name for name in table.columns if name not in first)]]
    return ordered.sort_values("total_us", ascending=False, ignore_index=True)


def _named(frame: "pd.DataFrame", flow: Flow, phase: Phase, gemm_precision: str) -> "pd.DataFrame":
    found = [classify(kernel, flow) for kernel in frame["kernel"]]
    named = frame.copy()
    named["class"] = [pattern.kernel_class for pattern in found]
    named["precision"] = [pattern.precision for pattern in found]
    named["precision_from"] = ["name" if pattern.precision else "" for pattern in found]
    named["fused"] = [pattern.fused for pattern in found]
    if "start_us" in named:
        named = _name_by_position(named)
    named["class"] = named["class"].replace("attention", PHASE_CLASS[phase])
    untold = (named["class"] == "gemm") & (named["precision"] == "")
    named.loc[untold, ["precision", "precision_from"]] = (
        [gemm_precision, "context"] if gemm_precision else ["unknown", ""]
    )
    return named


def _name_by_position(events: "pd.DataFrame") -> "pd.DataFrame":
    """Classify what a compiler named after nothing by the kernel that follows it on its stream."""
    rule = patterns().nameless
    events = events.sort_values(["stream", "start_us"], ignore_index=True)
    nameless = events["kernel"].map(lambda kernel: rule.regex.search(kernel) is not None)
    follower = events["class"].mask(nameless).groupby(events["stream"]).bfill()
    events.loc[nameless & (follower == rule.before), "class"] = rule.kernel_class
    return events


def _summed(named: "pd.DataFrame") -> "pd.DataFrame":
    if "start_us" in named:
        named = named.assign(calls=1, total_us=named["duration_us"])
    return named.groupby(KEYS, sort=False, as_index=False)[["calls", "total_us"]].sum()


def _with_lm_head(rows: "pd.DataFrame", steps: int) -> "pd.DataFrame":
    gemm = rows["class"] == "gemm"
    once = gemm & (rows["calls"] == steps) & (rows["precision"] != "fp8")
    layers = gemm & (rows["calls"] > steps)
    return rows.assign(**{"class": rows["class"].mask(once, "lm_head")}) if layers.any() else rows


def busy_us(events: "pd.DataFrame") -> float:
    """Microseconds in which at least one kernel ran: the union of the intervals, never more than their sum."""
    if "start_us" not in events:
        raise UsageError(
            "a kernel sum has no intervals",
            why="it holds totals only",
            fix="use a trace or an SQLite export, or take the sum, which counts overlapping kernels twice",
        )
    ordered = events.sort_values("start_us")
    start = ordered["start_us"].astype(float)
    end = start + ordered["duration_us"]
    covered = end.cummax().shift(fill_value=float("-inf"))
    return float((end - start.where(start > covered, covered)).clip(lower=0).sum())


def shorter_all_reduces(events: "pd.DataFrame", peer: "pd.DataFrame") -> "pd.DataFrame":
    """``events`` of one rank, each all-reduce cut to the shorter of the two ranks' kernels of the same call.

    A rank's all-reduce kernel also waits for the other rank; the shorter of the two waited least. The cut is the wait.
    :class:`UsageError` when the captures do not hold the same calls.
    """
    own, other = (_all_reduces(frame) for frame in (events, peer))
    if len(own) != len(other):
        raise UsageError(
            f"one rank made {len(own)} all-reduces and the other {len(other)}",
            why="the captures are not of the same steps",
            fix="capture both ranks of one run, over the same iterations",
        )
    shorter = own["duration_us"].clip(upper=other["duration_us"].to_numpy())
    return events.assign(duration_us=events["duration_us"].where(~events.index.isin(own.index), shorter))


def read_ranks(files: Sequence[Path]) -> "pd.DataFrame":
    """One rank's capture; with a second rank's file, the first's launches without their wait in all-reduces."""
    own, *peers = [read_capture(path) for path in files]
    return shorter_all_reduces(own, peers[0]) if peers else own


def _all_reduces(events: "pd.DataFrame") -> "pd.DataFrame":
    ours = [classify(kernel).kernel_class == "all_reduce" for kernel in events["kernel"]]
    return events[ours].sort_values("start_us")


def unclassified_share(table: "pd.DataFrame") -> float:
    """Share of the time, 0 to 1, that no pattern explains."""
    return float(table.loc[table["class"] == UNCLASSIFIED, "share"].sum())


def by_class(table: "pd.DataFrame") -> "pd.DataFrame":
    """Sums per class in the classes' order: calls, us_per_step, share. ``unclassified`` is always there."""
    return _totals(table, {name: name for name in patterns().classes})


def by_group(table: "pd.DataFrame") -> "pd.DataFrame":
    """As :func:`by_class`, in the coarse groups: norm, activation and rotary embedding are one."""
    return _totals(table, {name: entry.group for name, entry in patterns().classes.items()})


def _totals(table: "pd.DataFrame", row_of_class: Mapping[str, str]) -> "pd.DataFrame":
    rows = table["class"].map(row_of_class)
    totals = table.groupby(rows)[["calls", "us_per_step", "share"]].sum()
    order = [name for name in dict.fromkeys(row_of_class.values()) if name in totals.index or name == UNCLASSIFIED]
    return totals.reindex(order, fill_value=0).rename_axis("class")


def compare(tables: "Mapping[str, pd.DataFrame]", *, groups: bool = False) -> "pd.DataFrame":
    """Tables of one step in several precisions side by side; the first is the baseline.

    Rows: classes by label, and ``total``. Columns: ``<name> us`` and ``<name> share`` of each, and
    ``<baseline>/<name>`` of the others: above 1 the class became faster. A class that one of them lacks has no ratio.
    """
    import pandas as pd

    labels = patterns().groups if groups else {key: entry.label for key, entry in patterns().classes.items()}
    totals = {name: (by_group if groups else by_class)(table)["us_per_step"] for name, table in tables.items()}
    present = [key for key in labels if any(key in own.index for own in totals.values())]
    us = pd.DataFrame(totals).reindex(present).fillna(0.0).rename(index=labels)
    total = us.sum()
    us.loc["total"] = total
    baseline, *others = tables
    columns = {f"{name} us": us[name] for name in tables} | {f"{name} share": us[name] / total[name] for name in tables}
    for name in others:
        both = (us[baseline] > 0) & (us[name] > 0)
        columns[f"{baseline}/{name}"] = (us[baseline] / us[name]).where(both)
    return pd.DataFrame(columns).rename_axis("class")


@dataclass(frozen=True)
class StepTables:
    """The kernels of an engine's steps: ``tables[phase][column]``, phases ``prefill`` and ``decode``.

    ``own``: the columns that were measured in this run; ``steps``: engine steps in them, by phase; ``like``: whether
    the columns are of the same model and load, so that their microseconds may be compared; ``remark``: Markdown, how
    far to trust them, or what is missing.
    """

    tables: "Mapping[Phase, Mapping[str, pd.DataFrame]]"
    own: tuple[str, ...]
    steps: Mapping[str, int]
    like: bool
    remark: str

    def compare(self, phase: Phase) -> "pd.DataFrame":
        """The columns of one phase side by side; only shares where they are of different loads."""
        table = compare(self.tables[phase])
        return table if self.like else table.filter(like=" share")

    def shares(self) -> dict[str, dict[str, float]]:
        """Percent of each group in each phase and column, for a plot."""
        return {
            f"{column}, {phase}": {
                part: 100 * us / table["us_per_step"].sum() for part, us in labelled(table, groups=True).items()
            }
            for phase, columns in self.tables.items()
            for column, table in columns.items()
        }

    def names(self) -> dict[str, str]:
        """Class -> the kernel of it that took longest, in the first own column."""
        frames = [columns[self.own[0]] for columns in self.tables.values()] if self.own else []
        return {
            str(name): str(kernel)
            for frame in frames
            for name, kernel in frame.groupby("class", sort=False)["kernel"].first().items()
        }


def labelled(table: "pd.DataFrame", *, groups: bool = False) -> dict[str, float]:
    """Label of every class (or group) -> its microseconds per step, in order, for a plot."""
    totals = (by_group if groups else by_class)(table)["us_per_step"]
    labels = patterns().groups if groups else {key: entry.label for key, entry in patterns().classes.items()}
    return {label: float(totals.get(key, 0.0)) for key, label in labels.items()}


def readable(comparison: "pd.DataFrame") -> "pd.DataFrame":
    """A comparison as text: whole microseconds, shares in percent, ratios with two digits, nothing for no ratio."""

    def written(column: "pd.Series[float]") -> "pd.Series[str]":
        name = str(column.name)
        form = "{:,.0f}" if name.endswith(" us") else "{:.1%}" if name.endswith(" share") else "{:.2f}"
        return column.map(lambda value: "" if value != value else form.format(value))

    return comparison.apply(written)
