"""Plans: the keys, the floor, laws that any load test keeps, the closed form against the simulation, costs."""

import json
import math
import random
from pathlib import Path
from typing import Any

import pytest

from serving_base.errors import UsageError
from serving_base.facts.prices import price
from serving_planner import replicas as asked_module
from serving_planner.case import parse_case
from serving_planner.cost_model.step import StepLoad
from serving_planner.hardware import local_machine
from serving_planner.plans import Plan, formulas
from serving_planner.predict import plan, steady
from serving_planner.replicas import MOST_IN_FLIGHT, resolve, saturation_requests
from serving_planner.simulator.result import percentile
from serving_planner.simulator.scheduler import simulate

BASE: dict[str, Any] = {"model": "llama3-70b", "gpu": "h100-sxm", "tp": 4, "isl": 1024, "osl": 256}
KEYS = {
    "memory_gib": {"weights", "kv_cache", "activations", "runtime", "total"},
    "kv_capacity_tokens": None,
    "max_concurrency": None,
    "ttft_ms": {"p50", "p90", "p99"},
    "tpot_ms": {"p50", "p90", "p99"},
    "request_latency_ms": {"p50", "p90", "p99"},
    "output_tokens_per_s": None,
    "output_tokens_per_s_per_gpu": None,
    "floor": {"ttft_ms", "tpot_ms", "request_latency_ms", "output_tokens_per_s", "output_tokens_per_s_per_gpu"},
    "binding_limit": None,
    "share_of_floor": None,
    "time_split": None,
    "joules_per_output_token_at_most": None,
    "cost_usd_per_million_output_tokens": None,
    "cost_usd_per_million_total_tokens": None,
    "warnings": None,
}
MORE_KEYS = {"requests_per_s", "price", "steady", "simulated_concurrency", "case"}
LOADS = [
    {"concurrency": 1},
    {"concurrency": 64},
    {"concurrency": 300, "engine": "vllm"},
    {"concurrency": 32, "engine": "sglang"},
    {"concurrency": 48, "pp": 2, "gpus": 8},
    {"rate": 3.0},
    {"rate": 100.0},
    {"concurrency": 16, "osl": 1},
    {"concurrency": "max", "osl": 64},
]


def planned(**settings: Any) -> Plan:
    return plan(parse_case({**BASE, **settings}))


def test_the_keys_are_those_that_were_agreed() -> None:
    data = json.loads(json.dumps(planned(concurrency=8).model_dump(mode="json")))
    assert set(data) == {*KEYS, *MORE_KEYS}
    for key, inner in KEYS.items():
        assert inner is None or set(data[key]) == inner, key
    assert Plan.model_validate(data) == planned(concurrency=8)


def test_every_key_has_its_formula_and_no_formula_is_of_nothing() -> None:
    assert set(formulas()) == set(Plan.model_fields) - {"case", "warnings"}
    assert all(text and "\n" not in text for text in formulas().values())


@pytest.mark.parametrize("load", LOADS, ids=str)
def test_nothing_planned_is_below_the_floor(load: dict[str, Any]) -> None:
    one = planned(**load)
    for key in ("ttft_ms", "tpot_ms", "request_latency_ms"):
        ours, least = getattr(one, key), getattr(one.floor, key)
        assert (ours is None) == (least is None) == (key == "tpot_ms" and load.get("osl") == 1)
        if ours is not None:
            assert all(0 < getattr(least, at) < getattr(ours, at) for at in ("p50", "p90", "p99")), key
    assert one.output_tokens_per_s < one.floor.output_tokens_per_s * (1 + 1e-9)
    assert 0 < one.share_of_floor < 1
    assert math.isclose(sum(one.time_split.values()), 1, rel_tol=1e-4)


