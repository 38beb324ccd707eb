"""Two facts of the steady state that hold whatever the laws are."""

import pytest

from serving_planner import parse_case
from serving_planner.cost_model.step import StepLoad
from serving_planner.replicas import resolve
from serving_planner.simulator.steady_state import StepKinds


def kinds(mixed_share: float, mixed_s: float) -> StepKinds:
    load = StepLoad()
    return StepKinds(8, 1, 1, load, load, 0.010, mixed_s, 0.001, 0.001, mixed_share, 1, full=False)


def test_a_step_of_steady_length_is_met_in_its_middle() -> None:
    assert kinds(0.0, 0.010).rest_s == pytest.approx(0.005)


def test_longer_steps_are_met_more_often() -> None:
    assert kinds(0.5, 0.030).rest_s == pytest.approx((0.010**2 + 0.030**2) / 2 / (2 * 0.020))


def test_no_more_requests_are_in_flight_than_the_engine_holds() -> None:
    given = {"model": "llama-3-8b", "gpu": "h100", "isl": 1024, "osl": 256, "max_batch_size": 8, "concurrency": 64}
    point = resolve(parse_case(given)).replica().closed(64)
    assert point.capacity == 8
    assert point.in_flight == 8
