"""The exercises of the last chapter: the break-even of an instance, an option for a service, an endpoint left on.

Prices are the dated ones that ship. The chapter hands over its rule and its look at what bills.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, Protocol

from course_exercises.exercise import Exercise, Wrong
from course_exercises.verdict import ExerciseVerdict, Solution
from serving_base.facts.prices import price, token_price
from serving_base.measures import usd_per_million

LOADS: Mapping[str, tuple[float, int, int]] = {
    "prompts of 1000, answers of 250": (12_000.0, 1000, 250),
    "as many in as out": (12_000.0, 1000, 1000),
    "a summary: much in, little out": (3_000.0, 4000, 100),
    "a story: little in, much out": (6_000.0, 100, 2000),
}
"""Load -> output tokens/s of a busy instance, prompt tokens, answer tokens."""
INSTANCE, BY_TOKEN = "p5.48xlarge", "Llama 3.3 70B Instruct"


def check_break_even(break_even: Callable[[float, float, float, float, int, int], float]) -> Solution:
    """Exercise 2: the utilisation from which an instance costs less than a service that bills by the token.

    ``break_even(usd_per_hour, tokens_per_s, usd_input, usd_output, isl, osl)``: prices of a million tokens.
    """
    hourly, token = price(INSTANCE).usd_per_hour, token_price(BY_TOKEN)
    verdicts = []
    for given, (rate, isl, osl) in LOADS.items():
        prices = token.usd_per_million_input, token.usd_per_million_output
        per_output = prices[1] + prices[0] * isl / osl
        expected = usd_per_million(hourly, rate) / per_output
        yours = float(break_even(hourly, rate, *prices, isl, osl))
        why = f"with its prompts a million output tokens costs {per_output:.2f} USD by the token"
        right = math.isclose(yours, expected, rel_tol=1e-3)
        verdicts.append(ExerciseVerdict(given, f"{yours:.1%}", f"{expected:.1%}", why, right))
    return Solution("the break-even", tuple(verdicts))


SERVICES: Mapping[str, tuple[str, ...]] = {
    "a": ("own_weights", "engine_control", "pinned_release", "steady_load"),
    "b": ("pay_per_token", "quick_start", "no_idle_bill"),
    "c": ("own_weights", "aws_operates", "autoscaling", "newest_models"),
}
"""Letter -> what the service needs, in the names of the chapter's questions."""


class Ranked(Protocol):
    """What the chapter's rule says of one option."""

    @property
    def option(self) -> str: ...
    @property
    def score(self) -> int: ...
    @property
    def lacks(self) -> tuple[str, ...]: ...
    @property
    def excluded_by(self) -> tuple[str, ...]: ...


def check_options(chosen: Mapping[str, str], recommend: Callable[[Sequence[str]], Sequence[Ranked]]) -> Solution:
    """Exercise 1: an option for each service; every one passes that the rule puts first, ties included."""
    title = "an option for each service"
    verdicts = []
    for letter, needs in SERVICES.items():
        ranked = {entry.option: entry for entry in recommend(needs)}
        yours = chosen.get(letter, "").strip()
        if not yours:
            return Solution(title, problem=f"service {letter} has no option yet")
        if yours not in ranked:
            return Solution(title, problem=f"service {letter}: {yours!r} is none of {', '.join(ranked)}")
        open_ones = [entry for entry in ranked.values() if not entry.excluded_by]
        best = [entry.option for entry in open_ones if entry.score == max(one.score for one in open_ones)]
        found = ranked[yours]
        out = f"{', '.join(found.excluded_by)} excludes it" if found.excluded_by else ""
        why = out or f"it lacks {', '.join(found.lacks) or 'nothing'}"
        verdicts.append(ExerciseVerdict(f"service {letter}", yours, " or ".join(best), why, yours in best))
    return Solution(title, tuple(verdicts))


WEEKEND_H = 60.0
BUDGET_USD = 150.0
NOTHING = "nothing will delete it"
ENDPOINT = "ml.p5.48xlarge"


