"""The exercises of the chapter on benchmarks: a table of requests, a rate that keeps a promise, a file that is refused.

What is right is computed: from the requests themselves, by the planner, by the rules of FMBench's loader.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import yaml

from course_exercises.exercise import Exercise, Wrong
from course_exercises.verdict import ExerciseVerdict, Solution
from serving_base.measures import quantile
from trtllm_check.deployment import Deployment
from trtllm_check.recipes import fmbench

Request = Mapping[str, float]
"""``scheduled_s``, ``sent_s``, ``first_s``, ``last_s``, ``tokens``, and ``warmup``, 1 for a request of the warm-up."""
TTFT_MS, TPOT_MS = 500.0, 30.0


@dataclass(frozen=True)
class PlayedRun:
    """Requests that arrive evenly. ``wait_s``: what the n-th waits in the client for a connection, n times."""

    why: str
    first_token_s: float = 0.2
    tpot_s: float = 0.02
    wait_s: float = 0.0
    slow_tail: int = 0
    warmup: int = 0

    def requests(self, count: int = 20, gap_s: float = 0.5, tokens: int = 11) -> Iterator[Request]:
        for place in range(-self.warmup, count):
            scheduled = gap_s * (place + self.warmup)
            sent = scheduled + self.wait_s * max(place, 0)
            slower = 10 if place < 0 or place >= count - self.slow_tail else 1
            first = sent + self.first_token_s * (1 + place / count / 10) * slower
            times = {"scheduled_s": scheduled, "sent_s": sent, "first_s": first}
            last = first + (tokens - 1) * self.tpot_s
            yield times | {"last_s": last, "tokens": tokens, "warmup": float(place < 0)}


RUNS: Mapping[str, PlayedRun] = {
    "all are fast": PlayedRun("p90 is the time that nine in ten stay below"),
    "three in twenty are slow": PlayedRun("a mean hides them, and p90 does not", slow_tail=3),
    "the client waits for a connection": PlayedRun("the clock starts when a request was meant to be sent", wait_s=0.03),
    "29 ms a token": PlayedRun("TPOT has one interval less than there are tokens", tpot_s=0.029),
    "with a warm-up": PlayedRun("a warm-up is no part of the measurement", warmup=4),
}


def check_promise(promise: Callable[[list[Request], float, float], tuple[float, float]]) -> Solution:
    """Exercise 2: ``promise(requests, ttft_ms, tpot_ms)`` gives the p90 of TTFT in ms, and good requests per second."""
    verdicts = []
    for given, run in RUNS.items():
        requests = list(run.requests())
        p90, goodput = promise(requests, TTFT_MS, TPOT_MS)
        counted = [one for one in requests if not one["warmup"]]
        ttfts = sorted(1000 * (one["first_s"] - one["scheduled_s"]) for one in counted)
        place = 0.9 * (len(ttfts) - 1)
        near = ttfts[math.floor(place)], ttfts[math.ceil(place)]
        good = sum(
            1000 * (one["first_s"] - one["scheduled_s"]) <= TTFT_MS
            and 1000 * (one["last_s"] - one["first_s"]) / (one["tokens"] - 1) <= TPOT_MS
            for one in counted
        )
        seconds = max(one["last_s"] for one in counted) - min(one["scheduled_s"] for one in counted)
        expected = quantile(ttfts, 0.9)
        verdicts += [
            ExerciseVerdict(
                f"{given}, TTFT p90",
                f"{p90:.0f} ms",
                f"{expected:.0f} ms",
                run.why,
                near[0] * 0.999 <= p90 <= near[1] * 1.001,
            ),
            ExerciseVerdict(
                f"{given}, goodput",
                f"{goodput:.2f}/s",
                f"{good / seconds:.2f}/s",
                run.why,
                math.isclose(goodput, good / seconds, rel_tol=1e-3),
            ),
        ]
    return Solution("keep the promise", tuple(verdicts))


class ServicePromise(Protocol):
    """What is needed of the course's case: lengths in tokens, and the two limits of the promise in ms."""

    isl_tokens: int
    osl_tokens: int
    ttft_ms: float
    tpot_ms: float


