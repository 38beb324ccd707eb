"""Target tracking in steps: who is billed, who serves, who waits; and how much a canary lets through."""

import math
from itertools import pairwise

import pytest

from serving_base.errors import UsageError
from serving_planner import autoscaling as auto

FLEET = auto.Fleet(capacity_per_s=10.0, service_s=2.0, start_s=300.0, usd_per_hour=36.0)
POLICY = auto.Policy(target=15.0, min_instances=1, max_instances=4)


def test_a_steady_load_below_capacity_changes_nothing() -> None:
    run = auto.simulate(lambda at_s: 5.0, 3600, FLEET, POLICY)
    assert {moment.billed for moment in run.moments} == {1}
    assert run.longest_wait_s == 0
    assert run.usd == pytest.approx(36.0)
    assert run.moments[-1].in_flight == pytest.approx(10.0)  # Little's law: 5 a second, 2 s each


def test_instances_are_billed_when_they_start_and_serve_when_they_are_ready() -> None:
    run = auto.simulate(auto.day(5.0, 25.0, rise_s=100, fall_s=3600), 3600, FLEET, POLICY)
    asked = next(moment.at_s for moment in run.moments if moment.billed > 1)
    served = next(moment.at_s for moment in run.moments if moment.serving > 1)
    assert asked == 100 + POLICY.datapoints * auto.STEP_S
    assert served - asked == FLEET.start_s
    backlog = (25.0 - 10.0) * (served - 100)  # what one instance cannot answer until then
    assert run.longest_wait_s == pytest.approx(backlog / 10.0, rel=0.05)


def test_every_request_is_answered_or_waits() -> None:
    arrivals = auto.day(5.0, 25.0, rise_s=100, fall_s=1500)
    run = auto.simulate(arrivals, 7200, FLEET, POLICY)
    assert run.moments[-1].wait_s == 0
    assert run.moments[-1].serving == 1  # all were given back


def test_a_larger_fixed_fleet_costs_more_and_waits_less() -> None:
    arrivals = auto.day(5.0, 25.0, rise_s=600, fall_s=2400)
    one, three = (auto.simulate(arrivals, 3600, FLEET, auto.fixed(count)) for count in (1, 3))
    assert three.usd == pytest.approx(3 * one.usd)
    assert three.longest_wait_s == 0 < one.longest_wait_s
    assert three.share_waiting(1) == 0 < one.share_waiting(1) < 1


def test_scale_in_waits_and_goes_step_by_step() -> None:
    run = auto.simulate(auto.day(5.0, 25.0, rise_s=0, fall_s=3000), 7200, FLEET, POLICY)
    counts = [moment.serving for moment in run.moments]
    drops = [
        moment.at_s
        for moment, before, after in zip(run.moments[1:], counts, counts[1:], strict=False)
        if after < before
    ]
    assert all(before - after <= 1 for before, after in pairwise(counts))
    assert drops[0] - 3000 >= POLICY.scale_in_s - auto.STEP_S


def test_more_than_the_most_is_never_asked_for() -> None:
    run = auto.simulate(lambda at_s: 500.0, 3600, FLEET, POLICY)
    assert max(moment.billed for moment in run.moments) == POLICY.max_instances


@pytest.mark.parametrize(("least", "most", "target"), [(0, 1, 1.0), (2, 1, 1.0), (1, 1, 0.0)])
def test_an_impossible_policy_is_refused(least: int, most: int, target: float) -> None:
    with pytest.raises(UsageError, match="a policy from"):
        auto.Policy(target=target, min_instances=least, max_instances=most)


def test_a_canary_shows_a_bad_version_to_a_share() -> None:
    met, back = auto.canary([0.1, 1.0], 300, error_share=0.5, alarm_share=0.01)
    assert (met, back) == (0.1, True)
    assert auto.canary([1.0], 300, error_share=0.5, alarm_share=0.01) == (1.0, True)


def test_an_alarm_above_what_the_canary_can_cause_is_deaf_until_all_traffic_moved() -> None:
    met, back = auto.canary([0.1, 1.0], 300, error_share=0.5, alarm_share=0.1)
    assert back
    assert math.isclose(met, 0.55)


def test_a_good_version_goes_out() -> None:
    assert auto.canary([0.1, 1.0], 300, error_share=0.0, alarm_share=0.01)[1] is False


@pytest.mark.parametrize("shares", [[], [0.5], [1.0, 0.5, 1.0]])
def test_shares_that_do_not_rise_to_one_are_refused(shares: list[float]) -> None:
    with pytest.raises(UsageError, match="of a canary"):
        auto.canary(shares, 300, error_share=0.1, alarm_share=0.01)