def test_one_request_alone_takes_its_steps_one_after_the_other() -> None:
    case = parse_case({**BASE, "length_ratio": 1})
    model, one = resolve(case).model, plan(case)
    steps = [model.seconds(StepLoad(1, 1024 + token)) for token in range(1, 256)]
    assert one.tpot_ms is not None
    assert one.tpot_ms.p50 == pytest.approx(1e3 * sum(steps) / 255, rel=2e-3)
    prompt_s = model.seconds(StepLoad(0, 0, 1024, 1024 * 1025 / 2, 1))
    assert 0 < one.ttft_ms.p50 / 1e3 - prompt_s < 0.01  # the client's share


@pytest.mark.parametrize(
    "load",
    [
        {"concurrency": 1},
        {"concurrency": 4},
        {"concurrency": 32},
        {"concurrency": 128},
        {"concurrency": 256, "isl": 128, "osl": 128},
        {"concurrency": 64, "isl": 6000, "osl": 500},
        {"concurrency": 64, "isl": 6000, "osl": 500, "max_num_tokens": 2048},
        {"concurrency": 64, "engine": "vllm"},
        {"concurrency": 64, "engine": "sglang"},
        {"rate": 1.0},
        {"rate": 4.0},
    ],
    ids=str,
)
def test_the_closed_form_agrees_with_the_steady_part_of_the_simulation(load: dict[str, Any]) -> None:
    asked = resolve(parse_case({**BASE, **load}))
    (share,) = asked.shares
    served = simulate(asked.model.seconds, asked.workload(share), asked.limits, asked.policy, asked.client)
    point = asked.point(share)
    assert served.steady is not None
    tpot_s = percentile([answer.tpot_s for answer in served.steady.answers], 50)
    assert point.tpot_s == pytest.approx(tpot_s, rel=0.06)
    assert point.output_tokens_per_s == pytest.approx(served.steady.output_tokens_per_s, rel=0.08)


def test_the_closed_form_of_a_pipeline_has_its_bubbles() -> None:
    """Micro-batches with and without a prompt wait for each other: without that, TPOT would be a third too low."""
    asked = resolve(parse_case({**BASE, "pp": 2, "concurrency": 64}))
    (share,) = asked.shares
    served = simulate(asked.model.seconds, asked.workload(share), asked.limits, asked.policy, asked.client)
    point = asked.point(share)
    kinds = point.kinds
    full_stages = 2 * (kinds.decode_s + kinds.joining * kinds.cost_s)
    tpot_s = percentile(served.tpot_s, 50)
    assert point.tpot_s == pytest.approx(tpot_s, rel=0.12)
    assert full_stages < 0.93 * tpot_s


@pytest.mark.parametrize("load", [{"concurrency": 40}, {"concurrency": 3000, "engine": "vllm"}, {"rate": 2.0}], ids=str)
def test_littles_law_holds_in_the_closed_form(load: dict[str, Any]) -> None:
    """Requests = rate x time, of the whole system for a closed loop, of the engine for an open one."""
    asked = resolve(parse_case({**BASE, "isl": 4000, "osl": 400, **load}))
    (share,) = asked.shares
    point = asked.point(share)
    outside_s = asked.replica()._outside_s()
    if share.concurrency:
        assert point.requests_per_s * point.latency_s == pytest.approx(share.concurrency, rel=5e-3)
    else:
        assert point.requests_per_s * (point.latency_s - outside_s) == pytest.approx(point.in_flight, rel=0.05)


def test_two_replicas_do_twice_what_one_does() -> None:
    one, two = planned(concurrency=32), planned(gpus=8, concurrency=64)
    assert two.ttft_ms == one.ttft_ms and two.tpot_ms == one.tpot_ms
    assert two.output_tokens_per_s == pytest.approx(2 * one.output_tokens_per_s, rel=1e-5)
    assert two.output_tokens_per_s_per_gpu == pytest.approx(one.output_tokens_per_s_per_gpu, rel=1e-5)
    assert two.max_concurrency == 2 * one.max_concurrency
    assert two.kv_capacity_tokens == one.kv_capacity_tokens