SPLIT: Mapping[str, Any] = {"model": "llama3-70b", "gpu": "h100-sxm", "tp": 8, "instance": "p5.48xlarge"}
"""One replica over all eight GPUs of a P5, weights and cache in FP8."""
REQUESTS = 1000
MORE = 1.25


def check_rate(requests_per_s: float, case: ServicePromise) -> Solution:
    """Exercise 1: an arrival rate that keeps the case's promise on one P5, and of which a quarter more would not."""
    from serving_planner.case import parse_case
    from serving_planner.predict import plan

    title = "a rate to promise"
    if not requests_per_s > 0:
        return Solution(title, problem="there is no rate yet")
    lengths = {"isl": case.isl_tokens, "osl": case.osl_tokens, "requests": REQUESTS}
    verdicts = []
    for rate, wanted in ((float(requests_per_s), True), (MORE * requests_per_s, False)):
        planned = plan(parse_case({**SPLIT, **lengths, "rate": rate}))
        found = planned.ttft_ms.p90, planned.tpot_ms.p90 if planned.tpot_ms else 0.0
        keeps = found[0] <= case.ttft_ms and found[1] <= case.tpot_ms
        limits = f"{case.ttft_ms:.0f} ms and {case.tpot_ms:.0f} ms at p90"
        why = "more arrivals share each step" if wanted else "a rate far below the limit pays for GPUs that rest"
        verdicts.append(
            ExerciseVerdict(
                f"{rate:.2f} requests/s [planned]",
                f"{found[0]:.0f} ms and {found[1]:.1f} ms",
                f"{'within' if wanted else 'beyond'} {limits}",
                why,
                keeps == wanted,
            )
        )
    return Solution(title, tuple(verdicts))


def configuration() -> str:
    """A file for FMBench that measures an endpoint of a P5."""
    given = {"name": "p5", "model": "llama-3-70b-instruct", "instance": "p5.48xlarge", "tp": 8}
    return fmbench.endpoint_config(Deployment.model_validate(given), "your-endpoint", max_new_tokens=64)


def check_braces(braces: Callable[[str], tuple[str, str]], config: str) -> Solution:
    """Exercise 3: ``braces(config)`` gives two files: one that FMBench dies of, and one whose ``env`` it reads."""
    title = "one brace too few"
    broken, mended = braces(config)
    refused, left = fmbench.check(broken), fmbench.check(mended)
    values = dict.fromkeys(fmbench.PLACEHOLDERS, "some")
    read = {} if left else yaml.safe_load(mended.format(**values))
    found = [one.get("env") for one in read.get("experiments", ())]
    return Solution(
        title,
        (
            ExerciseVerdict(
                "the broken file",
                "; ".join(refused) or "is read",
                "a refusal of its braces",
                "str.format takes a single brace for one of its own",
                any("literal braces" in one for one in refused),
            ),
            ExerciseVerdict("the mended file", "; ".join(left) or "is read", "is read", "", not left),
            ExerciseVerdict(
                "env of its experiment",
                str(found[0] if found else None),
                "a mapping with one thread",
                "two braces in the file become one in the YAML",
                any(env == {"OMP_NUM_THREADS": 1} for env in found),
            ),
        ),
    )


def promise(requests: list[dict[str, float]], ttft_ms: float, tpot_ms: float) -> tuple[float, float]:
    counted = [one for one in requests if not one["warmup"]]
    ttfts = [1000 * (one["first_s"] - one["scheduled_s"]) for one in counted]
    tpots = [1000 * (one["last_s"] - one["first_s"]) / (one["tokens"] - 1) for one in counted]
    good = sum(ttft <= ttft_ms and tpot <= tpot_ms for ttft, tpot in zip(ttfts, tpots, strict=True))
    seconds = max(one["last_s"] for one in counted) - min(one["scheduled_s"] for one in counted)
    return sorted(ttfts)[int(0.9 * (len(ttfts) - 1))], good / seconds


