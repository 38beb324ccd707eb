"""The exercises of the chapter on plans: what a token costs, room for a plan's error, a refused case."""

from collections.abc import Callable, Mapping
from typing import Any

from course_exercises.exercise import Exercise, Wrong
from course_exercises.verdict import ExerciseVerdict, Solution
from serving_base.errors import UsageError

BILLS: Mapping[str, tuple[float, float, int, int]] = {
    "40 requests a minute on one machine": (55.0, 40.0, 250, 1),
    "400 requests a minute on one machine": (55.0, 400.0, 250, 1),
    "2000 requests a minute on three machines": (64.0, 2000.0, 250, 3),
}
"""Load -> USD an hour of a machine, requests a minute, tokens of an answer, machines."""


def check_price(answer: Callable[[float, float, int, int], float]) -> Solution:
    """Exercise 1: ``answer`` takes the figures of :data:`BILLS` and returns USD per million output tokens."""
    verdicts = []
    for given, (usd, rate, tokens, machines) in BILLS.items():
        yours, right = answer(usd, rate, tokens, machines), usd_per_million(usd, rate, tokens, machines)
        why = "every machine bills each hour, and an hour makes 60 minutes of answers"
        close = abs(yours - right) < 1e-6 * right
        verdicts.append(ExerciseVerdict(given, f"{yours:,.2f} USD", f"{right:,.2f} USD", why, close))
    return Solution("what a million tokens costs", tuple(verdicts))


def usd_per_million(usd_per_hour: float, requests_per_minute: float, answer_tokens: int, machines: int) -> float:
    tokens_per_hour = 60 * requests_per_minute * answer_tokens
    return 1e6 * machines * usd_per_hour / tokens_per_hour


ERROR = 1.3
"""How far off a plan may be for exercise 2: the load that the choice has to carry, over the load that is asked for."""
LOAD_PER_MINUTE = 2400.0
REQUESTS = 2000
CHOICE = ("instance", "tp", "pp", "weights", "kv", "instances")


def check_room(answer: Mapping[str, Any], case: Any) -> Solution:
    """Exercise 2: machines that keep the promise of ``case`` at 1.3 times the load, and not one more."""
    title = "room for the plan's error"
    missing = [name for name in CHOICE if not answer.get(name)]
    if missing:
        return Solution(title, problem=f"{', '.join(missing)}: nothing yet")
    rate, machines = ERROR * LOAD_PER_MINUTE / 60, int(answer["instances"])
    promise = f"at most {case.ttft_ms:.0f} and {case.tpot_ms:.0f} ms"
    kept = _times(answer, case, rate / machines)
    why = f"{ERROR:g} times the load has to fit, because a plan may be that far off"
    verdicts = [
        ExerciseVerdict(
            f"{machines} machines at {ERROR:g} times the load", _told(kept), promise, why, _keeps(kept, case)
        )
    ]
    if machines > 1:
        fewer = _times(answer, case, rate / (machines - 1))
        why = "a machine that nobody needs costs as much as one that works"
        expected = "no longer the promise"
        verdicts.append(ExerciseVerdict("one machine fewer", _told(fewer), expected, why, not _keeps(fewer, case)))
    return Solution(title, tuple(verdicts))


def _times(answer: Mapping[str, Any], case: Any, rate: float) -> tuple[float, float]:
    """TTFT and TPOT of one machine at ``rate`` requests a second, ms at the 90th percentile [planned]."""
    from serving_planner import parse_case, plan

    way = {name: answer[name] for name in CHOICE if name != "instances"}
    load = {"model": "llama3-70b", "isl": case.isl_tokens, "osl": case.osl_tokens, "rate": rate, "requests": REQUESTS}
    found = plan(parse_case(way | load))
    assert found.tpot_ms is not None  # answers have more than one token
    return found.ttft_ms.p90, found.tpot_ms.p90


def _keeps(times: tuple[float, float], case: Any) -> bool:
    return bool(times[0] <= case.ttft_ms and times[1] <= case.tpot_ms)


def _told(times: tuple[float, float]) -> str:
    return f"{times[0]:,.0f} and {times[1]:,.0f} ms"


BASE = {"model": "llama3-70b", "gpu": "h100-sxm", "isl": 1000, "osl": 250, "concurrency": 16}
"""What exercise 3 starts from."""