def test_a_load_that_does_not_divide_is_spread_and_nothing_is_lost() -> None:
    asked = resolve(parse_case({**BASE, "tp": 2, "gpus": 8, "concurrency": 37}))
    assert [(share.replicas, share.concurrency) for share in asked.shares] == [(1, 10), (3, 9)]
    assert asked.concurrency == 37
    idle = resolve(parse_case({**BASE, "tp": 2, "gpus": 8, "concurrency": 3}))
    assert [(share.replicas, share.concurrency) for share in idle.shares] == [(3, 1)]
    assert plan(idle.case).output_tokens_per_s == pytest.approx(3 * planned(tp=2).output_tokens_per_s, rel=0.02)


def test_an_open_loop_gives_out_what_comes_in_until_it_cannot() -> None:
    calm, flooded = planned(rate=2.0), planned(rate=200.0)
    assert calm.binding_limit == "arrival_rate" and calm.steady.utilisation is not None
    assert calm.output_tokens_per_s == pytest.approx(2 * 230, rel=0.08)
    assert calm.steady.output_tokens_per_s == pytest.approx(2 * (204 + 256) / 2, rel=1e-3)
    assert not any("unstable" in warning for warning in calm.warnings)
    assert flooded.binding_limit != "arrival_rate"
    assert any("unstable" in warning for warning in flooded.warnings)
    assert flooded.output_tokens_per_s < 50 * 230
    assert flooded.ttft_ms.p50 > 20 * calm.ttft_ms.p50


def test_max_is_what_the_memory_holds_and_says_what_binds() -> None:
    long = planned(gpu="h200", tp=1, osl=2048, concurrency="max")
    assert long.simulated_concurrency == long.max_concurrency
    assert long.binding_limit == "kv_cache"
    short = plan(parse_case({"model": "llama3-8b", "gpu": "h100-sxm", "isl": 2048, "osl": 128, "concurrency": "max"}))
    assert short.binding_limit == "compute"
    few = planned(concurrency="max", max_batch_size=4)
    assert few.simulated_concurrency == 4 and few.binding_limit == "batch_size"


def test_one_request_reads_weights_and_a_crowd_of_prompts_multiplies() -> None:
    alone = planned(tp=1, gpu="h200", isl=128, osl=512)
    assert alone.binding_limit == "bandwidth"
    crowd = planned(tp=1, gpu="h200", isl=4000, osl=8, concurrency=32)
    assert crowd.binding_limit == "compute"


def test_ttft_falls_off_a_cliff_where_the_cache_is_full() -> None:
    settings = {"gpu": "h200", "tp": 1, "isl": 1024, "osl": 2048}
    edge = planned(**settings).max_concurrency
    inside, outside = planned(**settings, concurrency=edge), planned(**settings, concurrency=round(1.4 * edge))
    assert inside.ttft_ms.p50 < 2_000 and outside.ttft_ms.p50 > 10 * inside.ttft_ms.p50
    assert any("wait" in warning for warning in outside.warnings)
    assert not any("wait" in warning for warning in inside.warnings)
    assert outside.binding_limit == "kv_cache"


@pytest.mark.parametrize("settings", [{"osl": 1024, "concurrency": 384}, {"gpu": "h200", "tp": 1, "concurrency": 400}])
def test_requests_that_are_not_simulated_are_like_the_steady_ones(
    monkeypatch: pytest.MonkeyPatch, settings: dict[str, Any]
) -> None:
    """A test of 10 x C requests of which a part is simulated: rate and times are those of all of them."""
    short = planned(**settings)
    monkeypatch.setattr(asked_module, "WAVES", 100)
    whole = planned(**settings)
    assert short != whole
    assert short.output_tokens_per_s == pytest.approx(whole.output_tokens_per_s, rel=0.02)
    assert short.tpot_ms is not None and whole.tpot_ms is not None
    assert short.tpot_ms.p50 == pytest.approx(whole.tpot_ms.p50, rel=0.02)
    assert short.ttft_ms.p50 == pytest.approx(whole.ttft_ms.p50, rel=0.2)