def _from_sending(requests: list[dict[str, float]], ttft_ms: float, tpot_ms: float) -> tuple[float, float]:
    return promise([one | {"scheduled_s": one["sent_s"]} for one in requests], ttft_ms, tpot_ms)


def _with_the_warmup(requests: list[dict[str, float]], ttft_ms: float, tpot_ms: float) -> tuple[float, float]:
    return promise([one | {"warmup": 0.0} for one in requests], ttft_ms, tpot_ms)


def _mean(requests: list[dict[str, float]], ttft_ms: float, tpot_ms: float) -> tuple[float, float]:
    counted = [one for one in requests if not one["warmup"]]
    ttfts = [1000 * (one["first_s"] - one["scheduled_s"]) for one in counted]
    return sum(ttfts) / len(ttfts), promise(requests, ttft_ms, tpot_ms)[1]


def _whole_answer_per_token(requests: list[dict[str, float]], ttft_ms: float, tpot_ms: float) -> tuple[float, float]:
    slower = [one | {"last_s": 2 * one["last_s"] - one["first_s"]} for one in requests]
    return promise(requests, ttft_ms, tpot_ms)[0], promise(slower, ttft_ms, tpot_ms)[1]


def braces(config: str) -> tuple[str, str]:
    broken = config.replace("env: null", 'env: {"OMP_NUM_THREADS": 1}', 1)
    mended = config.replace("env: null", 'env: {{"OMP_NUM_THREADS": 1}}', 1)
    return broken, mended


def _block(config: str) -> tuple[str, str]:
    broken, _ = braces(config)
    line = next(one for one in config.splitlines() if "env: null" in one)
    indent = " " * (len(line) - len(line.lstrip(" -")) + 2)
    return broken, config.replace("env: null", f"env:\n{indent}OMP_NUM_THREADS: 1", 1)


EXERCISES = (
    Exercise(
        number="08-1",
        title="A rate to promise",
        kind="choose",
        minutes=5,
        check=check_rate,
        solution=14.0,
        also=(13, 15.0),
        wrong=(
            Wrong(0.0, "there is no rate yet"),
            Wrong(40.0, "expected within 500 ms and 30 ms"),
            Wrong(2.0, "pays for GPUs that rest"),
            Wrong("400 a minute", "raised TypeError"),
        ),
    ),
    Exercise(
        number="08-2",
        title="Nine in ten, and how many a second",
        kind="compute",
        minutes=10,
        check=check_promise,
        solution=promise,
        wrong=(
            Wrong(_from_sending, "the clock starts when a request was meant to be sent"),
            Wrong(_with_the_warmup, "a warm-up is no part of the measurement"),
            Wrong(_mean, "three in twenty are slow, TTFT p90"),
            Wrong(
                lambda requests, ttft_ms, tpot_ms: promise(requests, math.inf, math.inf),
                "three in twenty are slow, goodput",
            ),
            Wrong(_whole_answer_per_token, "29 ms a token, goodput: yours 0.00"),
            Wrong(lambda requests, ttft_ms, tpot_ms: None, "TypeError"),
        ),
    ),
    Exercise(
        number="08-3",
        title="One brace too few",
        kind="break",
        minutes=5,
        check=check_braces,
        solution=braces,
        also=(_block,),
        wrong=(
            Wrong(lambda config: (config, config), "the broken file: yours is read"),
            Wrong(lambda config: (braces(config)[0], braces(config)[0]), "the mended file: yours"),
            Wrong(lambda config: (braces(config)[0], config), "env of its experiment: yours None"),
            Wrong(lambda config: config, "ValueError"),
        ),
        row="FMBench: `KeyError` at start",
        context=lambda: {"config": configuration()},
    ),
)
