"""Overheads of a measured machine: from the lightest loads, and back again through a plan."""

from typing import Any

import pytest

from serving_base.errors import UsageError
from serving_base.machine import measure_machine
from serving_planner.cost_model.laws import overheads
from serving_planner.hardware import local_machine
from serving_planner.predict import plan

LOAD: dict[str, Any] = {
    "model": "tiny",
    "gpu": "calibration test",
    "isl": 128,
    "osl": 32,
    "length_ratio": 1.0,
    "requests": 24,
}


def tpot_ms(streams: int, **beside: float) -> float:
    local_machine(20e9, 100e9, 8 * 2**30, "calibration test", **beside)
    found = plan(**LOAD, concurrency=streams)
    assert found.tpot_ms is not None
    return found.tpot_ms.p50


def test_a_line_through_the_two_lightest_loads() -> None:
    planned = dict.fromkeys((1, 2, 8), 1.0)
    assert overheads({8: 99.0, 2: 4.0, 1: 3.0}, planned) == {"step_overhead_us": 1000.0, "token_overhead_us": 1000.0}
    assert overheads({4: 3.0}, {4: 1.0}) == {"step_overhead_us": 2000.0, "token_overhead_us": 0.0}


def test_neither_is_below_zero() -> None:
    assert overheads({1: 3.0, 2: 2.5}, {1: 1.0, 2: 1.0}) == {"step_overhead_us": 2000.0, "token_overhead_us": 0.0}
    assert overheads({1: 2.0, 2: 9.0}, {1: 1.0, 2: 1.0})["step_overhead_us"] == 0.0
    assert overheads({1: 0.5}, {1: 1.0}) == {"step_overhead_us": 0.0, "token_overhead_us": 0.0}


def test_loads_must_be_planned() -> None:
    with pytest.raises(UsageError, match="not planned"):
        overheads({1: 3.0, 2: 2.5}, {1: 1.0})
    with pytest.raises(UsageError):
        overheads({}, {})


@pytest.mark.parametrize(("step_us", "token_us"), [(3000.0, 0.0), (100.0, 1000.0), (2000.0, 700.0)])
def test_a_plan_with_overheads_gives_them_back(step_us: float, token_us: float) -> None:
    bare = {streams: tpot_ms(streams) for streams in (1, 2)}
    there = {streams: tpot_ms(streams, step_overhead_us=step_us, token_overhead_us=token_us) for streams in (1, 2)}
    found = overheads(there, bare)
    assert found["step_overhead_us"] == pytest.approx(step_us, rel=0.15, abs=50)
    assert found["token_overhead_us"] == pytest.approx(token_us, rel=0.15, abs=50)


def test_the_floor_knows_no_overhead() -> None:
    local_machine(20e9, 100e9, 8 * 2**30, "calibration test")
    bare = plan(**LOAD, concurrency=4)
    local_machine(20e9, 100e9, 8 * 2**30, "calibration test", step_overhead_us=5000.0)
    loaded = plan(**LOAD, concurrency=4)
    assert loaded.floor == bare.floor
    assert loaded.output_tokens_per_s < 0.5 * bare.output_tokens_per_s
    assert loaded.binding_limit == "overhead" != bare.binding_limit


def test_the_machine_is_measured_on_the_cores_that_are_named() -> None:
    rates = measure_machine(frozenset({0}), weight_bytes=4_000_000)
    assert rates.cores == 1
    assert 1e8 < rates.bandwidth_bytes_per_s < 1e12
    assert 1e9 < rates.flops < 1e13
    assert rates.memory_bytes > 2**28
