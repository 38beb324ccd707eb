"""The power limit: what was measured, and what is made of it."""

import csv
import math
from pathlib import Path
from statistics import median

import pytest

from serving_base.yaml_files import read_yaml
from serving_planner.case import Case, parse_case
from serving_planner.cost_model.laws import slowdown
from serving_planner.cost_model.step import StepLoad, step_model
from serving_planner.hardware import gpu
from serving_planner.replicas import resolve

ROOT = Path(__file__).parents[2]
FACTS = read_yaml(ROOT / "packages" / "serving_planner" / "data" / "power.yml")["gpus"]["h200"]


def case(**keys: object) -> Case:
    return parse_case({"model": "llama3-8b", "gpu": "h200", "isl": 1024, "osl": 128, **keys})


def measured() -> list[dict[str, str]]:
    with (ROOT / "benchmarks" / "planner" / "data" / "own_sustained.csv").open(encoding="utf-8") as file:
        return list(csv.DictReader(file))


def test_the_data_are_the_measurement() -> None:
    busy = [row for row in measured() if int(row["tokens"]) >= 256]
    waiting = [row for row in measured() if int(row["tokens"]) <= 32]
    assert FACTS["slowdown"] == pytest.approx(median(float(row["ratio"]) for row in busy), abs=0.005)
    assert FACTS["other_w"] == pytest.approx(median(float(row["watts"]) for row in waiting), abs=10)
    assert all(abs(float(row["ratio"]) - 1) < 0.01 for row in waiting)
    clock = median(float(row["sm_mhz"]) for row in busy)
    exponent = math.log(FACTS["slowdown"]) / (2.2 * math.log(1980 / clock))
    assert FACTS["time_per_watt"] == pytest.approx(exponent, abs=0.02)


def test_the_slowdown_grows_with_the_share_of_computing_up_to_what_was_measured() -> None:
    found = [slowdown(gpu("h200"), share / 20) for share in range(21)]
    assert found == sorted(found)
    assert found[0] == found[1] == 1.0
    assert found[-1] == pytest.approx(FACTS["slowdown"], abs=0.005)
    assert slowdown(gpu("l4"), 1.0) == 1.0  # nothing is known of it


def test_only_what_computes_is_slowed_down() -> None:
    burst, sustained = (step_model(case(), slower) for slower in (1.0, 1.2))
    decode = StepLoad(decode_sequences=1, decode_context_tokens=1024)
    prefill = StepLoad(prefill_tokens=8192, prefill_pairs=8192 * 512, prefill_sequences=8)
    assert sustained.seconds(decode) / burst.seconds(decode) < 1.01
    assert 1.12 < sustained.seconds(prefill) / burst.seconds(prefill) < 1.2
    assert sustained.floor_seconds(prefill) == burst.floor_seconds(prefill)


def test_a_quiet_gpu_keeps_its_clock_and_a_busy_one_does_not() -> None:
    load = StepLoad(prefill_tokens=8192, prefill_pairs=8192 * 512, prefill_sequences=8)
    quiet, busy = (resolve(case(concurrency=n)) for n in (1, 256))
    assert quiet.compute_share < 0.1 < 0.4 < busy.compute_share
    assert busy.model.seconds(load) > 1.05 * quiet.model.seconds(load)
