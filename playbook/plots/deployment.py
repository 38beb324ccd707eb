"""Plots of an endpoint: what happens between a request and its answer, and what an update costs while it lasts."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from playbook.plots.charts import BLUE, GREY, empty_figure, show

MINUTE, HOUR = 60.0, 3600.0
WORDS: dict[str, Any] = {"fontsize": 7.5, "bbox": {"facecolor": "white", "edgecolor": "none", "pad": 1}}


@dataclass(frozen=True)
class PathStep:
    """One step of a request, from one party to another or within one; ``refusal``: the status of its no."""

    source: str
    target: str
    text: str
    refusal: str = ""


CALLER, RUNTIME, FRONT, ENGINE = "caller", "SageMaker", "DJL Serving", "engine"
PARTIES = (CALLER, RUNTIME, FRONT, ENGINE)
PATH = (
    PathStep(CALLER, RUNTIME, "InvokeEndpoint, TLS, SigV4"),
    PathStep(RUNTIME, RUNTIME, "may this key ask this endpoint?", "403"),
    PathStep(RUNTIME, FRONT, "/invocations, least busy instance"),
    PathStep(FRONT, FRONT, "reads LMI's schema, puts in defaults", "424"),
    PathStep(FRONT, ENGINE, "joins the batch between two steps", "424, 429 or 503 within"),
    PathStep(ENGINE, ENGINE, "reads the prompt in one step"),
    PathStep(ENGINE, FRONT, "one token a step"),
    PathStep(FRONT, RUNTIME, "a JSON line for each token"),
    PathStep(RUNTIME, CALLER, "an event stream, cut anywhere"),
)


def request_path() -> None:
    """The steps of :data:`PATH` from top to bottom, a column for each party."""
    figure, (axis,) = empty_figure(height=4.6, width=9.0)
    place = {party: column for column, party in enumerate(PARTIES)}
    for party, column in place.items():
        axis.axvline(column, color=GREY, linewidth=1)
        axis.text(column, -0.7, party, ha="center", fontsize=9, fontweight="bold")
    for row, step in enumerate(PATH):
        left, right = place[step.source], place[step.target]
        _draw_step(axis, row, left, right, f"{row + 1}. {step.text}")
        if step.refusal:
            at, side = (left + 0.06, "left") if left == right else ((left + right) / 2, "center")
            axis.text(at, row + 0.38, f"else {step.refusal}", ha=side, va="center", fontstyle="italic", **WORDS)
    axis.set(xlim=(-0.45, len(PARTIES) - 0.2), ylim=(len(PATH) - 0.3, -1.1))
    axis.axis("off")
    ours = sum(ENGINE in (step.source, step.target) for step in PATH)
    title = f"{len(PATH)} steps between request and answer; the engine takes part in {ours} of them"
    figure.suptitle(title, fontsize=10)
    told = "; ".join(f"{step.source} to {step.target}: {step.text}" for step in PATH)
    show(figure, "drawn from the requests of this chapter", f"{title}: {told}")


def _draw_step(axis: Any, row: int, left: int, right: int, text: str) -> None:
    if left == right:
        axis.plot(left, row, marker="s", color=BLUE, markersize=7)
        axis.text(left + 0.06, row, text, va="center", **WORDS)
        return
    axis.annotate("", (right, row), (left, row), arrowprops={"arrowstyle": "->", "color": BLUE})
    axis.text((left + right) / 2, row - 0.3, text, ha="center", va="center", **WORDS)


@dataclass(frozen=True)
class FleetStage:
    """For ``seconds``, so many instances of the old and of the new configuration bill."""

    seconds: float
    old: int
    new: int

    @property
    def total(self) -> int:
        return self.old + self.new


def fleet_stages(config: Mapping[str, Any], instances: int, start_s: float) -> list[FleetStage]:
    """What an update of a fleet keeps running, by its ``DeploymentConfig``; each start takes ``start_s`` seconds.

    Blue/green starts the whole new fleet beside the old one, waits with a part of the traffic, and ends the old one
    after its wait. Rolling starts a batch, waits, and ends as many of the old. Source: SageMaker's guide, deployment
    guardrails. Only the configurations that :mod:`trtllm_check.recipes.sagemaker` writes are read.
    """
    if "RollingUpdatePolicy" in config:
        policy = config["RollingUpdatePolicy"]
        batch = max(1, math.floor(instances * policy["MaximumBatchSize"]["Value"] / 100))
        stages, left = [], instances
        while left:
            size = min(batch, left)
            stages.append(FleetStage(start_s + policy["WaitIntervalInSeconds"], left, instances - left + size))
            left -= size
        return stages
    policy = config["BlueGreenUpdatePolicy"]
    wait_s = policy["TrafficRoutingConfiguration"]["WaitIntervalInSeconds"] + policy["TerminationWaitInSeconds"]
    return [FleetStage(start_s + wait_s, instances, instances)]


def extra_usd(stages: list[FleetStage], instances: int, usd_per_hour: float) -> float:
    """What an update costs on top of the fleet that runs anyway."""
    return sum((stage.total - instances) * stage.seconds / HOUR * usd_per_hour for stage in stages)


def updates(configs: Mapping[str, Mapping[str, Any]], *, instances: int, start_s: float, usd_per_hour: float) -> None:
    """One panel an update: instances that bill against minutes, old below new, with what they cost on top."""
    figure, axes = empty_figure(len(configs), height=3.0, width=9.0)
    told, peaks = [], {}
    for axis, (how, config) in zip(axes, configs.items(), strict=True):
        stages = fleet_stages(config, instances, start_s)
        at = 0.0
        for stage in stages:
            width = stage.seconds / MINUTE
            common = {"width": width, "align": "edge", "edgecolor": "white"}
            axis.bar(at, stage.old, color=GREY, label="old" if not at else "", **common)
            axis.bar(at, stage.new, bottom=stage.old, color=BLUE, hatch="//", label="new" if not at else "", **common)
            at += width
        axis.axhline(instances, color="black", linestyle=":", linewidth=1)
        usd, peaks[how] = extra_usd(stages, instances, usd_per_hour), max(stage.total for stage in stages)
        said = f"{how}: {peaks[how]} instances at most, {at:.0f} min, {usd:,.0f} USD more"
        axis.set(title=said, xlabel="minutes", ylim=(0, 2.6 * instances))
        axis.title.set_fontsize(9)
        told.append(said)
    axes[0].set_ylabel("instances that bill")
    axes[0].legend(frameon=False, fontsize=8, ncols=2, loc="upper left")
    fewest, most = (choose(peaks, key=peaks.__getitem__) for choose in (min, max))
    title = f"A {fewest} update of {instances} instances needs {peaks[fewest]} at once, a {most} update {peaks[most]}"
    figure.suptitle(title, fontsize=10)
    origin = "planned: the two requests, a start as long as the request allows, the dated price"
    show(figure, origin, f"{title}. {'; '.join(told)}")