def test_a_saturation_test_has_constant_lengths_unless_they_are_given() -> None:
    assert planned(concurrency="max").case.length_ratio == 1.0
    assert planned(concurrency="max", length_ratio=0.8).case.length_ratio == 0.8
    assert planned(concurrency=4).case.length_ratio == 0.8


def test_a_saturation_test_sends_as_many_requests_as_the_public_one() -> None:
    assert saturation_requests(128, 128) == 30000
    assert saturation_requests(150, 120) == 30000
    assert saturation_requests(20000, 2000) == 1000
    assert saturation_requests(1024, 1024) == 3000


def test_the_start_and_the_end_are_in_the_rate_and_not_in_the_steady_one() -> None:
    one, longer = planned(concurrency=128, requests=140), planned(concurrency=128)
    assert one.output_tokens_per_s < 0.9 * longer.output_tokens_per_s
    assert longer.output_tokens_per_s < longer.steady.output_tokens_per_s


def test_a_price_that_is_given_is_used_and_a_known_one_is_dated() -> None:
    free = planned(concurrency=32)
    assert free.price is None and free.cost_usd_per_million_output_tokens is None
    paid = planned(concurrency=32, usd_per_hour=20)
    assert paid.cost_usd_per_million_output_tokens == pytest.approx(20e6 / 3600 / paid.output_tokens_per_s, rel=1e-4)
    isl, osl = (819 + 1024) / 2, (204 + 256) / 2
    assert paid.cost_usd_per_million_output_tokens is not None
    total = paid.cost_usd_per_million_output_tokens * osl / (isl + osl)
    assert paid.cost_usd_per_million_total_tokens == pytest.approx(total, rel=1e-4)
    dated = planned(concurrency=32, instance="p5.48xlarge")
    known = price("p5.48xlarge")
    assert dated.price is not None and dated.price.date == known.date and dated.price.source == known.source
    assert dated.price.usd_per_hour == known.usd_per_hour
    assert dated.case.gpus == 8 and dated.case.replicas == 2


def test_an_instance_without_a_price_costs_nothing_known_and_says_so() -> None:
    one = plan(parse_case({"model": "llama3-8b", "instance": "g6.xlarge", "isl": 512, "osl": 64}))
    assert one.cost_usd_per_million_output_tokens is None
    assert any("no price is known for g6.xlarge" in warning for warning in one.warnings)
    given = parse_case({"model": "llama3-8b", "instance": "g6.xlarge", "isl": 512, "osl": 64, "usd_per_hour": 1.0})
    assert not any("no price" in warning for warning in plan(given).warnings)


def test_energy_is_bounded_by_the_boards_limits() -> None:
    one = planned(gpus=8, concurrency=32)
    assert one.joules_per_output_token_at_most == pytest.approx(8 * 700 / one.output_tokens_per_s, rel=1e-4)


def test_prompts_longer_than_a_step_and_positions_beyond_training_are_told() -> None:
    found = " ".join(planned(isl=8000, osl=500, max_num_tokens=2048).warnings)
    assert "max_num_tokens 2048" in found and "in 4 steps" in found and "8192 positions" in found
    assert planned(concurrency=8).warnings == ()


def test_a_cache_of_what_is_left_and_borrowed_tables_are_told() -> None:
    tight = planned(tp=1, isl=256, osl=64)
    assert any("fewer tokens" in warning for warning in tight.warnings)
    assert not any("fewer tokens" in warning for warning in planned(gpu="h200", tp=1, isl=256, osl=64).warnings)
    small = {"model": "llama3-8b", "isl": 128, "osl": 16}
    borrowed = plan(parse_case({**small, "gpu": "l4"})).warnings
    assert any("those of tensorrt-llm on l40s stand for them" in warning for warning in borrowed)
    assert plan(parse_case({**small, "gpu": "l40s"})).warnings == ()