def check_refused_case(answer: Mapping[str, Mapping[str, Any]]) -> Solution:
    """Exercise 3: changes of :data:`BASE`; with ``broken`` the planner refuses, with ``mended`` it plans."""
    title = "a case that does not fit"
    if not all(answer.get(word) for word in ("broken", "mended")):
        return Solution(title, problem="one is still empty")
    broken, mended = BASE | dict(answer["broken"]), BASE | dict(answer["mended"])
    verdicts = [
        ExerciseVerdict("broken", said := _refusal(broken), "does not fit", "its memory is the row", "not fit" in said),
        ExerciseVerdict("mended", said := _refusal(mended), "planned", "a repair has to fit", said == "planned"),
    ]
    changed = sorted(name for name in broken.keys() | mended.keys() if broken.get(name) != mended.get(name))
    right = len(changed) == 1 and changed != ["model"]
    why = "a repair keeps the model, and changes what is wrong"
    verdicts.append(ExerciseVerdict("what differs", ", ".join(changed) or "nothing", "one setting", why, right))
    return Solution(title, tuple(verdicts))


def _refusal(case: Mapping[str, Any]) -> str:
    from serving_planner import parse_case, plan

    try:
        plan(parse_case(dict(case)))
    except UsageError as error:
        return error.what
    return "planned"


def _per_minute(usd_per_hour: float, requests_per_minute: float, answer_tokens: int, machines: int) -> float:
    return 1e6 * machines * usd_per_hour / (requests_per_minute * answer_tokens)


ROOM = {"instance": "p5.48xlarge", "tp": 4, "pp": 1, "weights": "fp8", "kv": "fp8", "instances": 3}
TOO_LARGE = {"weights": "bf16", "kv": "bf16"}
FITTING = {"broken": TOO_LARGE, "mended": TOO_LARGE | {"tp": 4}}
EXERCISES = (
    Exercise(
        number="17-1",
        title="What a million tokens costs",
        kind="compute",
        minutes=5,
        check=check_price,
        solution=usd_per_million,
        wrong=(
            Wrong(_per_minute, "60 minutes of answers"),
            Wrong(
                lambda usd, rate, tokens, machines: usd_per_million(usd, rate, tokens, 1),
                "2000 requests a minute on three machines: yours",
            ),
            Wrong(
                lambda usd, rate, tokens, machines: usd_per_million(usd, rate, 1, machines),
                "40 requests a minute on one machine: yours",
            ),
            Wrong(lambda usd, rate, tokens, machines: None, "TypeError"),
        ),
    ),
    Exercise(
        number="17-2",
        title="Room for the plan's error",
        kind="choose",
        minutes=10,
        check=check_room,
        solution=ROOM,
        also=(
            {"instance": "p5en.48xlarge", "tp": 4, "pp": 1, "weights": "fp8", "kv": "fp8", "instances": 3},
            ROOM | {"kv": "bf16"},
        ),
        wrong=(
            Wrong(dict.fromkeys(CHOICE, ""), "instance, tp, pp, weights, kv, instances: nothing yet"),
            Wrong(ROOM | {"instances": 1}, "a plan may be that far off"),
            Wrong(ROOM | {"instances": 2}, "a plan may be that far off"),
            Wrong(ROOM | {"instances": 6}, "a machine that nobody needs"),
            Wrong(ROOM | {"tp": 3}, "does not divide"),
            Wrong(ROOM | {"instance": "p9.48xlarge"}, "p9.48xlarge"),
        ),
    ),
    Exercise(
        number="17-3",
        title="A case that does not fit",
        kind="break",
        minutes=5,
        check=check_refused_case,
        solution=FITTING,
        also=({"broken": TOO_LARGE, "mended": {"weights": "bf16", "kv": "bf16", "gpu": "h200"}},),
        wrong=(
            Wrong({"broken": {}, "mended": {}}, "one is still empty"),
            Wrong(FITTING | {"broken": {"weights": "fp8"}}, "broken: yours planned"),
            Wrong(FITTING | {"broken": {"tp": 3}}, "its memory is the row"),
            Wrong(FITTING | {"mended": TOO_LARGE}, "a repair has to fit"),
            Wrong(FITTING | {"mended": {"model": "llama3-8b"}}, "expected one setting"),
        ),
        row="`does not fit`",
    ),
)
