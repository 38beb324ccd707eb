"""The frontier: every way at every load, as the steady state has it, and marks that a sweep finds again."""

from itertools import pairwise
from time import process_time
from typing import Any

import pytest

from serving_base.errors import UsageError
from serving_planner.case import parse_case
from serving_planner.frontier import FrontierPoint, _marked, frontier_of
from serving_planner.predict import steady

BASE: dict[str, Any] = {"model": "llama3-70b", "instance": "p5.48xlarge", "isl": 1000, "osl": 1000}


@pytest.fixture(scope="module")
def points() -> tuple[FrontierPoint, ...]:
    return frontier_of(**BASE)


def point(per_user: float, per_gpu: float) -> FrontierPoint:
    return FrontierPoint(
        tp=1, pp=1, replicas=1, weights="fp8", kv="fp8", concurrency=1, on_front=False,
        tokens_per_s_per_user=per_user, output_tokens_per_s_per_gpu=per_gpu,
    )  # fmt: skip


def swept(points: tuple[FrontierPoint, ...]) -> set[tuple[float, float]]:
    """The front by another road: from the fastest down, whoever raises the output."""
    best, front = 0.0, set()
    for user, gpu in sorted({(p.tokens_per_s_per_user, p.output_tokens_per_s_per_gpu) for p in points}, reverse=True):
        if gpu > best:
            best = gpu
            front.add((user, gpu))
    return front


def test_the_marks_are_those_of_a_sweep(points: tuple[FrontierPoint, ...]) -> None:
    marked = {(p.tokens_per_s_per_user, p.output_tokens_per_s_per_gpu) for p in points if p.on_front}
    assert marked == swept(points) and 3 < len(marked) < len(points) / 4


def test_equal_points_share_the_front_and_a_dominated_one_is_off() -> None:
    marks = [p.on_front for p in _marked([point(10, 5), point(10, 5), point(10, 4), point(9, 5), point(3, 6)])]
    assert marks == [True, True, False, False, True]


def test_a_point_is_what_the_steady_state_says(points: tuple[FrontierPoint, ...]) -> None:
    for one in (points[0], points[len(points) // 3], points[-1], *(p for p in points if p.on_front)):
        state = steady(
            parse_case(
                {
                    **BASE,
                    "tp": one.tp,
                    "pp": one.pp,
                    "weights": one.weights,
                    "kv": one.kv,
                    "concurrency": one.concurrency,
                }
            )
        )
        assert one.tokens_per_s_per_user == pytest.approx(1000 / state.tpot_ms, rel=1e-5), one
        assert one.output_tokens_per_s_per_gpu == pytest.approx(state.output_tokens_per_s_per_gpu, rel=1e-5), one


def test_every_split_that_fits_is_there_with_rising_loads(points: tuple[FrontierPoint, ...]) -> None:
    splits = [(tp, pp) for tp in (1, 2, 4, 8) for pp in (1, 2, 4, 8) if tp * pp <= 8]
    wanted = {(*split, weights) for split in splits for weights in ("fp8", "bf16")}
    assert {(p.tp, p.pp, p.weights) for p in points} == wanted - {(1, 1, "bf16")}  # 141 GB on one H100
    assert all(p.tp * p.pp * p.replicas == 8 and p.concurrency >= p.replicas for p in points)
    for one, after in pairwise(points):
        if one.way == after.way:
            assert one.concurrency < after.concurrency and one.output_tokens_per_s_per_gpu > 0


def test_fp8_has_the_front_and_one_large_replica_its_fast_end(points: tuple[FrontierPoint, ...]) -> None:
    front = sorted((p for p in points if p.on_front), key=lambda p: p.tokens_per_s_per_user)
    assert {p.weights for p in front} == {"fp8"}
    assert front[-1].way == "1 x TP 8, fp8" and front[0].replicas > 1


def test_loads_that_leave_a_replica_idle_or_do_not_fit_are_left_out() -> None:
    found = frontier_of(**BASE, precisions=[("fp8", "bf16")], concurrencies=[4, 64, 100_000])
    assert {p.concurrency for p in found} == {4, 64}
    assert all(p.replicas <= 4 for p in found if p.concurrency == 4)
    assert found[-1].way == "1 x TP 8, fp8, KV bf16"


def test_a_gpu_without_fp8_has_a_front_in_bf16() -> None:
    found = frontier_of(model="llama3-8b", gpu="a100-sxm", gpus=2, isl=512, osl=128)
    assert {(p.tp, p.pp, p.replicas, p.weights) for p in found} == {
        (1, 1, 2, "bf16"),
        (1, 2, 1, "bf16"),
        (2, 1, 1, "bf16"),
    }


@pytest.mark.parametrize(
    ("changes", "complaint"),
    [
        ({"tp": 2}, "tp is given"),
        ({"osl": 1}, "osl 1 has no speed"),
        ({"concurrencies": [10**6]}, "no such load fits"),
        ({"instance": "g6.xlarge"}, "does not fit"),
        ({"model": "llama9"}, "unknown model"),
        ({"isle": 3}, "unknown key 'isle'"),
    ],
)
def test_what_has_no_frontier_is_refused(changes: dict[str, Any], complaint: str) -> None:
    with pytest.raises(UsageError, match=complaint):
        frontier_of(**{**BASE, **changes})


def test_a_whole_instance_takes_no_more_than_two_seconds_of_a_core(points: tuple[FrontierPoint, ...]) -> None:
    start = process_time()
    assert frontier_of(**BASE) == points
    assert process_time() - start < 2


def test_a_name_of_the_planner_stays_what_it_is_when_it_is_used_twice() -> None:
    """Importing a submodule puts it into the package under its own name, which is also a function's (choose)."""
    import subprocess
    import sys

    code = "import serving_planner as plan\nfor name in 2 * plan.__all__: assert callable(getattr(plan, name)), name"
    subprocess.run([sys.executable, "-c", code], check=True)