def check_left(
    answer: Mapping[str, Mapping[str, float | None]], endpoint: Callable[..., Any], account: Callable[..., Any]
) -> Solution:
    """Exercise 3: ``left`` bills after a weekend although a tag bounds it; ``bounded`` ends within the budget.

    Each has ``tag_h`` and ``schedule_h``, hours after its creation: what its tag says, and when a schedule deletes it.
    ``endpoint`` and ``account`` are the classes with which the playbook says what bills.
    """
    title = "an endpoint that stays"
    if not answer.get("left") or not answer.get("bounded"):
        return Solution(title, problem="left and bounded name tag_h and schedule_h, in hours; one is still empty")
    hourly = price(ENDPOINT).usd_per_hour
    told = {}
    for name in ("left", "bounded"):
        created, hours = datetime(2026, 1, 2, 18, tzinfo=UTC), answer[name]
        times = {key: hours.get(key) for key in ("tag_h", "schedule_h")}
        tag, ends = (None if at is None else created + timedelta(hours=at) for at in times.values())
        overdue = times["tag_h"] is not None and times["tag_h"] < WEEKEND_H
        found = endpoint(name, "InService", f"1 x {ENDPOINT}", hourly, WEEKEND_H, True, tag, overdue, ends)
        told[name] = account("your account", local=False, endpoints=(found,)).summary
    tag_h, ends_h = answer["left"].get("tag_h"), answer["bounded"].get("schedule_h")
    cost = hourly * (WEEKEND_H if ends_h is None else ends_h)
    return Solution(
        title,
        (
            ExerciseVerdict(
                "left, what the playbook says",
                told["left"],
                NOTHING,
                f"a schedule ends it; after the weekend it would have cost {hourly * WEEKEND_H:,.0f} USD",
                NOTHING in told["left"],
            ),
            ExerciseVerdict(
                "left, its tag",
                "none" if tag_h is None else f"{tag_h:g} h",
                f"less than {WEEKEND_H:g} h",
                "the trap is a tag that was over long ago",
                tag_h is not None and tag_h < WEEKEND_H,
            ),
            ExerciseVerdict(
                "bounded, what the playbook says",
                told["bounded"],
                "a schedule deletes it",
                "a tag deletes nothing",
                NOTHING not in told["bounded"],
            ),
            ExerciseVerdict(
                "bounded, its cost",
                f"{cost:,.0f} USD",
                f"at most {BUDGET_USD:,.0f} USD",
                f"{hourly} USD for each hour until it ends",
                0 < cost <= BUDGET_USD,
            ),
        ),
    )


def break_even(
    usd_per_hour: float, tokens_per_s: float, usd_input: float, usd_output: float, isl: int, osl: int
) -> float:
    by_token = usd_output + usd_input * isl / osl
    always_busy = usd_per_hour / (3600 * tokens_per_s) * 1e6
    return always_busy / by_token


def _upside_down(
    usd_per_hour: float, tokens_per_s: float, usd_input: float, usd_output: float, isl: int, osl: int
) -> float:
    return 1 / break_even(usd_per_hour, tokens_per_s, usd_input, usd_output, isl, osl)


CHOSEN = {"a": "triton-ec2", "b": "bedrock", "c": "lmi-sagemaker"}
LEFT = {"left": {"tag_h": 2.0, "schedule_h": None}, "bounded": {"tag_h": 2.0, "schedule_h": 2.0}}
EXERCISES = (
    Exercise(
        number="10-1",
        title="Three services",
        kind="choose",
        minutes=5,
        check=check_options,
        solution=CHOSEN,
        wrong=(
            Wrong(dict.fromkeys(SERVICES, ""), "service a has no option yet"),
            Wrong(CHOSEN | {"a": "pytorch-ec2"}, "engine_control excludes it"),
            Wrong(
                CHOSEN | {"b": "triton-ec2"}, "service b: yours triton-ec2, expected bedrock. it lacks pay_per_token"
            ),
            Wrong(CHOSEN | {"c": "jumpstart"}, "own_weights excludes it"),
            Wrong(CHOSEN | {"c": "bedrock-import"}, "it lacks newest_models"),
            Wrong(CHOSEN | {"c": "SageMaker"}, "'SageMaker' is none of"),
        ),
    ),
    Exercise(
        number="10-2",
        title="Where owning pays",
        kind="compute",
        minutes=10,
        check=check_break_even,
        solution=break_even,
        wrong=(
            Wrong(
                lambda usd, rate, into, out, isl, osl: break_even(usd, rate, 0.0, out, isl, osl),
                "with its prompts a million output tokens",
            ),
            Wrong(_upside_down, "as many in as out: yours"),
            Wrong(
                lambda usd, rate, into, out, isl, osl: break_even(usd, rate, into, out, 1, 1),
                "a summary: much in, little out: yours",
            ),
            Wrong(lambda usd_per_hour, *others: usd_per_hour, "yours 5504.0%"),
        ),
    ),
    Exercise(
        number="10-3",
        title="Leave one on",
        kind="break",
        minutes=5,
        check=check_left,
        solution=LEFT,
        also=(LEFT | {"bounded": {"tag_h": None, "schedule_h": 1.5}},),
        wrong=(
            Wrong({"left": {}, "bounded": {}}, "one is still empty"),
            Wrong(LEFT | {"left": {"tag_h": 2.0, "schedule_h": 2.0}}, "a schedule ends it"),
            Wrong(LEFT | {"left": {"tag_h": None, "schedule_h": None}}, "left, its tag: yours none"),
            Wrong(LEFT | {"bounded": {"tag_h": 2.0, "schedule_h": None}}, "a tag deletes nothing"),
            Wrong(LEFT | {"bounded": {"tag_h": 2.0, "schedule_h": 24.0}}, "bounded, its cost: yours 1,519 USD"),
        ),
        row="`nothing will delete it`",
    ),
)