def test_a_measured_machine_is_planned_and_marked() -> None:
    local_machine(20e9, 200e9, 8 * 2**30, "a laptop")
    one = plan(parse_case({"model": "tiny", "gpu": "a laptop", "isl": 64, "osl": 32, "concurrency": 4}))
    assert any("what its kernels lose is assumed" in warning for warning in one.warnings)
    assert one.joules_per_output_token_at_most is None
    assert 0 < one.share_of_floor < 1


def test_a_limit_binds_only_those_who_run_into_it() -> None:
    assert planned(concurrency=4, max_batch_size=4).binding_limit != "batch_size"
    assert planned(concurrency=16, max_batch_size=4).binding_limit == "batch_size"


def test_what_does_not_fit_names_the_nearest_that_does() -> None:
    with pytest.raises(UsageError) as refused:
        planned(tp=1, weights="bf16", kv="bf16")
    assert "does not fit" in refused.value.what and "nearest" in refused.value.fix


def test_a_crowd_that_nobody_needs_to_simulate_is_refused() -> None:
    with pytest.raises(UsageError, match="more than a plan simulates"):
        planned(concurrency=MOST_IN_FLIGHT + 1)
    with pytest.raises(UsageError, match="more than a plan simulates"):
        steady(parse_case({**BASE, "concurrency": 10**9}))


@pytest.mark.parametrize("split", [{"tp": 4}, {"tp": 1, "gpu": "h200"}, {"tp": 2, "pp": 4, "kv": "bf16"}], ids=str)
def test_the_short_cut_of_the_floor_is_the_floor(split: dict[str, Any]) -> None:
    asked, draw = resolve(parse_case({**BASE, **split})), random.Random(0)
    loads = [
        StepLoad(),
        StepLoad(1, 900),
        StepLoad(300, 10**6),
        StepLoad(0, 0, 2048, 2e6, 3),
        StepLoad(5, 9_000, 700, 245_350.0, 0),
    ]
    for _ in range(50):
        count, prompt = draw.randrange(1, 600), draw.randrange(1, 8192)
        loads.append(
            StepLoad(count, count * draw.randrange(1, 9000), prompt, prompt * draw.random() * 5000, prompt // 500)
        )
    for load in loads:
        assert asked.floor(load) == pytest.approx(asked.model.floor_seconds(load), rel=1e-6), load


def test_the_same_case_has_the_same_plan_and_another_seed_nearly_so() -> None:
    one, again, other = planned(rate=4.0), planned(rate=4.0), planned(rate=4.0, seed=1)
    assert one == again
    assert one.ttft_ms != other.ttft_ms
    assert one.tpot_ms is not None and other.tpot_ms is not None
    assert one.tpot_ms.p50 == pytest.approx(other.tpot_ms.p50, rel=0.1)


def test_the_plan_imports_no_heavy_library(tmp_path: Path) -> None:
    import subprocess
    import sys

    code = (
        "import sys; from serving_planner.case import parse_case; from serving_planner.predict import plan; "
        "plan(parse_case({'model': 'llama3-8b', 'gpu': 'h200', 'isl': 64, 'osl': 16})); "
        "print([name for name in ('numpy', 'pandas', 'torch', 'scipy', 'matplotlib') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_the_host_binds_where_the_gpu_waits_for_it() -> None:
    host = plan(model="llama3-8b", gpu="h200", isl=128, osl=256, concurrency=512, requests=512)
    assert host.binding_limit == "overhead"
    assert host.time_split["overhead"] > 0.03
    assert plan(model="llama3-8b", gpu="h200", isl=128, osl=64, concurrency=1).binding_limit == "bandwidth"


def test_all_reduces_over_pcie_carry_a_warning() -> None:
    def warned(tp: int, gpu: str = "l40s") -> bool:
        found = plan(model="llama3-8b", gpu=gpu, tp=tp, isl=128, osl=16, concurrency=1, requests=1).warnings
        return any("PCIe" in text for text in found)

    assert warned(4)
    assert not warned(2)
    assert not warned(4, "h100-sxm")
